import pytest

from vgpuscope.model.device import Gpu
from vgpuscope.sources.plugin.numa import numa_nodes


@pytest.mark.parametrize(("text", "node"), [("1\n", {"GPU-a": 1}), ("0\n", {"GPU-a": 0}), ("-1\n", {}), ("?", {})])
def test_the_numa_node_comes_from_sysfs_and_minus_one_is_none(tmp_path, text, node):
    (tmp_path / "0000:3b:00.0").mkdir()
    (tmp_path / "0000:3b:00.0" / "numa_node").write_text(text)
    gpu = Gpu(uuid="GPU-a", index=0, model="T4", pci_bus_id="00000000:3B:00.0")
    assert numa_nodes((gpu,), str(tmp_path)) == node


def test_a_board_without_pci_has_none(tmp_path):
    assert numa_nodes((Gpu(uuid="GPU-a", index=0, model="Orin"),), str(tmp_path)) == {}
