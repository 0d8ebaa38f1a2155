"""`vgpuscope config`."""

import argparse
import sys
from typing import TYPE_CHECKING

from vgpuscope.commands.command import Command, epilog

if TYPE_CHECKING:
    from vgpuscope.config import Loaded

_PRINT = "print every setting and where its value came from"
_LINE = 80  # columns; a longer value makes its own line longer, and no other
_EXAMPLES = (
    ("vgpuscope config print", "the settings in effect here"),
    ("vgpuscope config print --config prod.yaml --json", "those of a file, as JSON"),
)


def _arguments(parser: argparse.ArgumentParser) -> None:
    from vgpuscope.commands.setting_flags import add_setting_flags

    actions = parser.add_subparsers(title="commands", metavar="COMMAND")
    show = actions.add_parser(
        "print",
        help=_PRINT,
        description="Print the settings in effect, and where each value came from. Secrets are hidden.",
        epilog=epilog(_EXAMPLES, "The agent's flags are accepted, to show their effect."),
    )
    add_setting_flags(show, sections=("agent", "log"))
    show.add_argument("--json", action="store_true", help="Print JSON.")
    show.set_defaults(command=_print)


def _run(args: argparse.Namespace) -> int:
    args.parser.print_help()
    return 0


def _print(args: argparse.Namespace) -> int:
    from vgpuscope.commands.setting_flags import loaded

    found = loaded(args)
    for row, said in found.deprecated:
        print(f"vgpuscope: {row.name} ({said}): {row.note}", file=sys.stderr)
    print(_as_json(found) if args.json else _as_table(found))
    return 0


def _as_table(loaded: "Loaded") -> str:
    from vgpuscope.config import SETTINGS

    rows = [(s.path, s.shown(loaded.value(s.path)), loaded.origins[s.path]) for s in SETTINGS]
    rows.insert(0, ("SETTING", "VALUE", "FROM"))
    longest = _LINE - 4 - sum(max(len(row[i]) for row in rows) for i in (0, 2))
    widths = [
        max((len(row[i]) for row in rows if len(row[i]) <= most), default=0) for i, most in ((0, _LINE), (1, longest))
    ]
    return "\n".join(f"{path:<{widths[0]}}  {value:<{widths[1]}}  {origin}" for path, value, origin in rows)


def _as_json(loaded: "Loaded") -> str:
    import json

    from msgspec import to_builtins

    from vgpuscope.config import SETTINGS

    content = {
        s.path: {
            "value": s.shown(loaded.value(s.path)) if s.secret else to_builtins(loaded.value(s.path)),
            "from": loaded.origins[s.path],
        }
        for s in SETTINGS
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


COMMAND = Command(
    name="config",
    synopsis="config print",
    help=_PRINT,
    description="Show the settings and where their values came from.",
    examples=_EXAMPLES,
    arguments=_arguments,
    run=_run,
)
