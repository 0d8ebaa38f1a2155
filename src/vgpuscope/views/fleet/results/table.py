"""Results as a table for the terminal: a line for each GPU, node first, and below it one for each tenant.

Colour repeats what the words say. On a terminal where whole UUIDs have no room, so much of each is shown that no two
are alike.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from rich.console import Group
from rich.text import Text

from vgpuscope.model.analysis import UseClass, Verdict
from vgpuscope.model.quantity import MIB
from vgpuscope.model.words import Language
from vgpuscope.views.fleet.results.results import ResultRow, RowKind, TenantResult
from vgpuscope.views.fleet.results.words import CLASSES, STATUSES, VERDICTS, amount, word
from vgpuscope.views.languages import lasting, one_of
from vgpuscope.views.table import TableColumn, fits, table
from vgpuscope.views.text import UNKNOWN, clean, sizes

_COLOURS = {"in_use": "green", "idle": "yellow", "unknown": "magenta"}
_MARKED = {"idle-held": "red", "idle-preparing": "yellow", "busy-unproductive": "red", "stalled": "red"}
_COLUMNS = (  # how much each GPU and tenant is used, and its status, are what the command is for
    TableColumn(("NODE  GPU", "节点  GPU"), form="name", least=28),
    TableColumn(("SCORE", "评分"), right=True),
    TableColumn(("UTIL", "利用率"), right=True),
    TableColumn(("MEMORY", "显存"), right=True, hide=6),
    TableColumn(("STATUS", "状态")),
    TableColumn(("VERDICT", "判定")),
    TableColumn(("CLASS", "类别"), hide=4),
    TableColumn(("IDLE", "已空闲"), right=True, hide=5),
    TableColumn(("SEEN", "覆盖率"), right=True, hide=2),
    TableColumn(("MODEL", "型号"), hide=1),
    TableColumn(("OWNER", "所有者"), hide=3),
)
_CELLS = len(_COLUMNS) - 1  # behind the name
_SHORT = 12  # characters of a UUID that are shown at least: GPU-1234abcd
_NOTHING = Text()


def results_table(rows: Sequence[ResultRow], width: int | None, language: Language = "en", *, below: str = "") -> Group:
    """The rows in the given order, with sums or the given text below.

    `rows` may also hold rows of tenants, as /results/low has them.
    """
    whole = {row.mig if row.mig.startswith("MIG-") else row.gpu_id for row in rows}
    blocks = _blocks(rows)
    for names in ({name: name for name in whole}, short_names(whole)):
        lines = [line for block in blocks for line in _lines(block, names, language)]
        if width is None or fits(_COLUMNS, lines, width, language):
            break
    return Group(table(_COLUMNS, lines, width, language), Text(), *([Text(below)] if below else _sums(rows, language)))


class LowCounts(Struct):
    """The counts beside a list of low GPUs and tenants."""

    count: int  # rows
    threshold: float
    total_gpus: int  # GPUs and MIG instances
    unknown_count: int
    tenants_total: int
    tenants_unknown: int
    mig_instances: int = 0
    gpu_rows: int = 0  # an older analyzer does not send the kinds of its rows
    tenant_rows: int = 0


def looked_at(counts: LowCounts, language: Language = "en", *, kind: RowKind | None = None) -> str:
    """The lines below a list of low GPUs and tenants: how many are listed, and how many were analysed."""
    low = _rows_word(counts)
    listed = [(counts.gpu_rows, low), (counts.tenant_rows, "tenant")]
    parts = [amount(number, name, language) for number, name in listed if number]
    limit = f"{counts.threshold:g}"
    if len(parts) == 1:
        found = word("is_low" if counts.count == 1 else "are_low", language, what=parts[0], limit=limit)
    elif parts:
        found = word("are_low_parts", language, n=counts.count, limit=limit, parts=word("comma", language).join(parts))
    elif counts.count:  # an older analyzer does not say of which kind
        found = word("are_low_some", language, n=counts.count, limit=limit)
    else:
        found = word(f"no_low_{'tenant' if kind == 'tenant' else low}", language, limit=limit)
    analysed = word(
        "analysed_tenants" if counts.tenants_total else "analysed",
        language,
        gpus=amount(counts.total_gpus, low, language),
        unknown=counts.unknown_count,
        tenants=amount(counts.tenants_total, "tenant", language),
        tenants_unknown=counts.tenants_unknown,
    )
    return f"{found} {analysed}" if language == "en" else found + analysed


def _rows_word(counts: LowCounts) -> str:
    return "rows" if counts.mig_instances else "gpu"


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Names cut to one length at which no two are alike, with a mark where something was cut."""
    known = list(names)
    length = _SHORT
    while len({_cut(name, length) for name in known}) < len(known):
        length += 1
    return {name: _cut(name, length) for name in known}


def _cut(name: str, length: int) -> str:
    return name if len(name) <= length + 1 else f"{name[:length]}…"


# ── the text of a line ──────────────────────────────────────────────────────────────────────────────────────────


class _Block(Struct):
    """One GPU and the tenants of it that are shown."""

    row: ResultRow
    single: bool  # only rows of tenants: the GPU's own numbers are not known here
    tenants: list[tuple[ResultRow, TenantResult]]


def _blocks(rows: Sequence[ResultRow]) -> list[_Block]:
    """One block for each GPU, at its first appearance."""
    blocks: dict[tuple[str, str], _Block] = {}
    gpus = {(row.gpu_id, row.mig): row for row in rows if row.kind == "gpu"}
    for row in rows:
        key = row.gpu_id, row.mig
        block = blocks.setdefault(key, _Block(row=gpus.get(key, row), single=key not in gpus, tenants=[]))
        if row.kind == "tenant":
            block.tenants += [(row, one) for one in row.tenants]
    for block in blocks.values():
        if not block.tenants:
            block.tenants = [(block.row, one) for one in block.row.tenants]
    return list(blocks.values())


def _lines(block: _Block, names: Mapping[str, str], language: Language) -> Iterator[list[Text]]:
    nothing = (_NOTHING,) * _CELLS
    yield [_gpu_name(block.row, names), *(nothing if block.single else _gpu_cells(block.row, language))]
    for remark in _remarks(block.row, language):
        yield [Text(f"  {remark}", "magenta"), *nothing]
    pods = Counter((one.namespace, one.pod) for _, one in block.tenants)
    for row, one in block.tenants:
        container = f"/{one.container}" if pods[one.namespace, one.pod] > 1 and one.container else ""
        name = Text(clean(f"  {one.namespace}/{one.pod}{container}"))
        own = row.shared or row.kind == "tenant" or one.verdict != row.verdict
        yield [name, *(_tenant_cells(row, one, language) if own else _named(one))]


def _gpu_name(row: ResultRow, names: Mapping[str, str]) -> Text:
    """`names` has the shown form of each UUID."""
    own = row.mig.startswith("MIG-")
    instance = f"/{row.mig}" if row.mig and not own else ""
    unit = names[row.mig if own else row.gpu_id] + instance
    parts = [part for part in (row.gpu_index, unit, row.mig_profile) if part]
    return Text(clean(row.hostname), "bold").append(f"  {clean(' '.join(parts))}", "not bold")


def _remarks(row: ResultRow, language: Language) -> Iterable[str]:
    if row.health not in {"", "ok"}:
        yield word("health", language, state=clean(row.health))
    if row.xids:
        yield f"XID {', '.join(map(str, row.xids))}"
    if row.last_seen:
        yield word("unseen", language, time=_age(row.last_seen, row.timestamp, language))


def _gpu_cells(row: ResultRow, language: Language) -> tuple[Text, ...]:
    return *_measured(row, row.mem_total_mb, row.timestamp, language), Text(clean(row.model_name), "dim"), _NOTHING


def _tenant_cells(row: ResultRow, one: TenantResult, language: Language) -> tuple[Text, ...]:
    return *_measured(one, one.memory_limit_mb, row.timestamp, language), _NOTHING, Text(clean(one.owner))


def _measured(one: ResultRow | TenantResult, memory: float | None, at: str, language: Language) -> tuple[Text, ...]:
    """The cells that a GPU and a tenant have in common; `memory` is the total."""
    return (
        _number(one.score),
        _percent(one.gpu_util),
        _memory(one.mem_used_mb, memory),
        Text(one_of(STATUSES[one.status], language)),
        Text(one_of(VERDICTS[one.verdict], language), _COLOURS[one.verdict]),
        Text(one_of(CLASSES[one.use_class], language), _MARKED.get(one.use_class, "")),
        _idle(one.idle_since, at, language),
        _percent(None if one.coverage is None else 100 * one.coverage),
    )


def _named(one: TenantResult) -> tuple[Text, ...]:
    """A tenant that has the GPU alone: the numbers of the GPU's line are its own."""
    memory = _memory(one.mem_used_mb, one.memory_limit_mb) if one.own_numbers else _NOTHING
    shown = {"MEMORY": memory, "OWNER": Text(clean(one.owner))}
    return tuple(shown.get(column.title[0], _NOTHING) for column in _COLUMNS[1:])


def _number(value: float | None) -> Text:
    return Text(UNKNOWN, "dim") if value is None else Text(f"{value:g}")


def _percent(value: float | None) -> Text:
    return Text(UNKNOWN, "dim") if value is None else Text(f"{value:.0f}%")


def _memory(used: float | None, total: float | None) -> Text:
    if used is None:
        return Text(UNKNOWN, "dim")
    return Text(sizes(round(used * MIB), None if total is None else round(total * MIB)))


def _idle(since: str | None, now: str, language: Language) -> Text:
    return _NOTHING if since is None else Text(_age(since, now, language))


def _age(since: str, now: str, language: Language) -> str:
    return lasting((datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds(), language)


# ── below the table ─────────────────────────────────────────────────────────────────────────────────────────────


# A tenant that prepares data may hold memory too, so that both classes are named.
_IDLE_CLASSES: tuple[tuple[UseClass, str, str], ...] = (
    ("idle-held", "holds", "hold"),
    ("idle-preparing", "prepares", "prepare"),
)


def _sums(rows: Sequence[ResultRow], language: Language) -> Iterable[Text]:
    tenants = [one for row in rows for one in row.tenants]
    gpus = amount(len({row.gpu_id for row in rows}), "gpu", language)
    nodes = amount(len({row.hostname for row in rows}), "node", language)
    verdicts, divided = _verdicts([row.verdict for row in rows], language), {row.gpu_id for row in rows if row.mig}
    what = word("on_nodes", language, gpus=gpus, nodes=nodes)
    if divided:
        instances = amount(sum(row.mig != "" for row in rows), "instance", language)
        yield Text(word("divided", language, gpus=gpus, nodes=nodes, n=len(divided), instances=instances))
        what = amount(len(rows), "rows", language)
    yield Text(word("counted", language, what=what, verdicts=verdicts))
    if tenants:
        classes = Counter(one.use_class for one in tenants)
        remarks = word("comma", language).join(
            word(one if classes[use_class] == 1 else many, language, n=classes[use_class])
            for use_class, one, many in _IDLE_CLASSES
            if classes[use_class]
        )
        remark = word("remark", language, remarks=remarks) if remarks else ""
        verdicts = _verdicts([one.verdict for one in tenants], language, remark)
        yield Text(word("counted", language, what=amount(len(tenants), "tenant", language), verdicts=verdicts))


def _verdicts(found: Sequence[Verdict], language: Language, remark: str = "") -> str:
    counts = {name: found.count(name) for name in VERDICTS}
    return word("verdicts", language, remark=remark, **counts)
