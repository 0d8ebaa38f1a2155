"""Audits a running system: reads it in several sittings, and reads again what seems to be a contradiction."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import msgspec
from msgspec import Struct

from vgpuscope.catalog.figures import BY_CODE
from vgpuscope.logic.audit.checks import CODES, comparisons, holds, uncompared
from vgpuscope.model.consistency import (
    AuditedAddress,
    AuditReport,
    CheckCount,
    FigureComparison,
    SkipReason,
    Surfaces,
    Uncompared,
    Unread,
)
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.model.service import AGENT_PORT, ANALYZER_PORT, CLUSTER_PORT, EXTENDER_PORT
from vgpuscope.model.words import Words
from vgpuscope.services.audit.sittings import (
    Sitting,
    agent_commands,
    agent_sittings,
    analyzer_commands,
    analyzer_sittings,
    cluster_commands,
    cluster_sittings,
    doctor_command,
)
from vgpuscope.sources.audit.client import AuditedService, Unanswered
from vgpuscope.sources.clients.served_api import ServiceKind
from vgpuscope.views.audit.report import difference

ROUNDS = 3  # a difference is reported if it is there each time
PAUSE: Seconds = 6.0  # between two rounds: longer than the analyzer keeps what other services said
_MOST = 2000  # differences that are kept
_REQUEST: Seconds = 20.0


class AuditTargets(Struct, frozen=True, kw_only=True):
    """Where the system is."""

    analyzer: str | None = None
    cluster: str | None = None
    agents: tuple[str, ...] = ()
    extender: str | None = None
    token: str | None = None
    within: Seconds = 120.0  # for everything
    commands: bool = True  # also run our commands, as a user would
    pause: Seconds = PAUSE  # before differences are read again


class _Tally(Struct, kw_only=True):
    """What the comparisons of all sittings gave."""

    compared: dict[str, int] = {}
    found: dict[str, dict[tuple[str, ...], FigureComparison]] = {}  # sitting → place → difference
    skipped: dict[str, int] = {}
    confirmed: set[str] = set()  # sittings whose differences were read often enough
    failed: dict[str, str] = {}  # sitting → why
    uncompared: dict[tuple[str, SkipReason], set[str]] = {}  # check and reason → surfaces
    cut: bool = False  # the time limit was reached


async def audit(
    targets: AuditTargets,
    *,
    wall: Callable[[], UnixTime] = time.time,
    clock: Callable[[], Seconds] = time.monotonic,
    rounds: int = ROUNDS,
    more: Callable[[], Awaitable[Surfaces]] | None = None,
) -> AuditReport:
    """Compare the numbers of a running system. `more` reads further surfaces, such as pages of the console.

    `rounds`: how often a difference is read until it is reported; once is enough of a system that stands still.
    """
    began = clock()
    tally = _Tally()
    async with AsyncExitStack() as open_:
        services, asked = await _opened(targets, open_)
        looks = _sittings(services, targets)
        if more is not None:
            looks.insert(0, {"more": more})
        try:
            async with asyncio.timeout(targets.within):
                for some in looks:
                    for name, sitting in some.items():
                        await _first(name, sitting, tally)
                    for _ in range(rounds - 1):
                        await _again(some, tally, targets.pause)
                    tally.confirmed.update(some)
        except TimeoutError:
            tally.cut = True
        undecided = [
            one for name, found in tally.found.items() if name not in tally.confirmed for one in found.values()
        ]
        unread = (*_refused(services), *_left(looks, tally))
        texts = await _texts(services.get("analyzer"))
    differences = [one for name in tally.confirmed for one in tally.found[name].values()]
    return AuditReport(
        at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall())),
        asked=asked,
        checks=tuple(_count(code, differences, tally, answered=bool(services)) for code in CODES),
        differences=tuple(difference(one, texts) for one in differences),
        unread=unread,
        uncompared=tuple(
            Uncompared(check=check, why=why, surfaces=tuple(sorted(places)))
            for (check, why), places in tally.uncompared.items()
        ),
        undecided=len(undecided),
        seconds=round(clock() - began, 3),
        rounds=rounds,
    )


def _sittings(services: dict[str, AuditedService], targets: AuditTargets) -> list[dict[str, Sitting]]:
    """What is read, in the order of its importance: answers first, then what commands print."""
    answers: dict[str, Sitting] = {}
    commands: dict[str, Sitting] = {}
    analyzer = services.get("analyzer")
    if analyzer is not None:
        answers |= analyzer_sittings(analyzer, services.get("cluster exporter"))
        commands |= analyzer_commands(analyzer, targets.analyzer or "")
    if cluster := services.get("cluster exporter"):
        answers |= cluster_sittings(cluster)
        commands |= cluster_commands(cluster, targets.cluster or "")
    for url in targets.agents:
        if agent := services.get(f"agent {url}"):
            answers |= agent_sittings(agent, url)
            commands |= agent_commands(agent, url)
    if analyzer is not None:
        commands |= doctor_command(analyzer, _doctor(targets))
    return [answers, commands] if targets.commands else [answers]


def _doctor(targets: AuditTargets) -> tuple[str, ...]:
    """The command line of doctor, with the addresses of these services."""
    named = {"--analyzer": targets.analyzer, "--cluster": targets.cluster, "--extender": targets.extender}
    given = [word for flag, url in named.items() if url for word in (flag, url)]
    return ("doctor", *given, *(word for url in targets.agents for word in ("--agent", url)))


def _refused(services: dict[str, AuditedService]) -> list[Unread]:
    return [
        Unread(what=f"{service.name} {path}", why=why)
        for service in services.values()
        for path, why in service.refused.items()
    ]


def _left(looks: list[dict[str, Sitting]], tally: _Tally) -> list[Unread]:
    """Sittings that failed, and those for which the time was too short."""
    failed = [Unread(what=name, why=why) for name, why in tally.failed.items()]
    late = [name for some in looks for name in some if name not in tally.found]
    return failed + [Unread(what=name, why="no-time") for name in late]


async def _first(name: str, sitting: Sitting, tally: _Tally) -> None:
    """Read and compare; keep what differs."""
    made = await _compared(name, sitting, tally)
    found = tally.found.setdefault(name, {})
    for comparison in made:
        tally.compared[comparison.check] = tally.compared.get(comparison.check, 0) + 1
        if not holds(comparison) and len(found) < _MOST:
            found.setdefault(_place(comparison), comparison)


async def _again(looks: dict[str, Sitting], tally: _Tally, pause: Seconds) -> None:
    """Read again what seemed to be a contradiction, and keep only what still is one."""
    names = [name for name in looks if tally.found.get(name)]
    if names:
        await asyncio.sleep(pause)
    for name in names:
        now = {_place(one): one for one in await _compared(name, looks[name], tally) if not holds(one)}
        kept = {}
        for place, comparison in tally.found[name].items():
            if place not in now:
                continue
            if _moves(comparison, now[place]):
                tally.skipped[comparison.check] = tally.skipped.get(comparison.check, 0) + 1
                continue
            kept[place] = now[place]
        tally.found[name] = kept


def _moves(before: FigureComparison, now: FigureComparison) -> bool:
    """Whether a number changed that is not of one analysis with the other: nothing follows from a difference."""
    figure = BY_CODE[now.first.figure]
    analysed = figure.time != "now" or figure.quantity == "count"
    if now.first.surface == now.second.surface:  # one answer
        return False
    if analysed and now.first.moment and now.first.moment == now.second.moment:
        return False
    return before.first.value != now.first.value or before.second.value != now.second.value


async def _compared(name: str, sitting: Sitting, tally: _Tally) -> list[FigureComparison]:
    """What one sitting compares; nothing if it cannot be read, or has another shape than we know."""
    try:
        surfaces = await sitting()
    except (Unanswered, KeyError, TypeError) as e:
        tally.failed[name] = str(e) if isinstance(e, Unanswered) else f"{type(e).__name__}: {e}"
        return []
    for undecided in uncompared(surfaces):
        tally.uncompared.setdefault((undecided.check, undecided.why), set()).update(undecided.surfaces)
    return await asyncio.to_thread(lambda: list(comparisons(surfaces)))


_INDEX = re.compile(r"\[\d+\]|\d{9,}")  # of a row, or the time of a step


def _place(comparison: FigureComparison) -> tuple[str, ...]:
    """By what a difference is known again: rows can change their order."""
    first, second = comparison.first, comparison.second
    return (
        comparison.check,
        comparison.subject,
        first.figure,
        *first.scope,
        first.surface,
        _INDEX.sub("[]", first.path),
        second.surface,
        _INDEX.sub("[]", second.path),
    )


def _count(code: str, differences: list[FigureComparison], tally: _Tally, *, answered: bool) -> CheckCount:
    skipped = tally.skipped.get(code, 0)
    compared = tally.compared.get(code, 0) - skipped
    reason: SkipReason | None = None
    if compared <= 0:
        left: SkipReason = next((why for name, why in tally.uncompared if name == code), "not-shown")
        reason = "no-answer" if not answered else "moving" if skipped else "no-time" if tally.cut else left
    return CheckCount(
        code=code,
        compared=max(0, compared),
        differences=sum(one.check == code for one in differences),
        skipped=skipped,
        reason=reason,
    )


async def _opened(
    targets: AuditTargets, open_: AsyncExitStack
) -> tuple[dict[str, AuditedService], tuple[AuditedAddress, ...]]:
    """The services that answer, by name, and all that were asked."""
    wanted = [
        *([("analyzer", _ANALYZER, targets.analyzer)] if targets.analyzer else []),
        *([("cluster exporter", _CLUSTER, targets.cluster)] if targets.cluster else []),
        *((f"agent {url}", _AGENT, url) for url in targets.agents),
        *([("extender", _EXTENDER, targets.extender)] if targets.extender else []),
    ]
    services: dict[str, AuditedService] = {}
    asked = []
    for name, kind, url in wanted:
        service = AuditedService(kind, url, timeout=_REQUEST, token=targets.token)
        await open_.enter_async_context(service)
        message = ""
        try:
            await service.learn()
        except Unanswered as e:
            message = str(e)
        else:
            services[name] = service
        asked.append(AuditedAddress(service=kind.name, url=service.url, answered=not message, message=message))
    return services, tuple(asked)


async def _texts(analyzer: AuditedService | None) -> dict[str, Words]:
    """The definitions that the audited system gives; empty if it gives none."""
    if analyzer is None:
        return {}
    try:
        body = await analyzer.json("/api/v1/definitions")
        return {one["code"]: msgspec.convert(one["text"], Words) for one in body["definitions"]}
    except (Unanswered, KeyError, TypeError, msgspec.ValidationError):
        return {}


def _kind(name: str, an: str, port: int) -> ServiceKind:
    return ServiceKind(
        name=name,
        an=an,
        path="/openapi.json",
        port=port,
        gives="description",
        content="a description of its answers",
        start=f"vgpuscope {name.partition(' ')[0]}",
        ask="vgpuscope doctor --audit",
    )


_ANALYZER = _kind("analyzer", "an analyzer", ANALYZER_PORT)
_CLUSTER = _kind("cluster exporter", "a cluster exporter", CLUSTER_PORT)
_AGENT = _kind("agent", "an agent", AGENT_PORT)
_EXTENDER = _kind("extender", "an extender", EXTENDER_PORT)
