"""Every name and label that a release of HAMi exported is on our pages, or has a reason."""

import json

import pytest

from tests.paths import TESTS
from vgpuscope.catalog import agent, cluster

RELEASES = json.loads((TESTS / "fixtures" / "hami" / "metric_names.json").read_text())
OURS = {
    exposed.name: {label for label, _ in (*exposed.labels, *exposed.const)} | set(exposed.extra)
    for metric in (*agent.METRICS, *cluster.METRICS)
    for exposed in metric.exposed(frozenset({"hami", "hami-legacy"}))
}
# A number in a label starts a new series at every change. HAMi removed these in v2.10.0, and other names of v2.9.0 have
# the values: hami_gpu_shared_count and hami_vgpu_memory_{context,module,buffer}_bytes. Older names keep such labels,
# because nothing else of their releases has the values.
NOT_SHOWN = {
    "hami_node_gpu_overview": {"shared_containers"},
    "hami_container_device_memory_bytes": {"context_size", "module_size", "buffer_size", "offset"},
}


@pytest.mark.parametrize(
    ("release", "name"), [(release, name) for release, names in RELEASES.items() for name in names]
)
def test_every_name_of_a_release_has_its_labels(release, name):
    labels = set(RELEASES[release][name].split())
    assert labels - NOT_SHOWN.get(name, set()) <= OURS[name]


def test_a_label_that_is_not_shown_belongs_to_one_release_only():
    for name, labels in NOT_SHOWN.items():
        assert {release for release, names in RELEASES.items() if labels & set(names.get(name, "").split())} == {
            "v2.9.0"
        }


def test_the_table_has_every_minor_release():
    releases = [release.removeprefix("v") for group in RELEASES for release in group.split()]
    assert {release.rpartition(".")[0] for release in releases} == {"2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10"}


def test_no_name_of_these_families_is_of_our_own_invention():
    """The names of early 2026, between two releases, are the only ones beside those of releases."""
    released = {name for names in RELEASES.values() for name in names}
    kinds = ("context", "module", "buffer")
    assert set(OURS) - released == {f"vGPU_device_memory_{kind}_size_bytes" for kind in kinds}
