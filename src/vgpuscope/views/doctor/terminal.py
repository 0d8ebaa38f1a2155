"""The report on a terminal: the chain at a glance, then each finding with cause, fix and commands to copy."""

import re
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from vgpuscope.model.doctor import DoctorFinding, DoctorReport, DoctorStage, Status
from vgpuscope.model.words import Language, Words
from vgpuscope.views.doctor.words import STAGE_NAMES, STATUS_NAMES
from vgpuscope.views.text import clean, fit

_MARKS: dict[Status, str] = {"pass": "✓", "warn": "!", "fail": "✗", "skipped": "–"}
_STYLES: dict[Status, str] = {"pass": "green", "warn": "yellow", "fail": "bold red", "skipped": "dim"}
_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|['"])+""", re.DOTALL)  # of a shell
_STAGE_WIDTH = 16
_STATUS_WIDTH = 8

_LABELS = {
    "check": Words("Check", "检查"),
    "cause": Words("Cause", "原因"),
    "found": Words("Found", "发现"),
    "fix": Words("Fix", "处理"),
    "more": Words("More", "详见"),
}
_PLACES = {
    "node": Words("on this node", "在本节点上"),
    "outside": Words("from outside", "从外部"),
    "analyzer": Words("by the analyzer", "由分析器"),
}
_HEAD = Words(
    "vgpuscope doctor, {place}: {checks} checks in {seconds} s",
    "vgpuscope 诊断，{place}：{checks} 项检查，用时 {seconds} 秒",
)
_OF = Words("{bad} of {all} checks", "{all} 项检查中 {bad} 项")
_ALL_OF = Words("{all} checks", "{all} 项检查")
_SUM = Words(
    "{fail} failed, {warn} with a warning, {pass} passed, {skipped} skipped.",
    "失败 {fail} 项，警告 {warn} 项，通过 {pass} 项，跳过 {skipped} 项。",
)
_SKIPPED_HINT = Words(
    "`vgpuscope doctor --all` also lists what passed and what was skipped, with the reason.",
    "`vgpuscope doctor --all` 还会列出通过和跳过的检查及其原因。",
)


def drawn(report: DoctorReport, language: Language, *, everything: bool = False) -> RenderableType:
    """The whole report, in one language."""
    return Group(*_parts(report, language, everything=everything))


def _parts(report: DoctorReport, lang: Language, *, everything: bool) -> Iterator[RenderableType]:
    head = _in(_HEAD, lang).format(
        place=_in(_PLACES[report.place], lang), checks=len(report.findings), seconds=f"{report.seconds:.1f}"
    )
    yield Text(head, "bold")
    yield Text()
    for stage in report.stages:
        yield _stage(stage, [one for one in report.findings if one.stage == stage.stage], lang)
    for finding in report.findings:
        if finding.status in {"warn", "fail"}:
            yield Text()
            yield from _finding(finding, lang)
    if everything:
        yield Text()
        for finding in report.findings:
            if finding.status in {"pass", "skipped"}:
                yield from _quiet(finding, lang)
    yield Text()
    yield Text(_in(_SUM, lang).format(**{str(name): number for name, number in report.counts.items()}))
    if not everything and report.counts["skipped"]:
        yield Text(_in(_SKIPPED_HINT, lang), "dim")


def _stage(stage: DoctorStage, findings: list[DoctorFinding], lang: Language) -> Text:
    bad = sum(one.status == stage.status for one in findings)
    counted = _OF if bad < len(findings) else _ALL_OF
    line = Text()
    line.append(f"{_MARKS[stage.status]} ", _STYLES[stage.status])
    line.append(fit(_in(stage.name, lang), _STAGE_WIDTH))
    line.append(fit(_in(STATUS_NAMES[stage.status], lang), _STATUS_WIDTH), _STYLES[stage.status])
    return line.append(_in(counted, lang).format(bad=bad, all=len(findings)), "dim")


def _finding(finding: DoctorFinding, lang: Language) -> Iterator[RenderableType]:
    style = _STYLES[finding.status]
    title = Text().append(f"{_MARKS[finding.status]} {_in(STATUS_NAMES[finding.status], lang)}  ", style)
    title.append(finding.code, "bold").append(f"  {_in(STAGE_NAMES[finding.stage], lang)}", "dim")
    yield title
    yield _line("check", _in(finding.title, lang), lang)
    if finding.cause:
        yield _line("cause", _in(finding.cause, lang), lang)
    for example in finding.examples:
        yield _line("found", clean(example), lang)
    if finding.fix:
        yield _line("fix", _in(finding.fix, lang), lang)
    for command in finding.commands:
        yield Padding(_Command(command), (0, 0, 0, 4))
    yield _line("more", finding.docs, lang)


def _quiet(finding: DoctorFinding, lang: Language) -> Iterator[RenderableType]:
    line = Text().append(f"{_MARKS[finding.status]} ", _STYLES[finding.status])
    line.append(fit(_in(STATUS_NAMES[finding.status], lang), _STATUS_WIDTH), _STYLES[finding.status])
    line.append(f"{finding.code}  ")
    yield line.append(_in(finding.title, lang), "dim")
    if finding.cause:
        shown = " ".join([_in(finding.cause, lang), *(clean(one) for one in finding.examples)])
        yield Padding(Text(shown, "dim"), (0, 0, 0, 10))


def _line(name: str, text: str, lang: Language) -> RenderableType:
    label = f"{_in(_LABELS[name], lang)}{': ' if lang == 'en' else '：'}"
    return Padding(Text().append(label, "bold").append(text), (0, 0, 0, 2))


class _Command:
    """A command to copy: where it is too long for the screen, it goes on after a backslash, as a shell reads it."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\n".join(command_lines(self._command, options.max_width)), "cyan", overflow="fold")


def command_lines(command: str, width: int) -> list[str]:
    """A command in lines of at most this width, if its words allow it. A quoted word is never broken."""
    lines = ["$"]
    for word in _WORD.findall(command):
        longer = f"{lines[-1]} {word}"
        if len(longer) + len(" \\") <= width or lines[-1].strip() in {"", "$"}:
            lines[-1] = longer
        else:
            lines[-1] += " \\"
            lines.append(f"   {word}")
    return lines


def _in(words: Words, lang: Language) -> str:
    return words.zh if lang == "zh" else words.en
