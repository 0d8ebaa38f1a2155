"""Judgements → the report, with its words in both languages."""

from collections.abc import Sequence

from msgspec.structs import replace

from vgpuscope.model.doctor import (
    STAGES,
    Check,
    DoctorFinding,
    DoctorReport,
    DoctorStage,
    Missing,
    Place,
    Status,
)
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.words import Words
from vgpuscope.views.doctor.words import CHECK_WORDS, FACT_NAMES, REASONS, STAGE_NAMES

_WORST: tuple[Status, ...] = ("fail", "warn", "pass", "skipped")
_LONGEST = 300  # characters of an example, which others wrote


def report(checks: Sequence[Check], *, at: str, version: str, place: Place, seconds: Seconds) -> DoctorReport:
    """All findings, and the state of every link of the chain."""
    return _reported(tuple(map(_finding, checks)), at=at, version=version, place=place, seconds=seconds)


def merged(own: DoctorReport, other: DoctorReport) -> DoctorReport:
    """A report in which what was skipped here is taken from a report that was made elsewhere."""
    elsewhere = {one.code: one for one in other.findings if one.code in CHECK_WORDS and one.status != "skipped"}
    findings = tuple(elsewhere.get(one.code, one) if one.status == "skipped" else one for one in own.findings)
    return _reported(findings, at=own.at, version=own.version, place=own.place, seconds=own.seconds)


def without_examples(own: DoctorReport) -> DoctorReport:
    """A report for a caller who may not see every namespace: examples name pods and nodes of others."""
    return replace(own, findings=tuple(replace(one, examples=()) for one in own.findings))


def _reported(
    findings: tuple[DoctorFinding, ...], *, at: str, version: str, place: Place, seconds: Seconds
) -> DoctorReport:
    statuses = [one.status for one in findings]
    return DoctorReport(
        at=at,
        version=version,
        place=place,
        status=worst(statuses),
        counts={status: statuses.count(status) for status in _WORST},
        seconds=round(seconds, 3),
        stages=tuple(
            DoctorStage(
                stage=stage,
                name=STAGE_NAMES[stage],
                status=worst([one.status for one in findings if one.stage == stage]),
            )
            for stage in STAGES
        ),
        findings=findings,
    )


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
        commands=said.commands if found else (),
        numbers=judgement.numbers,
        examples=tuple(_short(example) for example in judgement.examples if example) or _detail(judgement.missing),
        docs=f"docs/doctor.md#{check.stage}",
    )


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
    return Words(reason.en.format(fact=fact.en), reason.zh.format(fact=_spaced(fact.zh)))


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
