"""What a command is, and the parser that reads its words."""

import argparse
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.model.wording import instead, nearest, sentences

EXITS: Mapping[int, str] = {
    0: "success",
    1: "the command failed",
    2: "wrong arguments or settings",
    130: "interrupted by Ctrl-C",
}

WATCH_EXITS: Mapping[int, str] = {**EXITS, 0: "success, or --watch ended by Ctrl-C"}

SERVICE_EXITS: Mapping[int, str] = {
    0: "ended by Ctrl-C or SIGTERM",
    1: "failed",
    2: EXITS[2],
}


class Command(NamedTuple):
    """One command: its help, its arguments and its action.

    `arguments` and `run` import what they need, so that `vgpuscope --help` and other commands start fast.
    """

    name: str
    synopsis: str  # top [URL]
    help: str  # one line, in the list of commands
    description: str
    examples: tuple[tuple[str, str], ...]  # a command line, and what it does
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    note: str = ""
    exits: Mapping[int, str] = EXITS

    def add_to(self, commands: Any) -> argparse.ArgumentParser:
        """The parser of this command, without its arguments, among those of the others."""
        parser: argparse.ArgumentParser = commands.add_parser(
            self.name, help=self.help, description=self.description, epilog=epilog(self.examples, self.note, self.exits)
        )
        parser.set_defaults(command=self.run)
        return parser


def epilog(examples: tuple[tuple[str, str], ...], note: str = "", exits: Mapping[int, str] = EXITS) -> str:
    """The end of a help text: examples, a note, and the exit codes."""
    shown = "\n".join(f"  # {meaning}\n  {line}" for line, meaning in examples)
    codes = "\n".join(f"  {code:<4} {meaning}" for code, meaning in exits.items())
    return "\n\n".join(filter(None, (f"examples:\n{shown}", note, f"exit codes:\n{codes}")))


class Parser(argparse.ArgumentParser):
    """Raises ConfigInvalid for a bad argument, so that it is printed like every other error."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_Formatter, **kwargs)
        self.set_defaults(parser=self)  # of the command that was chosen

    def error(self, message: str) -> NoReturn:
        raise ConfigInvalid(message, hint=self._look)

    def unknown_argument(self, word: str) -> ConfigInvalid:
        """The error for an argument that this command does not have."""
        name = word.partition("=")[0]
        near = nearest(name, self._option_string_actions) if name.startswith("-") else ""
        return ConfigInvalid(f"unknown argument {name[:80]!r}", hint=sentences(near, self._look))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what = "command" if action.metavar == "COMMAND" else "value"
            raise ConfigInvalid(
                f"unknown {what} {str(value)[:80]!r}", hint=instead(value, action.choices, look=self._look)
            )

    @property
    def _look(self) -> str:
        return f"`{self.prog} --help` lists all of them."


class _Formatter(argparse.HelpFormatter):
    """Wraps the paragraphs of descriptions, and keeps the lines of examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.split("\n\n")
        return "\n\n".join(
            part if re.search(r"^ ", part, re.MULTILINE) else textwrap.fill(part, width, initial_indent=indent)
            for part in paragraphs
        )
