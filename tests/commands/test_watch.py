"""`--watch`: the table again and again, until Ctrl-C."""

import signal
import subprocess
import sys

import pytest

from tests.commands.test_inventory import Exporter, environment
from vgpuscope.model.errors import SourceDown
from vgpuscope.terminal.printing import repeated

DEADLINE = 120.0  # seconds; the machine can be busy


@pytest.fixture
def exporter():
    served = Exporter()
    yield served
    served.stop()


def test_a_table_is_printed_again_until_ctrl_c_which_is_the_normal_end(exporter):
    command = [sys.executable, "-m", "vgpuscope", "nodes", exporter.url, "--watch=1"]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True)
    try:
        lines = [watching.stdout.readline() for _ in range(6)]  # three tables of two lines
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=DEADLINE)
    finally:
        watching.kill()
        watching.wait()
    assert [line.split()[0] for line in lines] == ["NODE", "gpu-1"] * 3
    assert (watching.returncode, errors) == (0, "")


def test_an_error_after_the_first_answer_is_told_and_the_last_table_stays(capsys, monkeypatch):
    answers = iter(["first", SourceDown("gone"), "second", KeyboardInterrupt()])
    monkeypatch.setattr("vgpuscope.terminal.printing.time.sleep", lambda _: None)

    def ask():
        answer = next(answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    repeated(ask, print, every=5.0)
    out, err = capsys.readouterr()
    assert out.split() == ["first", "first", "second"]
    assert err.startswith("vgpuscope: SOURCE_DOWN: gone\nhint: ")


def test_an_error_of_the_first_question_ends_the_command():
    def ask():
        raise SourceDown("gone")

    with pytest.raises(SourceDown):
        repeated(ask, print, every=5.0)


def test_without_watching_one_question_is_asked(capsys):
    answers = iter(["only"])
    repeated(lambda: next(answers), print, every=None)
    assert capsys.readouterr().out == "only\n"
