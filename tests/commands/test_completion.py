"""The completion scripts, in real shells: what each offers for a line that ends at the cursor."""

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.needed import needed
from vgpuscope import cli

SHELLS = ("bash", "zsh", "fish")
ALL = {command.name for command in cli.COMMANDS}

# What bash does when Tab is pressed: it splits the line into words and calls the function.
BASH = """
source "$1"
COMP_LINE=$2 COMP_POINT=${#2}
read -ra COMP_WORDS <<< "$2"
[[ $2 == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
compopt() { :; }
_shtab_vgpuscope
printf '%s\\n' "${COMPREPLY[@]}"
"""
FISH = 'source $argv[1]; complete -C $argv[2] | string replace -r "\\t.*" ""'
# zsh completes only in an interactive shell, so its builtin notes what is added, and the shell exits afterwards.
ZSH = r"""
PROMPT= ; fpath=($ZDOTDIR $fpath); autoload -Uz compinit && compinit -u -d "$ZDOTDIR/dump"
compadd() {
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
    local -a hits; builtin compadd -A hits "$@"; print -rl -- $hits >> "$FOUND"
    builtin compadd "$@"
}
zle -C complete-word complete-word complete
complete() { _main_complete; exit 0 }
bindkey '^I' complete-word
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    directory = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        done = subprocess.run([sys.executable, "-m", "vgpuscope", "completion", shell], capture_output=True, check=True)
        (directory / shell).write_bytes(done.stdout)
    return directory


@pytest.fixture(params=SHELLS)
def complete(request, scripts, tmp_path):
    """What a shell offers, as a set of words."""
    shell = request.param
    needed(shell, package=shell)
    (tmp_path / "some.yaml").touch()
    (tmp_path / "some-directory").mkdir()
    ask = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]
    return lambda line: {word.strip().rstrip("/") for word in ask(scripts / shell, line, tmp_path) if word.strip()}


def _bash(script: Path, line: str, cwd: Path) -> list[str]:
    return _printed(["bash", "--norc", "-c", BASH, "bash", str(script), line], cwd)


def _fish(script: Path, line: str, cwd: Path) -> list[str]:
    return _printed(["fish", "--no-config", "-c", FISH, str(script), line], cwd)


def _printed(command: list[str], cwd: Path) -> list[str]:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


def _zsh(script: Path, line: str, cwd: Path) -> list[str]:
    home, found = script.parent / "zsh-home", cwd.parent / f"{cwd.name}-found"
    if not home.exists():
        home.mkdir()
        (home / ".zshrc").write_text(ZSH)
        shutil.copy(script, home / "_vgpuscope")
    found.write_text("")
    ours, theirs = pty.openpty()
    environ = {**os.environ, "ZDOTDIR": str(home), "FOUND": str(found), "TERM": "dumb"}
    shell = subprocess.Popen(
        ["zsh", "-d", "-i"], cwd=cwd, env=environ, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        os.write(ours, f"{line}\t".encode())
        painted = _drain(ours)
        assert shell.wait(60) == 0
        assert b"not found" not in painted, painted  # zsh runs what it takes for an action
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
    return found.read_text().splitlines()


def _drain(terminal: int) -> bytes:
    """Read what the shell paints until it exits."""
    painted = b""
    try:
        while part := os.read(terminal, 4096):
            painted += part
    except OSError:  # the other side was closed
        pass
    return painted


@pytest.mark.parametrize("line", ["vgpuscope agent --listen ", "vgpuscope standalone --agent-listen 1"])
def test_an_address_is_left_to_the_user(complete, line):
    assert complete(line) == set()


def test_every_command_is_offered(complete):
    assert complete("vgpuscope ") == ALL
    assert complete("vgpuscope an") == {"analyze", "analyzer"}
    assert complete("vgpuscope config ") >= {"print"}


@pytest.mark.parametrize("command", [command.name for command in cli.COMMANDS] + ["config print"])
def test_every_flag_of_every_command_is_offered(complete, command):
    parser = cli.parser()
    for word in command.split():
        choices: Any = next(a for a in parser._actions if a.metavar == "COMMAND").choices
        parser = choices[word]
    flags = {flag for flag in parser._option_string_actions if flag.startswith("--")}
    offered = {word for word in complete(f"vgpuscope {command} --") if word.startswith("--")}
    assert offered == flags


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("vgpuscope agent --log-format ", {"text", "json"}),
        ("vgpuscope agent --pods ku", {"kube", "kubelet"}),
        ("vgpuscope top --sort m", {"memory"}),
        ("vgpuscope waste --group-by n", {"namespace", "node"}),
        ("vgpuscope waste --since 7d --group-by mo", {"model"}),
        ("vgpuscope completion ", set(SHELLS)),
    ],
)
def test_the_words_that_a_flag_takes_are_offered(complete, line, words):
    assert complete(line) == words


@pytest.mark.parametrize(
    "flag",
    ["agent --config", "agent --kubeconfig", "agent --ratio-file", "agent --web.config.file", "config print --config"],
)
def test_files_are_offered_for_a_file(complete, flag):
    assert "some.yaml" in complete(f"vgpuscope {flag} so")


def test_only_directories_are_offered_for_a_directory(complete):
    assert complete("vgpuscope demo --directory so") == {"some-directory"}


def test_another_shell_is_refused_with_those_there_are(capsys):
    assert cli.main(["completion", "tcsh"]) == 2
    assert re.search(r"unknown value 'tcsh'\nhint: .*Possible: bash, zsh, fish\.", capsys.readouterr().err)


def test_a_script_asks_for_nothing_when_it_is_loaded(scripts):
    """A shell that starts must not wait for Python."""
    for shell in SHELLS:
        assert not re.search(r"\$\(vgpuscope|`vgpuscope|python", (scripts / shell).read_text())
