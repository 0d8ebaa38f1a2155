"""Texts of strangers: command lines, names, answers of servers. Each costs little and controls no terminal."""

import io
import os
import pty
import stat
import tarfile

import msgspec
import pytest
from rich.table import Table
from rich.text import Text

from tests import cputime
from tests.attack.test_answers import Endless
from vgpuscope import cli
from vgpuscope.commands.actions.bundle import write_bundle
from vgpuscope.config import load
from vgpuscope.model.doctor import DoctorReport
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
