"""`vgpuscope results`: the latest results of an analyzer."""

import asyncio
import os
from typing import TypeAlias, TypeVar
from urllib.parse import urlencode

from msgspec import Struct

from vgpuscope.commands.actions.access import TOKEN_SOURCE, token
from vgpuscope.commands.actions.language import language_of
from vgpuscope.commands.actions.result_rows import no_gpu, print_results
from vgpuscope.commands.arguments import Form
from vgpuscope.model.analysis import Target
from vgpuscope.model.errors import SourceDown
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.words import Language
from vgpuscope.sources.clients.analyzer import ANALYZER
from vgpuscope.sources.clients.served_api import ServedApi, ServiceKind
from vgpuscope.terminal.printing import print_line, repeated
from vgpuscope.terminal.screen import speak_plainly
from vgpuscope.views.fleet.results.results import ResultRow, RowKind
from vgpuscope.views.fleet.results.state import stale_line, targets_line
from vgpuscope.views.fleet.results.table import LowCounts, looked_at
from vgpuscope.views.fleet.results.words import word

T = TypeVar("T")

_TIMEOUT = 30.0  # seconds


class _Low(LowCounts):
    """The fields of /results/low that are used."""

    gpus: tuple[ResultRow, ...] = ()
    timestamp: str | None = None


class _Summary(Struct):
    """The fields of /api/v1/summary that are used if there are no rows."""

    timestamp: str | None
    source: str


class _State(Struct):
    """The fields of /api/v1/summary that are used beside the rows; an older analyzer does not send them."""

    stale_since: str | None = None
    stale_reason: str | None = None
    targets_up: int | None = None
    targets_down: int | None = None
    down_targets: tuple[Target, ...] = ()


_Answer: TypeAlias = tuple[list[ResultRow], str, _State]


def main(
    *,
    url: str,
    only_low: bool,
    kind: RowKind | None,
    namespace: str | None,
    form: Form,
    language: str | None,
    wide: bool,
    every: Seconds | None,
) -> int:
    """Print the last results of an analyzer."""
    speak_plainly()
    spoken = language_of(language, os.environ)

    async def ask() -> _Answer:
        """The rows, the remark below or instead of them, and the state of the analyzer."""
        rows, remark = await (_ask_low(url, kind, namespace, spoken) if only_low else _ask(url, namespace, spoken))
        return rows, remark, await _state(url)

    def show(answer: _Answer) -> None:
        rows, remark, state = answer
        print_results(rows, form, spoken, remark=remark, wide=wide)
        if form == "table":
            _print_state(state, spoken)

    repeated(lambda: asyncio.run(ask()), show, every=every)
    return 0


async def _state(url: str) -> _State:
    """The state of the analyzer; empty if it does not answer."""
    async with _api(ANALYZER._replace(path="/api/v1/summary"), url, _State) as api:
        try:
            return (await api.fetch())[0]
        except SourceDown:
            return _State()


async def _ask(url: str, namespace: str | None, language: Language) -> tuple[list[ResultRow], str]:
    """All rows, and why there are none."""
    query = f"?{urlencode({'namespace': namespace})}" if namespace else ""
    async with _api(ANALYZER._replace(path=ANALYZER.path + query), url, list[ResultRow]) as api:
        rows = (await api.fetch())[0]
    if rows:
        return rows, ""
    async with _api(ANALYZER._replace(path="/api/v1/summary"), url, _Summary) as about:
        found = (await about.fetch())[0]
    if namespace and found.timestamp is not None:
        return rows, word("no_tenant_of", language, namespace=namespace)
    return rows, no_gpu(found.source, found.timestamp, language)


async def _ask_low(
    url: str, kind: RowKind | None, namespace: str | None, language: Language
) -> tuple[list[ResultRow], str]:
    """The rows of /results/low, and how many GPUs were analysed."""
    query = urlencode({name: value for name, value in (("kind", kind), ("namespace", namespace)) if value})
    path = f"/results/low?{query}" if query else "/results/low"
    async with _api(ANALYZER._replace(path=path), url, _Low) as api:
        found = (await api.fetch())[0]
    if found.timestamp is None:
        return list(found.gpus), no_gpu("", None, language)
    return list(found.gpus), looked_at(found, language, kind=kind)


def _api(kind: ServiceKind, url: str, content: type[T]) -> ServedApi[T]:
    return ServedApi(kind, url, content=content, timeout=_TIMEOUT, token=token(), source=TOKEN_SOURCE)


def _print_state(state: _State, language: Language) -> None:
    if state.targets_down:
        up, named = state.targets_up or 0, state.down_targets
        print_line(targets_line(up=up, down=state.targets_down, named=named, language=language))
    if state.stale_since:
        print_line(stale_line(state.stale_since, state.stale_reason or "", language))
