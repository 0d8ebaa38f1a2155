"""`vgpuscope waste`: idle GPU-hours, from an analyzer that stores its results."""

import asyncio
from urllib.parse import quote

from vgpuscope.commands.actions.access import token
from vgpuscope.commands.arguments import Form
from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.model.waste import GroupBy, Waste, WasteRow
from vgpuscope.runtime.duration import long_seconds
from vgpuscope.sources.clients.analyzer import WASTE
from vgpuscope.sources.clients.served_api import ServedApi
from vgpuscope.terminal.printing import print_csv, print_drawn, print_json
from vgpuscope.terminal.screen import speak_plainly
from vgpuscope.views.fleet.selection import as_csv
from vgpuscope.views.fleet.waste_table import waste_table

_TIMEOUT = 120.0  # seconds; a year of a large fleet is slow to add up


def main(*, url: str, since: str, group_by: GroupBy, limit: int, form: Form) -> int:
    """Print the idle GPU-hours of each tenant or group, highest first."""
    speak_plainly()
    try:
        long_seconds(since)
    except ValueError as e:
        raise ConfigInvalid(f"--since {since!r}: {e}", hint="For example --since 24h or --since 7d.") from e
    found = asyncio.run(_ask(url, since=since, group_by=group_by))
    if form == "json":
        print_json(found)
    elif form == "csv":
        print_csv(as_csv(found.rows, WasteRow.__struct_fields__))
    else:
        print_drawn(lambda width: waste_table(found, width, limit=limit))
    return 0


async def _ask(url: str, *, since: str, group_by: GroupBy) -> Waste:
    kind = WASTE._replace(path=f"{WASTE.path}?since={quote(since)}&group_by={group_by}")
    async with ServedApi(kind, url, content=Waste, timeout=_TIMEOUT, token=token()) as api:
        return (await api.fetch())[0]
