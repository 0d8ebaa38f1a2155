"""Every limit of the store's engine, in one place."""

from typing import NamedTuple

from vgpuscope.model.quantity import Seconds


class Limits(NamedTuple):
    """How much the store does at once, and how long it waits."""

    deadline: Seconds = 60.0  # for one call, including its time in the queue; a frozen database never answers
    read: Seconds = 15.0  # for one read of past results, likewise; the database ends the read, too
    close: Seconds = 5.0  # for closing a connection
    readers: int = 2  # connections for reads, besides the two for writes
    calls_waiting: int = 1000  # calls in the queue of one connection; further calls are rejected
    rows_per_read: int = 5_000_000  # rows that one statement may return: 100,000 GPUs for two days of hours
    rows_per_insert: int = 5000  # rows that are built and sent at once
    rows_per_transaction: int = 50_000  # rows that one step of pruning touches: a fraction of a second
    lock_wait: Seconds = 10.0  # waiting for another process that writes
    statement: Seconds = 30.0  # PostgreSQL: for one statement
    connect: Seconds = 5.0  # PostgreSQL: for a connection


LIMITS = Limits()
