"""Switches that several commands have: the same word for the same thing everywhere."""

import argparse
from typing import Literal

from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.service import default_url, with_article

Form = Literal["table", "json", "csv"]

_WATCH_EVERY: Seconds = 5.0
_SHORTEST, _LONGEST = 1.0, 3600.0  # seconds of --watch


def add_url(parser: argparse.ArgumentParser, *, of: str, port: int, positional: bool = True) -> None:
    """--url, the address of the service to query; most commands also take it as a positional argument."""
    parser.add_argument("--url", metavar="URL", help=f"Address of {with_article(of)}. [default: {default_url(port)}]")
    if positional:
        parser.add_argument("address", metavar="URL", nargs="?", help="The same as --url URL.")


def url(args: argparse.Namespace, *, port: int) -> str:
    """The address of the service to query."""
    address: str | None = getattr(args, "address", None)
    if args.url and address:
        raise ConfigInvalid(f"two addresses: --url {args.url} and {address}", hint="Give one of them.")
    return args.url or address or default_url(port)


def add_namespace(parser: argparse.ArgumentParser, text: str) -> None:
    """--namespace and -n."""
    parser.add_argument("--namespace", "-n", metavar="NAME", help=text)


def add_json(parser: argparse.ArgumentParser) -> None:
    """--json."""
    parser.add_argument("--json", action="store_true", help="Print JSON.")


def add_forms(parser: argparse.ArgumentParser, *, watch: bool = False) -> None:
    """--json and --csv, and for what can be watched --watch; one of them can be given."""
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="Print JSON.")
    forms.add_argument("--csv", action="store_true", help="Print CSV.")
    if watch:
        forms.add_argument(
            "--watch",
            metavar="SECONDS",
            nargs="?",
            type=_between,
            const=_WATCH_EVERY,
            help=f"Print the table again and again until Ctrl-C, by default every {_WATCH_EVERY:g} seconds.",
        )


def form(args: argparse.Namespace) -> Form:
    """The requested output format."""
    return "json" if args.json else "csv" if args.csv else "table"


def add_language(parser: argparse.ArgumentParser) -> None:
    """--lang."""
    parser.add_argument("--lang", choices=("en", "zh"), help="Language. [default: that of LANG]")


def add_wide(parser: argparse.ArgumentParser) -> None:
    """--wide."""
    parser.add_argument(
        "--wide", action="store_true", help="Show all columns and whole names, however narrow the terminal is."
    )


def _between(text: str) -> Seconds:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not _SHORTEST <= value <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not from {_SHORTEST:g} to {_LONGEST:g} seconds")
    return value
