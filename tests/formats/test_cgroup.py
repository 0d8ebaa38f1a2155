import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.paths import TESTS
from vgpuscope.formats.cgroup import owners_of

SAMPLES = [
    line.split("\t")
    for line in (TESTS / "fixtures/cgroup/samples.tsv").read_text().splitlines()
    if line and not line.startswith("#")
]
UID = "6a1c0f3e-5b7d-4e52-9d38-0c9be1f7a2d4"
SLICE = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"
ID, OTHER_ID = "3f4e8a9b" * 8, "c0ffee11" * 8


def test_the_samples_are_all_here():
    assert len(SAMPLES) == 20


def owner_of(text):
    """The innermost pod with its container."""
    return owners_of(text)[-1]


@pytest.mark.parametrize(("line", "pod", "container"), [row[1:] for row in SAMPLES], ids=[row[0] for row in SAMPLES])
def test_a_line_names_its_pod_and_container(line, pod, container):
    assert owner_of(line + "\n") == (None if pod == "-" else pod, None if container == "-" else container)


@pytest.mark.parametrize("empty_first", [True, False])
def test_on_a_hybrid_host_the_line_with_a_pod_counts(empty_first):
    lines = ["0::/", "3:cpuset:/", f"4:memory:/kubepods/burstable/pod{UID}/{ID}", "1:name=systemd:/user.slice"]
    assert owner_of("\n".join(lines if empty_first else reversed(lines))) == (UID, ID)


def test_a_line_with_pod_and_container_beats_one_with_the_pod_only():
    assert owner_of(f"4:memory:/kubepods/pod{UID}\n3:pids:/kubepods/pod{UID}/{ID}") == (UID, ID)


def test_a_pod_beats_a_container_without_one():
    assert owner_of(f"4:memory:/docker/{OTHER_ID}\n3:pids:/kubepods/pod{UID}") == (UID, None)


def test_the_monitor_of_a_container_is_not_its_workload():
    assert owner_of(f"0::/kubepods.slice/{SLICE}/crio-conmon-{ID}.scope") == (UID, None)
    assert owner_of(f"0::/machine.slice/libpod-conmon-{ID}.scope") == (None, None)


def test_the_node_container_of_kind_is_not_the_container_of_a_pod_level_process():
    assert owner_of(f"0::/docker/{OTHER_ID}/kubepods/pod{UID}") == (UID, None)


def test_a_container_that_a_pod_runs_inside_itself_belongs_to_the_pods_own():
    assert owner_of(f"0::/kubepods/pod{UID}/{ID}/docker/{OTHER_ID}") == (UID, ID)


def test_without_a_pod_the_innermost_container_counts():
    assert owner_of(f"0::/docker/{OTHER_ID}/docker/{ID}") == (None, ID)


def test_a_cgroup_that_is_gone_still_tells():
    assert owner_of(f"0::/kubepods/pod{UID}/{ID} (deleted)") == (UID, ID)


@pytest.mark.parametrize("path", [f"/tripod{UID}", f"/pod{UID}x", "/podcast", f"/pods/{ID[:63]}", f"/a{ID}", f"/{ID}0"])
def test_what_only_looks_like_a_name_is_none(path):
    assert owner_of(f"0::{path}") == (None, None)


@given(st.text())
def test_any_text_is_read_without_fail(text):
    owner_of(text)


PIECES = st.sampled_from(
    ("0::", "/", ":", "\n", "pod", UID, SLICE, ID, ".scope", "crio-", "conmon-", "-", "_", " (deleted)")
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_any_mixture_of_known_pieces_gives_well_formed_names_or_none(text):
    pod, container = owner_of(text)
    assert pod in {None, UID}
    assert container in {None, ID}


def test_of_pods_within_a_pod_all_are_named_the_outermost_first():
    other = UID.replace("1", "2")
    found = owners_of(f"0::/kubepods/pod{UID}/{ID}/kubepods/pod{other}/{OTHER_ID}")
    assert found == ((UID, ID), (other, OTHER_ID))
