"""Texts of strangers: command lines, names, answers of servers. Each costs little and controls no terminal."""

import contextlib
import io
import logging
import os
import pty
import stat
import tarfile
from collections.abc import Iterator

import msgspec
import pytest
from rich.table import Table
from rich.text import Text

from tests import cputime
from tests.attack.test_answers import Endless
from tests.commands import test_top
from vgpuscope import cli
from vgpuscope.commands.actions.bundle import write_bundle
from vgpuscope.config import load
from vgpuscope.model.doctor import DoctorReport
from vgpuscope.model.errors import SourceDown
from vgpuscope.model.usage import NodeSnapshot
from vgpuscope.runtime import log as logs
from vgpuscope.runtime.redaction import MASK, redacted
from vgpuscope.services.agent import command_lines
from vgpuscope.terminal import printing

pytestmark = pytest.mark.attack
CONTROL = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b5n\x85\u202eevil"
REPEATED = {
    "words with dashes": "a-",
    "words before a name": "token-a-",
    "beginnings of keys": "-----BEGIN PRIVATE KEY-----",
    "beginnings of web tokens": "eyJabcdefgh-",
    "addresses": "://a",
    "an address": "a",
    "bearers": "bearer ",
    "blanks": " ",
    "names of passwords": "password",
    "names of passwords with blanks": "password    ",
    "open quotes": 'password="a ',
    "keys of services": "sk-aaaaaaaaaaa-",
    "flags": "--api-",
}


@pytest.mark.parametrize("part", REPEATED.values(), ids=REPEATED)
@pytest.mark.parametrize("work", [redacted, lambda text: command_lines.shown(text.encode())], ids=["text", "command"])
def test_the_time_to_mask_secrets_grows_with_the_length_of_the_text_only(part, work):
    text = f"password ://{part * 300_000}"

    def seconds(length: int) -> float:
        return cputime.seconds(lambda: work(text[:length]))

    seconds(1000)
    assert seconds(200_000) < 20 * max(seconds(25_000), 0.001)  # eight times the length; 64 times if it were squared


def test_a_key_whose_end_is_cut_off_is_masked():
    assert redacted("x -----BEGIN RSA PRIVATE KEY-----\nMIIEow") == f"x {MASK}"


@pytest.fixture
def hostile():
    body = msgspec.json.encode({"error": {"code": "X", "message": CONTROL, "hint": CONTROL}})
    head = f"HTTP/1.1 500 Oops\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
    server = Endless(head + body, b"", every=60.0)
    yield server.url
    server.close()


@pytest.mark.parametrize("command", ["top", "nodes", "gpus", "pending", "results", "waste", "why"])
def test_a_hostile_server_does_not_control_the_terminal_by_its_error(hostile, capsys, command):
    more = ["ml/train"] if command == "why" else []
    where = ["--url", hostile] if command == "why" else [hostile]
    assert cli.main([command, *more, *where]) != 0
    shown = capsys.readouterr()
    assert "evil" in shown.err
    assert not {c for c in shown.out + shown.err if not c.isprintable()} - {"\n"}


def test_what_is_drawn_has_no_characters_that_control_the_terminal(capsys):
    def table(_: int | None) -> Table:
        made = Table(CONTROL)
        made.add_row(Text(CONTROL, "bold"))
        made.add_row(CONTROL.replace("[", "\\["))
        return made

    printing.print_drawn(table)
    shown = capsys.readouterr().out
    assert shown.count("evil") == 3
    assert not {c for c in shown if not c.isprintable()} - {"\n"}


FREE = frozenset(
    [
        "namespace",
        "pod",
        "container",
        "name",
        "model",
        "node",
        "profile",
        "driver",
        "hami",
        "message",
        "source",
        "command",
    ]
)
SEQUENCES = (b"\x1b]", b"\x1b[2J\x1b[31m", b"\xc2\x9b", "\u202e".encode(), b"\xc2\x85")


def poisoned(value: object, key: str = "") -> object:
    """The same answer of a service, with every name and text in it written by a stranger."""
    if isinstance(value, dict):
        return {name: poisoned(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [poisoned(one, key) for one in value]
    return f"{value[:4]}{CONTROL}" if isinstance(value, str) and key in FREE else value


@pytest.fixture
def hostile_agent():
    served = test_top.Agent()
    plain = poisoned(msgspec.json.decode(msgspec.json.encode(served.node)))
    served.node = msgspec.convert(plain, NodeSnapshot)
    yield served
    served.stop()


@pytest.mark.real
@pytest.mark.parametrize("more", [{}, {"once": True}, {"as_json": True}, {"as_json": True, "once": True}])
def test_a_hostile_agent_does_not_control_the_terminal_of_top(hostile_agent, more):
    with contextlib.ExitStack() as stack:
        top = test_top.Terminal(test_top.command(hostile_agent.url, processes=True, **more), size=(220, 60))
        stack.callback(os.close, top.master)
        stack.callback(os.close, top.slave)
        stack.callback(top.program.wait)
        stack.callback(top.program.kill)
        top.until(lambda: b"evil" in top.raw)
        if more.get("once"):
            top.ended()
    assert not [one for one in SEQUENCES if one in top.raw]


def test_json_has_the_same_values_and_nothing_that_controls_a_terminal(capsysbinary):
    content = {"name": CONTROL + "\x7f\ud7ff\U000e0001\u2028", "中文": ["正常", "\n"]}
    printing.print_json(content)
    shown = capsysbinary.readouterr().out
    assert msgspec.json.decode(shown) == content
    assert not {c for c in shown.decode() if not c.isprintable()} - {"\n"}
    assert "正常" in shown.decode()
    assert printing.json_bytes(content).count(b"\n") == 1


@pytest.mark.parametrize("layout", [logs.KlogText, logs.JsonLines])
def test_an_error_that_a_stranger_wrote_makes_no_log_line_and_no_sequence(layout):
    error = ValueError(f"x\nE1119 00:00:00.000000       1 fake.py:1] forged {CONTROL}")
    error.__cause__ = ValueError("a\nE1119 b")
    record = logging.LogRecord("vgpuscope", logging.ERROR, "a.py", 1, "broken", None, (ValueError, error, None))
    shown = layout().format(record)
    assert "evil" in shown
    assert not {c for c in shown if not c.isprintable()} - {"\n"}
    assert not [line for line in shown.splitlines()[1:] if line.startswith(("E1119", "{"))]


def test_a_table_that_is_printed_again_and_again_is_printable_each_time(capsys, monkeypatch):
    table = Table()
    table.add_row(Text(CONTROL))
    answers: Iterator[Table | BaseException] = iter([table, SourceDown(CONTROL), table, KeyboardInterrupt()])
    monkeypatch.setattr("vgpuscope.terminal.printing.time.sleep", lambda _: None)

    def ask() -> Table:
        answer = next(answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    printing.repeated(ask, lambda found: printing.print_drawn(lambda _: found), every=5.0)
    shown = capsys.readouterr()
    assert (shown.out.count("evil"), shown.err.count("evil")) == (3, 1)
    assert not {c for c in shown.out + shown.err if not c.isprintable()} - {"\n"}


def test_csv_on_a_terminal_is_printable_and_in_a_file_is_as_it_is(monkeypatch):
    content = f"pod,use\r\n{CONTROL},1\r\n".encode()
    ours, theirs = pty.openpty()
    with open(theirs, "w") as terminal:
        monkeypatch.setattr("sys.stdout", terminal)
        printing.print_csv(content)
    assert b"\x1b" not in os.read(ours, 4096)
    os.close(ours)
    file = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr("sys.stdout", file)
    printing.print_csv(content)
    assert file.buffer.getvalue() == content


def test_an_archive_is_a_new_file_that_only_its_owner_reads(tmp_path):
    path = tmp_path / "report.tar.gz"
    path.write_text("old")
    path.chmod(0o644)
    report = DoctorReport(
        at="", version="", place="outside", status="pass", counts={}, seconds=0.0, stages=(), findings=()
    )
    with path.open() as others:  # somebody has the old file open
        write_bundle(str(path), report, [("page.txt", b"x")], loaded=load(flags={}, environ={}), secrets=())
        assert others.read() == "old"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as archive:
        assert "vgpuscope-doctor/page.txt" in archive.getnames()
    assert os.listdir(tmp_path) == ["report.tar.gz"]
