"""The file of a running demo: for its user only, gone at its end, and never believed after it."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from vgpuscope.services.doctor.demos import DemoService, announced, directories, running_demos

SERVICES = (
    DemoService(service="analyzer", url="http://127.0.0.1:1"),
    DemoService(service="agent", url="http://127.0.0.1:2", name="hami-a"),
)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_RUNTIME_DIR": str(tmp_path / "run"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def file_of(environ: dict[str, str]) -> Path:
    (found,) = directories(environ)[0].glob("*.json")
    return found


def test_a_demo_is_found_while_it_runs_and_no_other_user_can_read_its_file(environ: dict[str, str]):
    with announced(SERVICES, environ, now=7.0):
        (found,) = running_demos(environ)
        assert (found.services, found.started, found.pid) == (SERVICES, 7.0, os.getpid())
        assert file_of(environ).stat().st_mode & 0o777 == 0o600
        assert file_of(environ).parent.stat().st_mode & 0o077 == 0
    assert running_demos(environ) == ()
    assert not list(directories(environ)[0].iterdir())


def test_the_file_of_a_demo_that_was_killed_is_removed(environ: dict[str, str]):
    script = (
        "import os, signal, sys; from vgpuscope.services.doctor.demos import announced\n"
        "with announced((), os.environ, now=1.0): os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script], env=os.environ | environ, check=False)
    assert file_of(environ).exists()
    assert running_demos(environ) == ()
    assert not list(directories(environ)[0].glob("*.json"))


def test_another_process_with_the_same_pid_is_no_demo(environ: dict[str, str]):
    with announced(SERVICES, environ, now=1.0):
        file = file_of(environ)
        record = msgspec.json.decode(file.read_bytes())
        file.write_bytes(msgspec.json.encode(record | {"born": "1"}))
        assert running_demos(environ) == ()


def test_a_file_that_others_can_change_is_ignored(environ: dict[str, str]):
    with announced(SERVICES, environ, now=1.0):
        file_of(environ).chmod(0o666)
        assert running_demos(environ) == ()


def test_a_link_is_not_followed(environ: dict[str, str], tmp_path: Path):
    with announced(SERVICES, environ, now=1.0):
        file = file_of(environ)
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
        assert running_demos(environ) == ()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": "x"}', b"\xff", b'{"pid":1e99}'])
def test_a_file_of_another_form_is_ignored(environ: dict[str, str], content: bytes):
    place = directories(environ)[0]
    place.mkdir(parents=True)
    (place / "1.json").touch(mode=0o600)
    (place / "1.json").write_bytes(content)
    assert running_demos(environ) == ()


def test_without_a_place_to_write_the_demo_runs_all_the_same(tmp_path: Path):
    (tmp_path / "file").touch()
    nowhere = {"XDG_RUNTIME_DIR": str(tmp_path / "file" / "x"), "XDG_CACHE_HOME": str(tmp_path / "file")}
    with announced(SERVICES, nowhere, now=1.0):
        assert running_demos(nowhere) == ()


def test_the_newest_demo_comes_first(environ: dict[str, str]):
    other = environ | {"XDG_RUNTIME_DIR": ""}
    with announced(SERVICES, environ, now=1.0), announced(SERVICES[:1], other, now=2.0):
        assert [one.started for one in running_demos(environ)] == [2.0, 1.0]
