"""The figures of the scheduler extender → samples."""

from collections.abc import Iterator

from msgspec import structs

from vgpuscope.catalog import extender as m
from vgpuscope.catalog.label_sets import ExtenderLabels, WatchedKindLabels
from vgpuscope.model.extender import ExtenderFigures
from vgpuscope.model.logged_decision import DecisionLogState
from vgpuscope.views.build import Build
from vgpuscope.views.exposition.page import Sample


def extender_samples(found: ExtenderFigures, build: Build) -> Iterator[Sample]:
    """All samples of the extender's page."""
    row = ExtenderLabels(**structs.asdict(build))
    yield Sample(m.BUILD_INFO, row, 1)
    yield Sample(m.FILTER_SECONDS, row, found.filtering)
    yield Sample(m.SCORE_SECONDS, row, found.scoring)
    yield Sample(m.BIND_SECONDS, row, found.binding)
    yield Sample(m.BIND_SUCCESS, row, found.bound)
    yield Sample(m.BIND_FAILURE, row, found.failed)
    for (verb, outcome), times in sorted(found.requests.items()):
        yield Sample(m.REQUESTS, row, times, (verb, outcome))
    for (verb, code), times in sorted(found.refusals.items()):
        yield Sample(m.REFUSALS, row, times, (verb, code))
    for code, times in sorted(found.node_refusals.items()):
        yield Sample(m.NODE_REFUSALS, row, times, (code,))
    yield Sample(m.QUEUE, row, found.queue)
    yield Sample(m.QUEUE_SECONDS, row, found.queueing)
    yield Sample(m.ASSUMED, row, found.assumed)
    yield Sample(m.UNSETTLED, row, found.unsettled)
    yield Sample(m.LEADER, row, int(found.leads))
    yield Sample(m.LEASE_AGE, row, found.lease_age)
    yield Sample(m.LEASE_TRANSITIONS, row, found.lease_transitions)
    ages = [watch.age_seconds for watch in found.watches if watch.awaited]
    yield Sample(m.CACHE_AGE, row, None if None in ages else max(filter(None, ages), default=None))
    yield Sample(m.SYNCED, row, int(found.synced))
    yield Sample(m.EVENTS_POSTED, row, found.posted)
    yield Sample(m.EVENTS_DROPPED, row, found.dropped)
    yield Sample(m.DECISIONS_KEPT, row, found.decisions)
    yield from _log_samples(found.log, row)
    for code, times in sorted(found.errors.items()):
        yield Sample(m.ERRORS, row, times, (code,))
    for loop, times in sorted(found.restarts.items()):
        yield Sample(m.LOOP_RESTARTS, row, times, (loop,))
    for watch in found.watches:
        kind = WatchedKindLabels(kind=watch.kind)
        yield Sample(m.WATCH_UP, kind, int(watch.up))
        yield Sample(m.WATCH_OBJECTS, kind, watch.objects)
        yield Sample(m.WATCH_FAULTS, kind, watch.faults)


def _log_samples(log: DecisionLogState, row: ExtenderLabels) -> Iterator[Sample]:
    """The log of decisions; without a store, nothing is said about one."""
    yield Sample(m.DECISIONS_BYTES, row, log.bytes)
    yield Sample(m.DECISIONS_DROPPED, row, log.dropped)
    if log.stored is not None:
        yield Sample(m.DECISION_STORE_UP, row, int(log.stored))
        yield Sample(m.DECISIONS_UNSAVED, row, log.unsaved)
        yield Sample(m.DECISIONS_LOST, row, log.lost)
