"""Lists of processes straight from the library, held against the binding's own."""

from pathlib import Path

import pynvml
import pytest

from tests.native import build
from tests.native.scenario import UNKNOWN, Scenario
from vgpuscope.sources.node.nvml.lists import LISTS, as_row, raw_lists


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    build.preload(build.library_or_skip())
    scenario = Scenario(tmp_path / "nvml").gpu(0)
    monkeypatch.setenv("FAKENVML_STATE", str(scenario.path))
    scenario.write()
    pynvml.nvmlInit()
    yield scenario
    pynvml.nvmlShutdown()


@pytest.mark.parametrize("processes", [0, 1, 63, 64, 65, 1000])
@pytest.mark.parametrize("name", [name + version for name in LISTS for version in ("", "_v2")])
def test_rows_are_what_the_binding_says(node, name, processes):
    for pid in range(1, processes + 1):
        node.process(0, pid, kinds="CGM", memory=None if pid % 7 == 0 else pid << 20, gi=pid % 3, ci=None)
    node.write()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    theirs = [as_row(process) for process in getattr(pynvml, name)(handle)]
    assert raw_lists(pynvml)[name](handle) == theirs
    assert len(theirs) == processes


def test_a_list_that_was_long_may_be_short_again(node):
    read = raw_lists(pynvml)[LISTS[0]]
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    for processes in (100, 2, 300, 0):
        node.empty(0)
        for pid in range(1, processes + 1):
            node.process(0, pid)
        node.write()
        assert [pid for pid, *_ in read(handle)] == list(range(1, processes + 1))


def test_an_error_is_the_bindings_own(node):
    node.fail(f"{LISTS[0]}_v3", UNKNOWN).write()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(pynvml.NVMLError) as caught:
        raw_lists(pynvml)[LISTS[0]](handle)
    assert vars(caught.value)["value"] == UNKNOWN


def test_a_binding_without_a_library_keeps_its_own_functions():
    assert raw_lists(object()) == {}
