import shutil

import pytest

from tests.paths import TESTS
from vgpuscope.model.host import NodeHost
from vgpuscope.sources.node.host_files import HostFiles

PROC = TESTS / "fixtures" / "host" / "v2-systemd" / "proc"


def test_the_node_is_what_its_files_say():
    found = HostFiles(str(PROC)).read()
    assert found.cpus == 2
    assert found.memory_total == 24682416 * 1024
    assert found.cpu.user == pytest.approx((int((PROC / "stat").read_text().split()[1]) + 7615) / 100, rel=0.2)
    assert len(found.load) == 3


def test_a_node_without_files_has_no_numbers(tmp_path):
    assert HostFiles(str(tmp_path)).read() == NodeHost()


def test_a_malformed_file_costs_only_its_own_values(tmp_path):
    proc = shutil.copytree(PROC, tmp_path / "proc")
    (proc / "meminfo").write_bytes(b"\xff")
    files = HostFiles(str(proc))
    found = files.read()
    assert (found.memory_total, found.memory_available) == (None, None)
    assert found.cpu is not None
    assert files.malformed == 1
