"""Arguments that several commands have."""

import argparse
from typing import Literal

from vgpuscope.model.service import default_url, with_article

Form = Literal["table", "json", "csv"]


def add_url(parser: argparse.ArgumentParser, *, of: str, port: int) -> None:
    """Add the address of the service to query, as a positional argument."""
    parser.add_argument(
        "url",
        metavar="URL",
        nargs="?",
        default=default_url(port),
        help=f"Address of {with_article(of)}. [default: %(default)s]",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """--json."""
    parser.add_argument("--json", action="store_true", help="Print JSON.")


def add_forms(parser: argparse.ArgumentParser) -> None:
    """--json and --csv, of which one can be given."""
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="Print JSON.")
    forms.add_argument("--csv", action="store_true", help="Print CSV.")


def form(args: argparse.Namespace) -> Form:
    """The requested output format."""
    return "json" if args.json else "csv" if args.csv else "table"


def add_language(parser: argparse.ArgumentParser) -> None:
    """--lang."""
    parser.add_argument("--lang", choices=("en", "zh"), help="Language. [default: that of LANG]")
