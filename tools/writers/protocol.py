"""The modules of the kubelet's device plugin protocol, generated from its published file."""

import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "src/vgpuscope/sources/plugin/v1beta1"
MODULES = ("api_pb2.py", "api_pb2.pyi", "api_grpc.py")


def files() -> dict[str, Callable[[], str]]:
    """What to write, by its path in the repository."""
    return {f"{FOLDER}/{name}": partial(_module, name) for name in MODULES}


def _module(name: str) -> str:
    return _generated()[name]


@cache
def _generated() -> dict[str, str]:
    """All modules; the compiler runs once."""
    plugin = Path(sys.executable).with_name("protoc-gen-grpclib_python")
    with tempfile.TemporaryDirectory() as made:
        flags = [f"--python_out={made}", f"--pyi_out={made}", f"--grpclib_python_out={made}"]
        where = [f"-I{ROOT / 'src'}", f"--plugin=protoc-gen-grpclib_python={plugin}"]
        code = protoc.main(  # type: ignore[no-untyped-call]
            ["protoc", *where, *flags, str(ROOT / FOLDER / "api.proto")]
        )
        if code:
            raise RuntimeError(f"protoc ended with {code}")
        folder = Path(made) / FOLDER.removeprefix("src/")
        return {name: (folder / name).read_text() for name in MODULES}
