"""Judgements → the report, with its words in both languages."""

import re
from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from vgpuscope.model.doctor import (
    SERVICES,
    STAGES,
    AskedService,
    Check,
    DoctorFinding,
    DoctorReport,
    DoctorStage,
    Missing,
    NotChecked,
    ObjectNames,
    Place,
    Stage,
    StageStatus,
    Status,
)
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.words import Words
from vgpuscope.views.doctor.words import CHECK_WORDS, FACT_NAMES, REASONS, STAGE_NAMES

_WORST: tuple[Status, ...] = ("fail", "warn", "pass", "skipped")
_CONSIDERABLE = 0.25  # of the checks of a link: if so many were skipped, it is not in order
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")  # of a Kubernetes object or a GPU
_LONGEST = 300  # characters of an example, which others wrote


def report(
    checks: Sequence[Check],
    *,
    at: str,
    version: str,
    place: Place,
    seconds: Seconds,
    services: tuple[AskedService, ...] = (),
) -> DoctorReport:
    """All findings, the state of every link of the chain, and which services were asked."""
    findings = tuple(map(_finding, checks))
    return _reported(findings, at=at, version=version, place=place, seconds=seconds, services=services)


def merged(own: DoctorReport, analyzer: DoctorReport) -> DoctorReport:
    """The report of an analyzer that does not give its facts, with what only this caller could look at.

    A fault that was found here is not replaced by a good finding there: the caller named the address.
    """
    here = {one.code: one for one in own.findings}
    there = {one.code: one for one in analyzer.findings}
    bad: frozenset[Status] = frozenset({"fail", "warn"})
    findings = []
    for code, mine in here.items():
        other = there.get(code, mine)
        keep = other.status == "skipped" or (mine.status in bad and other.status not in bad)
        findings.append(mine if keep else other)
    asked = {row.service for row in own.services if row.state != "not-configured"}
    known = [
        replace(row, by_analyzer=True)
        for row in analyzer.services
        if row.state != "not-configured" and row.service not in asked
    ]
    left = [row for row in own.services if row.service in asked or not any(row.service == k.service for k in known)]
    return _reported(
        tuple(findings),
        at=own.at,
        version=own.version,
        place=own.place,
        seconds=own.seconds,
        services=tuple(sorted((*left, *known), key=lambda row: SERVICES.index(row.service))),
    )


def without_examples(own: DoctorReport) -> DoctorReport:
    """A report for a caller who may not see every namespace: examples and services name pods and nodes of others."""
    return replace(
        own,
        findings=tuple(replace(one, examples=()) for one in own.findings),
        services=tuple(replace(one, name="", url="", detail="") for one in own.services),
    )


def _reported(
    findings: tuple[DoctorFinding, ...],
    *,
    at: str,
    version: str,
    place: Place,
    seconds: Seconds,
    services: tuple[AskedService, ...],
) -> DoctorReport:
    return DoctorReport(
        at=at,
        version=version,
        place=place,
        status=worst([one.status for one in findings]),
        counts=_counted(findings),
        seconds=round(seconds, 3),
        stages=tuple(_stage(stage, [one for one in findings if one.stage == stage]) for stage in STAGES),
        findings=findings,
        services=services,
    )


def _stage(stage: Stage, findings: Sequence[DoctorFinding]) -> DoctorStage:
    """A link of the chain: in order only if nearly all of its checks could be made."""
    counts = _counted(findings)
    status: StageStatus = worst([one.status for one in findings])
    if status == "pass" and counts["skipped"] >= _CONSIDERABLE * len(findings):
        status = "partial"
    whys = Counter(one.cause for one in findings if one.status == "skipped" and one.cause is not None)
    return DoctorStage(
        stage=stage,
        name=STAGE_NAMES[stage],
        status=status,
        counts=counts,
        not_checked=tuple(NotChecked(why=why, checks=number) for why, number in whys.most_common()),
    )


def _counted(findings: Sequence[DoctorFinding]) -> dict[Status, int]:
    statuses = [one.status for one in findings]
    return {status: statuses.count(status) for status in _WORST}


def worst(statuses: Sequence[Status]) -> Status:
    """The worst status; skipped only if nothing could be looked at."""
    return next((status for status in _WORST if status in statuses), "skipped")


def _finding(check: Check) -> DoctorFinding:
    said, judgement = CHECK_WORDS[check.code], check.judgement
    found = judgement.status in {"warn", "fail"}
    cause = _filled(said.cause, judgement.numbers) if found else None
    if judgement.missing is not None:
        cause = _why(judgement.missing)
    return DoctorFinding(
        code=check.code,
        stage=check.stage,
        status=judgement.status,
        title=said.title,
        cause=cause,
        fix=_filled(said.fix, judgement.numbers) if found else None,
        commands=tuple(_named(command, judgement.names) for command in said.commands) if found else (),
        numbers=judgement.numbers,
        examples=tuple(_short(example) for example in judgement.examples if example) or _detail(judgement.missing),
        docs=f"docs/doctor.md#{check.stage}",
    )


def _named(command: str, names: ObjectNames) -> str:
    """The command with the names that are known. A label that is no name never gets into a shell."""
    known = {"NODE": names.node, "INDEX": names.gpu, "NAMESPACE": names.namespace, "POD": names.pod}
    known = {word: name for word, name in known.items() if _NAME.fullmatch(name)}
    return re.sub(r"\b(NODE|INDEX|NAMESPACE|POD)\b", lambda word: known.get(word[0], word[0]), command)


def _filled(words: Words, numbers: dict[str, float | str]) -> Words:
    known = _Known({name: _shown(value) for name, value in numbers.items()})
    return Words(words.en.format_map(known), words.zh.format_map(known))


class _Known(dict[str, "_Shown"]):
    def __missing__(self, key: str) -> "_Shown":
        return _Shown("?")


class _Shown(str):
    """A value in a text. {count:GPU is|GPUs are} gives `1 GPU is` or `2 GPUs are`."""

    __slots__ = ()

    def __format__(self, words: str) -> str:
        one, bar, many = words.partition("|")
        return f"{self!s} {one if self == '1' else many}" if bar else str(self)


def _shown(value: float | str) -> _Shown:
    return _Shown(value if isinstance(value, str) else f"{value:g}")


def _why(missing: Missing) -> Words:
    fact, reason = FACT_NAMES[missing.fact], REASONS[missing.reason]
    return Words(reason.en.format(fact=fact.en), reason.zh.format(fact=_spaced(fact.zh)).replace("： ", "："))


def _spaced(text: str) -> str:
    """Latin letters have a space between them and Chinese ones."""
    before, after = " " * text[:1].isascii(), " " * text[-1:].isascii()
    return f"{before}{text}{after}"


def _detail(missing: Missing | None) -> tuple[str, ...]:
    if missing is None:
        return ()
    return tuple(_short(part) for part in (missing.place, missing.detail) if part)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
