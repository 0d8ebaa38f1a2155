"""`vgpuscope top`: fetches from an agent, reads keys, paints the terminal; views/node/top decides what is shown."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine

from msgspec.structs import replace
from rich.console import Console

from vgpuscope.commands.actions.access import TOKEN_SOURCE, token
from vgpuscope.model.errors import ConfigInvalid, ScopeError
from vgpuscope.model.wording import instead
from vgpuscope.sources.clients.agent import AgentApi
from vgpuscope.terminal.printing import Printable, json_bytes
from vgpuscope.terminal.screen import Terminal, paper_width, speak_plainly
from vgpuscope.views.node.top.state import SORTS, Sort, TopState, missed, narrowed, page, press, sampled, screen, settle

_SHORTEST = 0.1  # seconds between two samples; an agent takes one a second
_TICK = 1.0  # seconds after which an age on the screen is out of date


def main(
    *,
    url: str,
    once: bool,
    as_json: bool,
    interval: float,
    sort: str,
    pattern: str,
    color: bool,
    processes: bool = False,
    wide: bool = False,
) -> int:
    """Show a node until a key or a signal ends it, or once; the exit code."""
    speak_plainly()
    try:
        if not interval >= _SHORTEST:
            raise ConfigInvalid(f"--interval {interval:g} is too short", hint=f"Use {_SHORTEST:g} seconds or more.")
        offset = time.localtime().tm_gmtoff
        state = TopState(url=url, sort=_sort(sort), pattern=pattern, processes=processes, utc_offset=offset)
        return asyncio.run(_run(state, once=once, as_json=as_json, interval=interval, color=color, wide=wide))
    except ScopeError as e:
        print(e.lines, file=sys.stderr)
        return e.exit_code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # `vgpuscope top --json | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _sort(name: str) -> Sort:
    for sort in SORTS:
        if sort == name:
            return sort
    raise ConfigInvalid(f"unknown value {name!r} for --sort", hint=instead(name, SORTS))


async def _run(state: TopState, *, once: bool, as_json: bool, interval: float, color: bool, wide: bool) -> int:
    color = color and not os.environ.get("NO_COLOR")
    drawable = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    live = drawable and not (once or as_json)
    source = TOKEN_SOURCE._replace(unchecked=_say_nothing) if live else TOKEN_SOURCE
    async with AgentApi(state.url, token=token(), source=source) as api:
        state = replace(state, url=api.url)
        if as_json:
            return await (_print_json(api, state) if once else _until_signal(_stream(api, state, interval)))
        if once or not drawable:
            return await _print_page(api, state, color=color and drawable, wide=wide)
        return await _Live(api, state, interval=interval, color=color).run()


def _say_nothing(_: str) -> None:
    """The live screen has no place for a remark."""


async def _print_json(api: AgentApi, state: TopState) -> int:
    sys.stdout.buffer.write(json_bytes(narrowed(await api.snapshot(), state.pattern), indent=2))
    sys.stdout.buffer.flush()
    return 0


async def _print_page(api: AgentApi, state: TopState, *, color: bool, wide: bool) -> int:
    state = sampled(state, await api.snapshot(), now=time.time() + api.clock_offset)
    console = Console(file=sys.stdout, force_terminal=color, color_system="auto" if color else None, highlight=False)
    with console.capture() as text:
        for line in page(state, None if wide else paper_width()):
            console.print(Printable(line), soft_wrap=True)
    sys.stdout.write(text.get())
    sys.stdout.flush()
    return 0


async def _stream(api: AgentApi, state: TopState, interval: float) -> None:
    last: str | None = None
    while True:
        began, error = time.monotonic(), None
        try:
            sys.stdout.buffer.write(json_bytes(narrowed(await api.snapshot(), state.pattern)))
            sys.stdout.buffer.flush()
        except ScopeError as e:
            error = e.lines.partition("\n")[0]
        if error and error != last:
            print(error, file=sys.stderr)
        last = error
        await asyncio.sleep(max(0.0, interval - (time.monotonic() - began)))


async def _until_signal(work: Coroutine[None, None, None]) -> int:
    """Work until it ends or a signal arrives; the exit code for either."""
    loop, task, code = asyncio.get_running_loop(), asyncio.create_task(work, name="work"), 0

    def stop(number: int) -> None:
        nonlocal code
        code = 0 if number == signal.SIGINT else 128 + number  # Ctrl-C is the normal way to quit
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return code


_Event = Callable[[TopState], TopState]


class _Live:
    """The live screen: every event is a function from state to state, taken from one queue."""

    def __init__(self, api: AgentApi, state: TopState, *, interval: float, color: bool) -> None:
        self._api, self._state, self._interval = api, state, interval
        self._console = Console(file=sys.stdout, force_terminal=True, no_color=not color, highlight=False)
        self._terminal = Terminal()
        self._events: asyncio.Queue[_Event] = asyncio.Queue()

    async def run(self) -> int:
        """Run until a key or a signal ends it; the terminal is restored in any case."""
        with self._terminal.taken():
            return await _until_signal(self._together())

    async def _together(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, self._happened, _unchanged)
        loop.add_signal_handler(signal.SIGTSTP, self._sleep)
        with self._terminal.listening(self._pressed, lambda: self._happened(lambda state: replace(state, quit=True))):
            poll = asyncio.create_task(self._poll(), name="poll")
            try:
                await self._paint_until_quit(poll)
            finally:
                poll.cancel()
                await asyncio.gather(poll, return_exceptions=True)

    async def _paint_until_quit(self, poll: "asyncio.Task[None]") -> None:
        while not self._state.quit:
            self._paint()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK):
                    self._state = (await self._events.get())(self._state)
            while not self._events.empty():  # one repaint for many events
                self._state = self._events.get_nowait()(self._state)
            if poll.done():
                poll.result()  # the loop ends only by failing: raises its error

    def _paint(self) -> None:
        size = self._terminal.size()
        self._state = settle(replace(self._state, now=self._now()), size)
        with self._console.capture() as picture:
            self._console.print(Printable(screen(self._state, size)), end="", width=size[0], crop=False)
        self._terminal.paint(picture.get().rstrip("\n"))

    async def _poll(self) -> None:
        while True:
            began = time.monotonic()
            self._happened(await self._asked())
            await asyncio.sleep(max(0.0, self._interval - (time.monotonic() - began)))

    async def _asked(self) -> _Event:
        try:
            snapshot = await self._api.snapshot()
        except ScopeError as e:
            error, hint = str(e), e.advice
            return lambda state: missed(state, error, hint=hint, now=self._now())
        return lambda state: sampled(state, snapshot, now=self._now())

    def _now(self) -> float:
        return time.time() + self._api.clock_offset  # the agent's clock, because its samples are dated by it

    def _happened(self, event: _Event) -> None:
        self._events.put_nowait(event)

    def _pressed(self, key: str) -> None:
        self._happened(lambda state: press(state, key))

    def _sleep(self) -> None:
        """Ctrl-Z: return the terminal to the shell until the program continues."""
        with self._terminal.lent():
            os.kill(os.getpid(), signal.SIGSTOP)
        self._happened(_unchanged)


def _unchanged(state: TopState) -> TopState:
    return state
