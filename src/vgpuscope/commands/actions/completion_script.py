"""A shell completion script, made by shtab from the parser of all commands."""

import argparse
import re
from collections.abc import Iterator
from typing import Any

import shtab

_FILES = {"FILE", "PATH"}
_SENTENCE = re.compile(r"(?<=\.) ")
_WORD = re.compile(r"[a-z0-9-]+")


def of(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script. The placeholders of the parser become completions, so the parser must not be used afterwards."""
    for action in _actions(parser):
        action.help = _SENTENCE.split(action.help or "")[0]  # a menu has one line for each word
        _complete(action)
    return str(shtab.complete(parser, shell))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            lines = {one.dest: one.help for one in action._choices_actions}
            for name, command in action.choices.items():
                command.description = lines[name]
                yield from _actions(command)


def _complete(action: Any) -> None:
    """Derive the completions of a flag from its placeholder, such as FILE or text|json."""
    if not isinstance(action.metavar, str) or action.choices is not None:
        return
    parts = action.metavar.split("|")
    words = [part for part in parts if _WORD.fullmatch(part)]
    action.metavar = "VALUE" if words else parts[0].replace(":", " ")  # zsh runs what is behind a colon
    if _FILES.intersection(parts):
        action.complete = shtab.FILE
    elif "DIR" in parts:
        action.complete = shtab.DIRECTORY
    elif words:
        action.choices = words
