"""Agent and analyzer on one machine without Kubernetes: two child processes, started, restarted and ended together.

agent ──► analyzer (its own scrapes) ──► API and console, history in a file

They are processes and not threads of one: the driver's library runs inside the agent, and if it crashes or hangs, the
console stays up and shows its GPU as unknown until the agent is back. Each is the same program as in a cluster.
"""

import asyncio
import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from vgpuscope.config import NO_FILE, SETTINGS, Loaded, SettingsFile
from vgpuscope.http import address
from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.service import AGENT_PORT, local
from vgpuscope.runtime.backoff import RESTART, BackOff
from vgpuscope.runtime.log import fields
from vgpuscope.services.frame import begin

log = logging.getLogger(__name__)

START_WITHIN = 10.0  # seconds; an error of the first process before that is one of its settings, and would come again
END_WITHIN = 7.0  # seconds; a service ends itself within five
HISTORY: Final = "history.db"
_PR_SET_PDEATHSIG: Final = 1
_VARIABLES: Final = {setting.path: setting.env for setting in SETTINGS}


class StandaloneProcess(NamedTuple):
    """One of the processes."""

    name: str
    command: tuple[str, ...]
    environ: Mapping[str, str]


def defaults(state: Path, agent: str) -> dict[str, str]:
    """Settings that have another default here: one machine is cheap to read, and its GPUs have no pods."""
    return {
        "agent.listen": local(AGENT_PORT),
        "agent.pods": "none",
        "agent.podresources_socket": "none",
        "analyzer.targets": agent,
        "analyzer.history": str(state / HISTORY),
        "analyzer.scrape_interval": "5",
        "prometheus.query_condition": "{}",
        "prometheus.step": "5",
        "scheduler.interval": "15",
    }


def state_directory(environ: Mapping[str, str], *, root: bool) -> Path:
    """Where the history is kept: systemd's directory, /var/lib for root, otherwise the user's state directory."""
    if given := environ.get("STATE_DIRECTORY"):
        return Path(given.partition(":")[0])
    if root:
        return Path("/var/lib/vgpuscope")
    home = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or "/").joinpath(".local", "state")
    return Path(home) / "vgpuscope"


def given_here(loaded: Loaded, flags: Mapping[str, object], state: Path) -> dict[str, str]:
    """What the processes are given: the flags, and a default where neither a variable nor the file has a value."""
    listen = str(flags.get("agent.listen") or _value(loaded, "agent.listen") or local(AGENT_PORT))
    usual = defaults(state, _url(listen))
    chosen = {path: value for path, value in usual.items() if loaded.origins[path] == "default"}
    chosen |= {path: str(value) for path, value in flags.items()}
    return {_VARIABLES[path]: value for path, value in chosen.items()}


def main(loaded: Loaded, *, flags: Mapping[str, object], environ: Mapping[str, str], file: SettingsFile) -> int:
    """`vgpuscope standalone`; the exit code of a process that could not start, otherwise 0."""
    begin(loaded.config, file)
    state = state_directory(environ, root=os.geteuid() == 0)
    variables = given_here(loaded, flags, state)
    history = variables.get(_VARIABLES["analyzer.history"])
    if history == str(state / HISTORY):
        _make(state)
    console = str(flags.get("analyzer.listen") or loaded.config.analyzer.listen)
    log.info("standalone starts", extra=fields(console=f"{_url(console)}/ui/", history=history))
    own = {**environ, **variables}
    return asyncio.run(_run([_part(name, file, own) for name in ("agent", "analyzer")]))


def _part(name: str, file: SettingsFile, environ: Mapping[str, str]) -> StandaloneProcess:
    """Its settings file is the one that was found here; flags would be on display in the list of processes."""
    return StandaloneProcess(name, (sys.executable, "-m", "vgpuscope", name, "--config", file.path or NO_FILE), environ)


def _value(loaded: Loaded, path: str) -> str | None:
    return None if loaded.origins[path] == "default" else str(loaded.value(path))


def _url(listen: str) -> str:
    if address.split(listen)[1] == 0:
        raise ConfigInvalid(f"{listen}: a fixed port is needed here", hint="Choose a port from 1 to 65535.")
    return address.local_url(listen)


def _make(state: Path) -> None:
    try:
        state.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as e:
        raise ConfigInvalid(
            f"{state}: {e.strerror}", hint="Name a writable file with --history FILE, or `--history none`."
        ) from e


# ── the processes ────────────────────────────────────────────────────────────────────────────────────────────────


async def _run(parts: list[StandaloneProcess]) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(sig) is not signal.SIG_IGN:  # nohup ignores SIGHUP, and a shell SIGINT in the background
            loop.add_signal_handler(sig, stop.set)
    keepers = [asyncio.create_task(keep(part), name=part.name) for part in parts]
    stopping = asyncio.create_task(stop.wait(), name="stop")
    done, _ = await asyncio.wait({*keepers, stopping}, return_when=asyncio.FIRST_COMPLETED)
    log.info("stopping")
    for task in (*keepers, stopping):
        task.cancel()
    await asyncio.gather(*keepers, stopping, return_exceptions=True)
    return 0 if stopping in done else max(task.result() for task in keepers if task in done)


async def keep(
    part: StandaloneProcess,
    *,
    sleep: Callable[[Seconds], Awaitable[object]] = asyncio.sleep,
    clock: Callable[[], Seconds] = time.monotonic,
) -> int:
    """Run a process and restart it whenever it ends; returns its exit code if it cannot start at all."""
    back_off = BackOff(RESTART, clock)
    first = True
    while True:
        back_off.begin()
        code = await _lifetime(part)
        lived = back_off.lasted()
        if first and code > 0 and lived < START_WITHIN:  # below zero: a signal, as of a library that crashed
            log.error("process could not start", extra=fields(process=part.name, code=code))
            return code
        first = False
        pause = back_off.pause()
        log.warning("process ended and is restarted", extra=fields(process=part.name, code=code, seconds=pause))
        await sleep(pause)


async def _lifetime(part: StandaloneProcess) -> int:
    """The exit code of one process. It ends with this one, even if this one is killed."""
    process = await asyncio.create_subprocess_exec(
        *part.command,
        env=part.environ,
        stdin=asyncio.subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C reaches only this process, which ends the others
        preexec_fn=_end_with_parent,
    )
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    process.terminate()
    try:
        async with asyncio.timeout(END_WITHIN):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


_LIBC = ctypes.CDLL(None)  # loaded here: a forked child may not


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
