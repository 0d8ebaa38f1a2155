"""`vgpuscope reclaim`: cases and audit log of an analyzer, and what an operator does with them."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from typing import Literal
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from vgpuscope.commands.actions.access import TOKEN_SOURCE, token
from vgpuscope.commands.actions.language import language_of
from vgpuscope.commands.arguments import Form
from vgpuscope.model.audit import AuditEntry, AuditPage
from vgpuscope.model.errors import ConfigInvalid, Unknown
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.words import Language
from vgpuscope.runtime.duration import long_seconds
from vgpuscope.sources.clients.analyzer import RECLAIM
from vgpuscope.sources.clients.served_api import ServedApi
from vgpuscope.terminal.printing import print_csv, print_drawn, print_json, print_line, repeated
from vgpuscope.terminal.screen import speak_plainly
from vgpuscope.views.fleet.selection import as_csv
from vgpuscope.views.reclaim.api import CaseRow, PolicyBody, ReclaimList
from vgpuscope.views.reclaim.tables import audit_table, case_line, cases_table
from vgpuscope.views.reclaim.words import word

_TIMEOUT = 30.0
_MOST = 10_000  # cases that the API sends at once
_PAGE = 1000  # entries of the audit log
_FEWEST = 6  # characters of an id that name a case

Verb = Literal["list", "approve", "snooze", "exempt", "resume", "restore", "stop", "start", "audit"]


class ReclaimArguments(Struct, frozen=True, kw_only=True):
    """What the command line says."""

    verb: Verb
    url: str
    language: str | None = None
    case: str | None = None
    rest: str = ""
    state: str | None = None
    namespace: str | None = None
    limit: int = 50
    form: Form = "table"
    export: Literal["jsonl", "csv"] | None = None
    wide: bool = False
    every: Seconds | None = None


def main(asked: ReclaimArguments) -> int:
    speak_plainly()
    language = language_of(asked.language, os.environ)
    if asked.verb == "list":
        _check_limit(asked)
        repeated(lambda: asyncio.run(_listed(asked)), lambda found: _show(found, asked, language), every=asked.every)
        return 0
    return asyncio.run(_main(asked, language))


def _check_limit(asked: ReclaimArguments) -> None:
    if asked.limit < 0:
        raise ConfigInvalid(f"--limit: {asked.limit} is negative", hint="For example --limit 20.")


async def _main(asked: ReclaimArguments, language: Language) -> int:
    _check_limit(asked)
    seconds = _rest(asked.rest) if asked.verb == "snooze" else 0.0
    async with _api(asked.url) as api:
        match asked.verb:
            case "audit":
                await _audit(api, asked, language)
            case "stop" | "start":
                await _switch(api, asked.verb, language)
            case _:
                await _change(api, asked, language, seconds)
    return 0


async def _listed(asked: ReclaimArguments) -> ReclaimList:
    async with _api(asked.url) as api:
        return await _cases(api, state=asked.state, namespace=asked.namespace)


def _api(url: str) -> ServedApi[ReclaimList]:
    return ServedApi(RECLAIM, url, content=ReclaimList, timeout=_TIMEOUT, token=token(), source=TOKEN_SOURCE)


def _show(found: ReclaimList, asked: ReclaimArguments, language: Language) -> None:
    if asked.form == "json":
        print_json(found)
    elif asked.form == "csv":
        print_csv(as_csv(found.cases, CaseRow.__struct_fields__))
    else:
        now = time.time()
        print_drawn(lambda width: cases_table(found, width, language, now=now, limit=asked.limit), wide=asked.wide)


async def _cases(api: ServedApi[ReclaimList], **chosen: str | None) -> ReclaimList:
    given = {key: value for key, value in chosen.items() if value is not None}
    return await api.ask("GET", f"{RECLAIM.path}?{urlencode({**given, 'limit': _MOST})}", ReclaimList)


async def _change(api: ServedApi[ReclaimList], asked: ReclaimArguments, language: Language, seconds: float) -> None:
    case = await _named(api, asked.case or "")
    query = f"?seconds={seconds:g}" if asked.verb == "snooze" else ""
    path = f"{RECLAIM.path}/{quote(case, safe='')}/{asked.verb}{query}"
    print_line(case_line(await api.ask("POST", path, CaseRow), language))


async def _named(api: ServedApi[ReclaimList], name: str) -> str:
    """The id of the case that is named by its pod or by the begin of its id; Unknown if there is none or several."""
    cases = (await _cases(api)).cases
    found = [case for case in cases if name in {case.id, f"{case.namespace}/{case.pod}"}]
    if not found and len(name) >= _FEWEST:
        found = [case for case in cases if case.id.startswith(name)]
    if len(found) == 1:
        return found[0].id
    if not found:
        raise Unknown(f"no case {name!r}", hint="`vgpuscope reclaim` lists all cases. Name one as NAMESPACE/POD.")
    ids = ", ".join(case.id for case in found[:5])
    raise Unknown(f"{name!r} names {len(found)} cases", hint=f"Give more of the UID: {ids}.")


async def _switch(api: ServedApi[ReclaimList], verb: Literal["stop", "start"], language: Language) -> None:
    found = await api.ask("POST", f"{RECLAIM.path}/{verb}", PolicyBody)
    stopped = found.stopped_by
    print_line(word("stopped", language, who=stopped) if stopped else word(found.mode, language))


async def _audit(api: ServedApi[ReclaimList], asked: ReclaimArguments, language: Language) -> None:
    case = await _audited(api, asked.case) if asked.case else None
    if asked.export is None:
        entries = [one async for one in _entries(api, case, most=asked.limit)]
        print_drawn(lambda width: audit_table(entries, width, language), wide=asked.wide)
        return
    if asked.export == "csv":
        print_csv(as_csv((), AuditEntry.__struct_fields__))
    async for entry in _entries(api, case):
        if asked.export == "csv":
            print_csv(as_csv((entry,), AuditEntry.__struct_fields__).partition(b"\r\n")[2])
        else:
            sys.stdout.buffer.write(msgspec.json.encode(entry) + b"\n")
    sys.stdout.buffer.flush()


async def _audited(api: ServedApi[ReclaimList], name: str) -> str:
    """The log outlives the cases: what names no case any more is taken as a whole UID."""
    try:
        return await _named(api, name)
    except Unknown:
        if "/" in name:
            raise
        return name


async def _entries(
    api: ServedApi[ReclaimList], case: str | None, *, most: int | None = None
) -> AsyncIterator[AuditEntry]:
    """The entries, newest first, page by page: the memory that is needed does not grow with the log."""
    before, left = 0, most
    while left is None or left > 0:
        limit = _PAGE if left is None else min(_PAGE, left)
        query = {"limit": limit, "before": before, **({"id": case} if case else {})}
        page = await api.ask("GET", f"/api/v1/audit?{urlencode(query)}", AuditPage)
        for entry in page.entries:
            yield entry
        if page.next_before is None:
            return
        before, left = page.next_before, None if left is None else left - len(page.entries)


def _rest(text: str) -> float:
    try:
        return long_seconds(text)
    except ValueError as e:
        raise ConfigInvalid(f"--for {text!r}: {e}", hint="For example --for 24h or --for 7d.") from e
