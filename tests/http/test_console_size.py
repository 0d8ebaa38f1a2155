"""The console stays small: a page over a slow VPN must not take long."""

import gzip
from importlib.resources import files
from pathlib import Path

from tests.needed import needed

LARGEST = 180_000  # bytes of all built files, gzipped


def test_all_built_files_together_are_at_most_180_kb_gzipped():
    folder = Path(str(files("vgpuscope.http"))) / "assets" / "console"
    built = [path for path in folder.rglob("*") if path.is_file()]
    needed("the built console", package="nodejs, then make console", there=bool(built))
    sizes = {path.name: len(gzip.compress(path.read_bytes())) for path in built}
    assert sum(sizes.values()) <= LARGEST, sizes
