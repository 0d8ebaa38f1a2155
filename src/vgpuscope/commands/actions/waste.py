"""`vgpuscope waste`: idle GPU-hours, from an analyzer that stores its results."""

import asyncio
import os
from urllib.parse import urlencode

from vgpuscope.commands.actions.access import TOKEN_SOURCE, token
from vgpuscope.commands.actions.language import language_of
from vgpuscope.commands.arguments import Form
from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.waste import GroupBy, Waste, WasteRow
from vgpuscope.runtime.duration import long_seconds
from vgpuscope.sources.clients.analyzer import WASTE
from vgpuscope.sources.clients.served_api import ServedApi
from vgpuscope.terminal.printing import print_csv, print_drawn, print_json, repeated
from vgpuscope.terminal.screen import speak_plainly
from vgpuscope.views.fleet.selection import as_csv
from vgpuscope.views.fleet.waste_table import waste_table

_TIMEOUT = 120.0  # seconds; a year of a large fleet is slow to add up


def main(
    *,
    url: str,
    since: str,
    group_by: GroupBy,
    namespace: str | None,
    limit: int,
    form: Form,
    language: str | None,
    wide: bool,
    every: Seconds | None,
) -> int:
    """Print the idle GPU-hours of each tenant or group, highest first."""
    speak_plainly()
    try:
        long_seconds(since)
    except ValueError as e:
        raise ConfigInvalid(f"--since {since!r}: {e}", hint="For example --since 24h or --since 7d.") from e
    spoken = language_of(language, os.environ)

    def show(found: Waste) -> None:
        if form == "json":
            print_json(found)
        elif form == "csv":
            print_csv(as_csv(found.rows, WasteRow.__struct_fields__))
        else:
            print_drawn(lambda width: waste_table(found, width, spoken, limit=limit, namespace=namespace), wide=wide)

    repeated(lambda: asyncio.run(_ask(url, since=since, group_by=group_by, namespace=namespace)), show, every=every)
    return 0


async def _ask(url: str, *, since: str, group_by: GroupBy, namespace: str | None) -> Waste:
    of = {"namespace": namespace} if namespace else {}
    kind = WASTE._replace(path=f"{WASTE.path}?{urlencode({'since': since, 'group_by': group_by, **of})}")
    async with ServedApi(kind, url, content=Waste, timeout=_TIMEOUT, token=token(), source=TOKEN_SOURCE) as api:
        return (await api.fetch())[0]
