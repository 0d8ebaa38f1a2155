"""The real `vgpuscope top`: in a pseudo terminal with a terminal emulator at the other end, and in a pipe."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.paths import TESTS
from tests.ports import free_port
from vgpuscope.model.usage import NodeSnapshot
from vgpuscope.terminal.screen import keys

NODE = msgspec.json.decode((TESTS / "fixtures" / "top" / "node.json").read_bytes(), type=NodeSnapshot)
DEADLINE = 60.0

PROGRAM = """
import fcntl, sys, termios
if sys.stdin.isatty():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C and a new size become signals
from vgpuscope.commands.actions import top
nan = float('nan')
{before}
sys.exit(top.main(**{arguments!r}))
"""


class Agent:
    """Serves a snapshot as an agent does, and can be taken away and brought back on its port."""

    def __init__(self):
        # The kernel gives this port to nobody while the agent is away.
        self.node, self.tokens, self.port, self.status = NODE, [], free_port(), 200
        self.start()

    @property
    def url(self):
        return f"127.0.0.1:{self.port}"

    def start(self):
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                agent.tokens.append(self.headers.get("Authorization"))
                body = msgspec.json.encode(replace(agent.node, at=time.time()))
                self.send_response(agent.status if self.path == "/api/v1/node" else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def stop(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def agent():
    served = Agent()
    yield served
    served.stop()


def command(url, *, before="", **given_arguments):
    usual = {"once": False, "as_json": False, "interval": 0.1, "sort": "gpu", "pattern": "", "color": True}
    return [sys.executable, "-c", PROGRAM.format(before=before, arguments={"url": url, **usual, **given_arguments})]


def environment(**more):
    plain = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "COLUMNS", "LINES", "VGPUSCOPE_TOKEN"}}
    return {**plain, "TERM": "xterm-256color", "PYTHONUTF8": "1", **more}


def run(url, *, env=(), **arguments):
    return subprocess.run(
        command(url, **arguments), capture_output=True, text=True, env=environment(**dict(env)), timeout=60, check=False
    )


def wait_for(condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        os.sched_yield()


class Terminal:
    """A program in a terminal of a given size; what it paints is on `screen`."""

    def __init__(self, argv, *, size=(140, 50), **env):
        self.master, self.slave = pty.openpty()
        self.screen = pyte.Screen(*size)
        self._stream, self.raw = pyte.ByteStream(self.screen), b""
        self._set_size(*size)
        self.before = termios.tcgetattr(self.slave)
        self.program = subprocess.Popen(
            argv, stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True, env=environment(**env)
        )

    def _set_size(self, columns, lines):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns, lines):
        self.screen.resize(lines, columns)
        self._set_size(columns, lines)

    def press(self, text):
        os.write(self.master, text.encode())

    def text(self):
        return "\n".join(self.screen.display)

    def read(self):
        if select.select([self.master], [], [], 0.1)[0]:
            data = os.read(self.master, 65536)
            self.raw += data
            self._stream.feed(data)

    def until(self, condition):
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end, f"never came:\n{self.text()}"
            self.read()

    def shows(self, *wanted, without=()):
        self.until(lambda: all(w in self.text() for w in wanted) and not any(w in self.text() for w in without))
        return self.text()

    def ended(self):
        self.until(lambda: self.program.poll() is not None)
        while select.select([self.master], [], [], 0)[0]:
            self.read()
        return self.program.returncode

    def is_stopped(self):
        return os.waitid(os.P_PID, self.program.pid, os.WSTOPPED | os.WNOWAIT | os.WNOHANG) is not None

    def is_as_before(self):
        ours = self.raw[self.raw.find(b"\x1b[?1049h") :]
        return (
            termios.tcgetattr(self.slave) == self.before
            and ours.count(b"\x1b[?1049h") == ours.count(b"\x1b[?1049l") > 0
            and ours.rfind(b"\x1b[?25h") > ours.rfind(b"\x1b[?25l")
        )


@pytest.fixture
def terminal():
    with contextlib.ExitStack() as stack:

        def start(*args, **kwargs):
            opened = Terminal(*args, **kwargs)
            stack.callback(os.close, opened.master)
            stack.callback(os.close, opened.slave)
            stack.callback(opened.program.wait)
            stack.callback(opened.program.kill)
            return opened

        yield start


@pytest.mark.real
def test_the_screen_shows_the_node_and_q_gives_the_terminal_back(agent, terminal):
    top = terminal(command(agent.url))
    top.shows("gpu-node-01", "0 NVIDIA A100-SXM4-80GB", "━━━━──  67%", "✗ lost", "hpc/gromacs-mps-0/md", "q  quit")
    assert termios.tcgetattr(top.slave) != top.before
    top.press("q")
    assert top.ended() == 0
    assert top.is_as_before()


@pytest.mark.real
def test_columns_stay_in_line_behind_wide_names_in_a_real_terminal(agent, terminal):
    top = terminal(command(agent.url))
    top.shows("gpu-node-01", "推")
    states = {cell for line in top.screen.buffer.values() for cell, char in line.items() if char.data == "●"}
    assert len(states) == 1


@pytest.mark.real
def test_keys_sort_group_filter_hold_and_explain(agent, terminal):
    top = terminal(command(agent.url))
    top.shows("sort gpu↑")
    top.press("s")
    top.shows("sort memory↓")
    top.press("r")
    top.shows("sort memory↑")
    top.press("g")
    top.shows("CONTAINER", "by GPU", without=["7 NVIDIA"])
    top.press("/")
    top.shows("filter:")
    top.press("召回q")
    top.shows("no rows match “召", without=["notebook-bob"])
    top.press("\x7f\r")
    top.shows("xk2lp", "filter “召", without=["notebook-bob"])
    top.press(" ")
    top.shows("PAUSED")
    top.press("?")
    top.shows("not measured", "press any key to go back")
    top.press("x")
    top.shows("xk2lp")
    top.press("\x1b")
    assert top.ended() == 0
    assert top.is_as_before()


@pytest.mark.real
def test_arrows_and_page_keys_scroll(agent, terminal):
    top = terminal(command(agent.url), size=(100, 21))
    top.shows("1–11 of")
    top.press("\x1b[B")
    top.shows("2–12 of")
    top.press("\x1b[6~")
    top.shows("13–23 of")
    top.press("k")
    top.shows("12–22 of")
    top.press("\x1b[5~\x1bOA")
    top.shows("1–11 of")


@pytest.mark.real
def test_a_new_size_is_used_at_once(agent, terminal):
    never = {"interval": 600.0, "before": "top._TICK = 600.0"}
    top = terminal(command(agent.url, **never), size=(160, 40))
    top.shows("HEALTH", "mean")
    top.resize(80, 24)
    top.until(lambda: "POWER TEMP" in top.text() and top.screen.display[23].startswith(" q  quit"))
    (heading,) = (line for line in top.screen.display if "POWER TEMP" in line)
    assert "HEALTH" not in heading
    top.resize(160, 40)
    top.shows("HEALTH", "mean")


@pytest.mark.real
def test_an_agent_that_goes_away_leaves_its_last_data_and_comes_back(agent, terminal):
    top = terminal(command(agent.url))
    top.shows("gpu-node-01", without=["retrying"])
    agent.stop()
    picture = top.shows("no agent answers at http://127.0.0.1", "data is", "retrying")
    assert "llama" in picture
    agent.node = replace(NODE, node="gpu-node-99")
    agent.start()
    top.shows("gpu-node-99", without=["retrying"])


@pytest.mark.real
def test_a_screen_without_an_agent_waits_for_one(agent, terminal):
    agent.stop()
    top = terminal(command(agent.url))
    top.shows("no agent answers", "vgpuscope agent", "retrying")
    agent.start()
    top.shows("gpu-node-01")


@pytest.mark.real
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 0)])
def test_signals_end_it_and_give_the_terminal_back(agent, terminal, number, code):
    top = terminal(command(agent.url))
    top.shows("gpu-node-01")
    top.program.send_signal(number)
    assert top.ended() == code
    assert top.is_as_before()


@pytest.mark.real
def test_ctrl_c_is_a_way_to_leave(agent, terminal):
    top = terminal(command(agent.url))
    top.shows("gpu-node-01")
    top.press("\x03")
    assert top.ended() == 0
    assert top.is_as_before()


@pytest.mark.real
def test_ctrl_z_lends_the_terminal_to_the_shell(agent, terminal):
    top = terminal(command(agent.url))
    top.shows("gpu-node-01")
    top.program.send_signal(signal.SIGTSTP)
    top.until(top.is_stopped)  # the screen is read meanwhile: a program that waits to write does not stop
    top.until(top.is_as_before)
    top.screen.reset()
    top.program.send_signal(signal.SIGCONT)
    top.shows("gpu-node-01")
    assert termios.tcgetattr(top.slave) != top.before


@pytest.mark.real
def test_a_mistake_of_ours_gives_the_terminal_back_before_it_is_reported(agent, terminal):
    top = terminal(command(agent.url, before="top.screen = lambda *_: 1 / 0"))
    assert top.ended() == 1
    assert top.is_as_before()
    assert top.raw.rfind(b"ZeroDivisionError") > top.raw.rfind(b"\x1b[?1049l")


@pytest.mark.real
def test_without_colours_the_screen_still_says_everything(agent, terminal):
    top = terminal(command(agent.url, color=False))
    top.shows("● active", "✗ lost")
    assert {char.fg for line in top.screen.buffer.values() for char in line.values()} == {"default"}


def test_once_in_a_pipe_is_plain_text_with_nothing_cut(agent):
    done = run(agent.url, once=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "搜索推荐/向量召回-7d9f6c5b8-xk2lp/推理服务" in done.stdout
    assert "hami-region/nvml-process" in done.stdout


def test_without_a_terminal_there_is_nothing_live_to_show(agent):
    assert "gpu-node-01" in run(agent.url).stdout


@pytest.mark.real
@pytest.mark.parametrize(
    ("env", "color", "codes"), [({}, True, True), ({"NO_COLOR": "1"}, True, False), ({}, False, False)]
)
def test_once_in_a_terminal_has_colours_unless_refused(agent, terminal, env, color, codes):
    top = terminal(command(agent.url, once=True, color=color), size=(100, 60), **env)
    assert top.ended() == 0
    assert "gpu-node-01" in top.text()
    assert (b"\x1b" in top.raw) is codes


def test_once_is_as_wide_as_columns_says(agent):
    lines = run(agent.url, once=True, env={"COLUMNS": "80"}).stdout.splitlines()
    assert max(len(line) for line in lines) == 80


def test_a_terminal_that_cannot_draw_gets_ascii(agent):
    done = run(agent.url, once=True, env={"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "###" in done.stdout


def test_once_and_sort_and_filter_go_together(agent):
    done = run(agent.url, once=True, sort="name", pattern="NOTEBOOK")
    assert done.stdout.index("notebook-alice") < done.stdout.index("notebook-bob")
    assert "resnet" not in done.stdout


def test_json_once_is_one_document_with_the_data(agent):
    done = run(agent.url, once=True, as_json=True)
    assert replace(msgspec.json.decode(done.stdout, type=NodeSnapshot), at=NODE.at) == NODE
    some = run(agent.url, once=True, as_json=True, pattern="bert")
    assert len(msgspec.json.decode(some.stdout, type=NodeSnapshot).containers) == 1


def test_json_is_a_line_for_each_interval_until_nobody_reads(agent):
    with subprocess.Popen(
        command(agent.url, as_json=True), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as top:
        samples = [msgspec.json.decode(top.stdout.readline(), type=NodeSnapshot) for _ in range(3)]
        top.stdout.close()
        assert top.wait(DEADLINE) == 0
        assert top.stderr.read() == b""
    assert samples[0].at < samples[1].at < samples[2].at


def test_json_says_once_that_the_agent_fails_and_goes_on_when_it_is_back(agent):
    with subprocess.Popen(
        command(agent.url, as_json=True), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as top:
        assert top.stdout.readline()
        agent.status = 503
        assert b"SOURCE_DOWN: the agent at" in top.stderr.readline()
        seen = len(agent.tokens)
        wait_for(lambda: len(agent.tokens) > seen + 3)
        agent.node, agent.status = replace(NODE, node="back"), 200
        while b'"node":"back"' not in top.stdout.readline():
            pass
        top.terminate()
        assert top.wait(DEADLINE) == 143
        assert top.stderr.read() == b""


def test_no_agent_is_a_clear_error_and_not_a_traceback(agent):
    agent.stop()
    try:
        done = run(agent.url, once=True)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"SOURCE_DOWN: no agent answers at http://{agent.url}" in done.stderr
        assert "vgpuscope agent" in done.stderr
        assert "Traceback" not in done.stderr
    finally:
        agent.start()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"interval": 0.0}, "--interval 0 is too short"),
        ({"interval": float("nan")}, "--interval nan is too short"),
        ({"sort": "colour"}, "gpu, memory, sm, power, name"),
        ({"url": "ftp://host"}, "is not the address of an agent"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_code_2(wrong, said):
    done = run(**{"url": "127.0.0.1:1", "once": True, **wrong})
    assert done.returncode == 2
    assert "CONFIG_INVALID" in done.stderr
    assert said in done.stderr


def test_the_token_comes_from_the_environment(agent):
    assert run(agent.url, once=True, env={"VGPUSCOPE_TOKEN": "s3cret"}).returncode == 0
    assert agent.tokens == ["Bearer s3cret"]


@given(st.text() | st.text(alphabet="\x1b[O5~AB;q\r训"))
def test_keys_cut_anywhere_are_the_same_keys(typed):
    whole, rest = keys(typed)
    for cut in range(len(typed)):
        first, begun = keys(typed[:cut])
        second, left = keys(begun + typed[cut:])
        assert (first + second, left) == (whole, rest)
