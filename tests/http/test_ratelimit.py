"""One rate limit for the web configuration and for the API."""

import pytest

from vgpuscope.http.ratelimit import RateLimiter


def passed(limiter, times, *, now, client="a", interval=1.0, burst=3.0):
    return [limiter.wait(client, interval=interval, burst=burst, now=now) == 0 for _ in range(times)].count(True)


def test_a_burst_passes_and_then_one_request_for_each_interval():
    limiter = RateLimiter()
    assert passed(limiter, 9, now=100.0) == 3
    assert passed(limiter, 9, now=101.0) == 1
    assert passed(limiter, 9, now=109.0) == 3  # never more than the burst


@pytest.mark.parametrize("interval", [1 / 49, 0.1, 1 / 3, 1.0, 7.0, 49.0])
def test_who_waits_as_long_as_told_may_pass(interval):
    limiter = RateLimiter()
    assert passed(limiter, 2, now=0.0, interval=interval, burst=1) == 1
    wait = limiter.wait("a", interval=interval, burst=1, now=0.0)
    assert wait == pytest.approx(interval)
    assert passed(limiter, 1, now=wait, interval=interval, burst=1) == 1


def test_each_client_has_a_limit_of_its_own():
    limiter = RateLimiter()
    assert passed(limiter, 9, now=0.0) == 3
    assert passed(limiter, 9, now=0.0, client="b") == 3


def test_a_changed_limit_takes_effect_for_clients_that_are_known():
    limiter = RateLimiter()
    assert passed(limiter, 9, now=0.0, burst=8) == 8
    assert passed(limiter, 9, now=1.0, burst=2, interval=0.1) == 2


def test_the_client_that_was_silent_longest_is_forgotten_first():
    limiter = RateLimiter(clients=2)
    for client in ("a", "b", "a", "c"):
        passed(limiter, 3, now=0.0, client=client)
    assert [passed(limiter, 1, now=0.0, client=client) for client in ("a", "b")] == [0, 1]
