"""Each command is a file of its own with help and examples, and costs the others nothing."""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.paths import REPOSITORY
from vgpuscope import cli
from vgpuscope.config import SETTINGS
from vgpuscope.model import service
from vgpuscope.views.node.top.state import SORTS

PACKAGE = REPOSITORY / "src" / "vgpuscope"
SHARED = {"__init__", "arguments", "command", "inventory", "setting_flags"}
HEAVY = ("uvicorn", "starlette", "pynvml", "lightkube", "grpclib", "psycopg", "sqlite3", "shtab")
CLIENT = ("httpx2", "rich", "yaml", "msgspec")

each_command = pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)


def help_of(command, capsys):
    with pytest.raises(SystemExit):
        cli.main([*command.split(), "--help"])
    return capsys.readouterr().out


def test_every_command_is_a_file_and_every_other_file_is_shared():
    files = {path.stem for path in (PACKAGE / "commands").glob("*.py")}
    assert files - SHARED == {command.name for command in cli.COMMANDS}


@each_command
def test_the_help_of_a_command_ends_with_examples_and_fits_80_columns(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = help_of(command.name, capsys)
    assert "\nexamples:\n  # " in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_overview_names_every_command_and_fits_80_columns(capsys):
    assert cli.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("  ")] == [command.name for command in cli.COMMANDS]
    assert max(map(len, lines)) <= 80


@each_command
def test_every_example_can_be_typed(command):
    for line, _ in command.examples:
        words = shlex.split(re.sub(r'^eval "\$\((.*)\)"$', r"\1", line).partition(" > ")[0])
        args, unknown = cli.parser(words[1:]).parse_known_args(words[1:])
        assert (words[:2], unknown) == (["vgpuscope", command.name], [])
        assert args.command


def imported(*args):
    """The libraries that a command line imports, of those that cost time."""
    code = (
        "import contextlib, json, sys\nfrom vgpuscope.cli import main\n"
        f"with contextlib.suppress(SystemExit): main({list(args)!r})\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules} & set(sys.argv[1:]))))"
    )
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    command = [sys.executable, "-c", code, *HEAVY, *CLIENT]
    end = subprocess.run(command, capture_output=True, text=True, timeout=60, env=unmeasured)
    return set(json.loads(end.stdout.splitlines()[-1]))


def test_help_imports_no_library():
    assert imported("--help") == set()
    assert imported() == set()


@each_command
def test_the_help_of_a_command_imports_no_service(command):
    assert imported(command.name, "--help") <= {"msgspec", "yaml"}


@pytest.mark.parametrize("command", ["top", "nodes", "gpus", "pending", "results", "waste"])
def test_a_client_imports_no_service(command):
    found = imported(command, "127.0.0.1:1", *(["--once"] if command == "top" else []))
    assert "httpx2" in found
    assert found <= set(CLIENT)


def test_the_placeholder_of_sort_names_the_orders_there_are(capsys):
    assert f"--sort {'|'.join(SORTS)}" in help_of("top", capsys)


def arguments(parser):
    """Every argument of a parser and of the commands behind it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from arguments(inner)
        else:
            yield action


def test_every_help_text_gives_a_default_at_its_end_in_brackets():
    for action in arguments(cli.parser()):
        text = action.help or ""
        assert not re.search(r"\((default:|%\(default\))", text), text
        assert "[default: " not in text or re.search(r"[.…] \[default: .+\]$", text), text
        shown = not isinstance(action.default, bool) and action.default not in {None, "", argparse.SUPPRESS}
        assert "[default: " in text or not shown, text


def test_every_flag_of_a_setting_is_taken_by_a_command():
    """docs/configuration.md shows the flag, whether or not a command reads the section."""
    taken = {(action.dest, flag) for action in arguments(cli.parser()) for flag in action.option_strings}
    assert {(setting.path, setting.flag) for setting in SETTINGS if setting.flag} <= taken


# --- one home for default ports -------------------------------------------------------------------------------------


def test_a_default_port_is_spelled_once_in_the_package():
    ports = [port for name, port in vars(service).items() if name.endswith("_PORT")]
    literal = re.compile(rf"(?<![\w.])({'|'.join(map(str, ports))})(?!\w)")
    spelled = [
        (path.name, found)
        for path in sorted(PACKAGE.rglob("*.py"))
        for found in literal.findall(path.read_text().replace("_", ""))
    ]
    simulated = ("processes.py", str(service.DCGM_EXPORTER_PORT))  # sim has an exporter of its own
    assert sorted(spelled) == sorted([*(("service.py", str(port)) for port in ports), simulated])
