"""The report on a terminal: the chain at a glance, then each finding with cause, fix and commands to copy."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from vgpuscope.model.doctor import AskedService, DoctorFinding, DoctorReport, DoctorStage, StageStatus, Status
from vgpuscope.model.service import AGENT_PORT, ANALYZER_PORT, CLUSTER_PORT
from vgpuscope.model.words import Language, Words
from vgpuscope.views.doctor.words import (
    FOUND_BY,
    SERVICE_NAMES,
    SERVICE_STATES,
    SETTINGS_OF_ANALYZER,
    STAGE_NAMES,
    STATUS_NAMES,
)
from vgpuscope.views.pairs import Sentence
from vgpuscope.views.text import clean, fit

_MARKS: dict[StageStatus, str] = {"pass": "✓", "warn": "!", "fail": "✗", "partial": "~", "skipped": "–"}
_STYLES: dict[StageStatus, str] = {
    "pass": "green",
    "warn": "yellow",
    "fail": "bold red",
    "partial": "cyan",
    "skipped": "dim",
}
_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|['"])+""", re.DOTALL)  # of a shell
_STAGE_WIDTH = 16
_STATUS_WIDTH = 8
_LONGEST_NAME = 34

_LABELS = {
    "check": Words("Check", "检查"),
    "cause": Words("Cause", "原因"),
    "found": Words("Found", "发现"),
    "fix": Words("Fix", "处理"),
    "more": Words("More", "详见"),
}
_OMITTED = Words("and {n} more", "另有 {n} 项")
_PLACES = {
    "node": Words("on this node", "在本节点上"),
    "outside": Words("from outside", "从外部"),
    "analyzer": Words("by the analyzer", "由分析器"),
}
_HEAD = Words(
    "vgpuscope doctor, {place}: {checks} checks in {seconds} s",
    "vgpuscope 诊断，{place}：{checks} 项检查，用时 {seconds} 秒",
)
_COUNTED: dict[Status, Words] = {
    "fail": Words("{n} failed", "失败 {n} 项"),
    "warn": Words("{n} with a warning", "警告 {n} 项"),
    "pass": Words("{n} passed", "通过 {n} 项"),
    "skipped": Words("{n} not checked", "未检查 {n} 项"),
}
_PARTIAL = Words("partly checked: {made} of {all}", "部分检查：{all} 项中的 {made} 项")
_REASON = Words("{why} ({n})", "{why}（{n} 项）")
_MORE_REASONS = Words("Other reasons ({n})", "其他原因（{n} 项）")
_ASKED = Words("Services", "服务")
_MORE_OF = Words("{n} more of them answered", "另有 {n} 个有应答")
_STATE = Words("{state} ({by})", "{state}（{by}）")
_NOTHING = Words(
    "Nothing to look at: this machine has no GPU, no service answers at its default address, no demo of this user "
    "runs, and no service was found through the Kubernetes API. Name your services:",
    "没有可检查的对象：本机没有 GPU，默认地址上没有服务应答，没有正在运行的演示，也没有通过 Kubernetes API 找到服务。"
    "请指定服务的地址：",
)
_NAME_THEM = (
    f"vgpuscope doctor --analyzer http://ANALYZER:{ANALYZER_PORT}",
    f"vgpuscope doctor --agent NODE:{AGENT_PORT} --cluster CLUSTER:{CLUSTER_PORT} --prometheus http://PROMETHEUS:9090",
    "vgpuscope doctor --kubeconfig FILE",
)
_MOST_ROWS = 8  # services of one kind that answered; those that did not are all shown
_REASONS = 2  # of a stage
_SUM = Words(
    "{fail} failed, {warn} with a warning, {pass} passed, {skipped} not checked.",
    "失败 {fail} 项，警告 {warn} 项，通过 {pass} 项，未检查 {skipped} 项。",
)
_SKIPPED_HINT = Words(
    "`vgpuscope doctor --all` also lists what passed and what was not checked, with the reason.",
    "`vgpuscope doctor --all` 还会列出通过和未检查的项目及其原因。",
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
    yield from _services(report.services, lang, everything=everything)
    if report.status == "skipped":
        yield Text()
        yield Text(_in(_NOTHING, lang), "bold")
        for command in _NAME_THEM:
            yield Padding(_Command(command), (0, 0, 0, 2))
        if not everything:
            return
    yield Text()
    for stage in report.stages:
        yield from _stage(stage, lang)
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
    yield Sentence(_in(_SUM, lang).format(**{str(name): number for name, number in report.counts.items()}))
    if not everything and report.counts["skipped"]:
        yield Sentence(_in(_SKIPPED_HINT, lang), "dim")


def _services(rows: Sequence[AskedService], lang: Language, *, everything: bool) -> Iterator[RenderableType]:
    """What was asked. Of many services of one kind that answered, some are shown."""
    if not rows:
        return
    yield Text(_in(_ASKED, lang), "bold")
    names = {row: " ".join(filter(None, (_in(SERVICE_NAMES[row.service], lang), clean(row.name)))) for row in rows}
    width = min(_LONGEST_NAME, max(cell_len(name) for name in names.values())) + 2
    for service, group in groupby(rows, key=lambda row: row.service):
        found = list(group)
        good = [row for row in found if row.state == "answered"]
        few = everything or len(good) <= _MOST_ROWS
        shown = found if few else [*good[:_MOST_ROWS], *(row for row in found if row not in good)]
        for row in shown:
            yield _Hanging(_service(row, names[row], width, lang), 2 + width)
        if more := len(found) - len(shown):
            name = _in(SERVICE_NAMES[service], lang)
            yield Text(f"  {name}: {_in(_MORE_OF, lang).format(n=more)}", "dim")


def _service(row: AskedService, name: str, width: int, lang: Language) -> Text:
    status: Status = "pass" if row.state == "answered" else "skipped" if row.state in _QUIET else "fail"
    state = _in(SERVICE_STATES[row.state], lang)
    if row.found_by != "none":
        by = SETTINGS_OF_ANALYZER if row.by_analyzer and row.found_by == "settings" else FOUND_BY[row.found_by]
        state = _in(_STATE, lang).format(state=state, by=_in(by, lang))
    line = Text().append(f"{_MARKS[status]} ", _STYLES[status]).append(fit(name, width))
    return line.append(f"{clean(row.url)}  " if row.url else "").append(state, "dim")


_QUIET = frozenset({"not-configured", "not-asked"})


class _Hanging:
    """A line whose continuation is indented."""

    def __init__(self, line: Text, indent: int) -> None:
        self._line, self._indent = line, indent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        head = self._line[: self._indent]
        lines = self._line.wrap(console, options.max_width)
        yield lines[0]
        rest = self._line[len(lines[0].plain) :]
        rest.plain = rest.plain.lstrip()
        if rest.plain and len(head):
            yield Padding(rest, (0, 0, 0, self._indent))


def _stage(stage: DoctorStage, lang: Language) -> Iterator[RenderableType]:
    line = Text()
    line.append(f"{_MARKS[stage.status]} ", _STYLES[stage.status])
    line.append(fit(_in(stage.name, lang), _STAGE_WIDTH))
    counts = [_in(words, lang).format(n=n) for status, words in _COUNTED.items() if (n := stage.counts.get(status, 0))]
    if stage.status == "partial":
        all_checks = sum(stage.counts.values())
        made = all_checks - stage.counts["skipped"]
        counts = [_in(_PARTIAL, lang).format(made=made, all=all_checks)]
    yield line.append(("，" if lang == "zh" else ", ").join(counts), "dim")
    if stage.status not in {"partial", "skipped"}:
        return
    for one in stage.not_checked[:_REASONS]:
        why = _in(_REASON, lang).format(why=_in(one.why, lang).rstrip(".。"), n=one.checks)
        yield Padding(Sentence(why, "dim"), (0, 0, 0, 2 + _STAGE_WIDTH))
    if more := sum(one.checks for one in stage.not_checked[_REASONS:]):
        yield Padding(Text(_in(_MORE_REASONS, lang).format(n=more), "dim"), (0, 0, 0, 2 + _STAGE_WIDTH))


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
    if finding.examples and (omitted := finding.numbers.get("omitted")):
        yield Padding(Text(_in(_OMITTED, lang).format(n=omitted), "dim"), (0, 0, 0, 2))
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
        yield Padding(Sentence(shown, "dim"), (0, 0, 0, 10))


def _line(name: str, text: str, lang: Language) -> RenderableType:
    label = f"{_in(_LABELS[name], lang)}{': ' if lang == 'en' else '：'}"
    return Padding(Sentence(Text().append(label, "bold").append(text)), (0, 0, 0, 2))


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
