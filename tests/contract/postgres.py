"""A PostgreSQL of its own for the tests: in a temporary directory, on loopback, ended with the block."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from tests.needed import needed
from tests.ports import free_port

_WITHIN = 60
_USER, _PASSWORD = "keeper", "pass#word-7Kq"


def programs_or_skip() -> Path:
    """Where the newest PostgreSQL is; without one a developer's test is skipped, but CI fails."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    needed("PostgreSQL", package="postgresql", there=bool(found))
    return found[-1].parent


class Postgres:
    """A server that can be stopped and started; root starts it as `nobody`, since PostgreSQL refuses root."""

    def __init__(self) -> None:
        self._bin, self._port, self._as = programs_or_skip(), free_port(), _somebody_else()
        self._folder = Path(tempfile.mkdtemp(prefix="vgpuscope-postgres-"))  # pytest's own are closed to other users
        self._data, self._log, secret = (self._folder / name for name in ("data", "log", "password"))
        secret.write_text(_PASSWORD)
        if self._as:
            for path in (self._folder, secret):
                os.chown(path, self._as["user"], self._as["group"])
        how = ("-A", "scram-sha-256", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        command: list[str | Path] = [self._bin / "initdb", "-D", self._data, "-U", _USER, f"--pwfile={secret}", *how]
        subprocess.run(command, check=True, capture_output=True, cwd="/", **self._as)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self.stop()
        shutil.rmtree(self._folder)

    @property
    def url(self) -> str:
        return self.url_of(_PASSWORD)

    def url_of(self, password: str | None = None, *, database: str = "postgres") -> str:
        quoted = (password or _PASSWORD).replace("%", "%25").replace("#", "%23")
        return f"postgresql://{_USER}:{quoted}@127.0.0.1:{self._port}/{database}"

    def start(self) -> None:
        flags = {"port": self._port, "listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
        flags["fsync"] = "off"  # only the loss of power needs it: what a killed server wrote, the kernel has
        command: list[str | Path] = [self._bin / "postgres", "-D", self._data]
        command += [f"--{name}={value}" for name, value in flags.items()]
        with self._log.open("ab") as log:
            self._process: Any = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **self._as)
        # a test session that is killed cannot end the server; the pipe that it held does
        guard = [
            "sh",
            "-c",
            'read -r _ || { kill -QUIT "$0"; rm -rf "$1"; }',
            str(self._process.pid),
            str(self._folder),
        ]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True)
        end = time.monotonic() + _WITHIN
        while subprocess.run([self._bin / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self._port)]).returncode:
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < end, self._log.read_text()

    def stop(self) -> None:
        """In order, though connections are cut."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """As kill -9 of all its processes would: nothing more is written, and the next start has to recover."""
        self._end(signal.SIGQUIT)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It keeps its connections and says nothing."""
        parent = self._process.pid
        os.kill(parent, signal.SIGSTOP)  # first: from now on it starts no others
        processes = [parent, *map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())]
        for process in processes[1:]:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in reversed(processes):  # the parent last: it would bury those that ended meanwhile
                os.kill(process, signal.SIGCONT)

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """It answers, and refuses to write: as after a failover to a replica."""
        self._set("SET default_transaction_read_only = on")
        try:
            yield
        finally:
            self._set("RESET default_transaction_read_only")

    def _set(self, change: str) -> None:
        self.say(f"ALTER SYSTEM {change}")
        self.say("SELECT pg_reload_conf()")

    def say(self, statement: str) -> str:
        psql: list[str | Path] = [self._bin / "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", self.url, "-c", statement]
        return subprocess.run(psql, check=True, capture_output=True, text=True).stdout.strip()

    def _end(self, by: signal.Signals) -> None:
        self._process.send_signal(by)
        self._process.wait(_WITHIN)
        self._guard.communicate(b"\n")
        self._process = None


def _somebody_else() -> dict[str, Any]:
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
