"""Compiles the stand-in driver library once per version of its source, outside the checkout."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("fakenvml.c")
SONAME = "libnvidia-ml.so.1"
FLAGS = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread", f"-Wl,-soname,{SONAME}"]


class NoCompiler(Exception):
    """Neither $CC nor cc, gcc or clang is installed."""


def library() -> Path:
    """The compiled library; its directory holds nothing else, so it can be an LD_LIBRARY_PATH."""
    key = hashlib.sha256(SOURCE.read_bytes() + " ".join(FLAGS).encode()).hexdigest()[:16]
    target = _cache() / "vgpuscope" / f"fakenvml-{key}" / SONAME
    if not target.exists():
        _compile(target)
    return target


def library_or_skip() -> Path:
    """The library, for a test: without a compiler a developer's test is skipped, but CI fails."""
    import pytest

    try:
        return library()
    except NoCompiler as e:
        if os.environ.get("CI") == "true":
            pytest.fail(f"no C compiler in CI, so the NVML tests cannot run: {e}")
        pytest.skip(f"no C compiler for the stand-in libnvidia-ml: {e}")


def preload(path: Path) -> ctypes.CDLL:
    """Loads the library so that the binding's CDLL("libnvidia-ml.so.1") finds it already there, by its SONAME."""
    lib = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    lib.fakenvml_calls.restype = ctypes.c_uint64
    lib.fakenvml_calls.argtypes = [ctypes.c_char_p]
    return lib


def environment(path: Path, state: Path) -> dict[str, str]:
    """Environment variables for a program that is to find the stand-in instead of a driver."""
    return {"LD_LIBRARY_PATH": str(path.parent), "FAKENVML_STATE": str(state)}


def _compile(target: Path) -> None:
    compiler = os.environ.get("CC") or next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise NoCompiler("install gcc or clang, or set CC")
    target.parent.mkdir(parents=True, exist_ok=True)
    # two test processes may compile at once: each writes its own file, the last rename wins
    with tempfile.NamedTemporaryFile(dir=target.parent.parent, suffix=".so", delete=False) as part:
        made = Path(part.name)
    done = subprocess.run([compiler, *FLAGS, "-o", made, SOURCE], capture_output=True, text=True, check=False)
    if done.returncode:
        made.unlink()
        raise RuntimeError(f"the stand-in does not compile:\n{done.stderr}")
    made.replace(target)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


if __name__ == "__main__":
    print(library())
