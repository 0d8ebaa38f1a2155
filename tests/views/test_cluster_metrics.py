"""The cluster's conclusions as samples."""

from vgpuscope.catalog import cluster as m
from vgpuscope.logic.cluster_ledger import ClusterLedger
from vgpuscope.model.allocation import Assignment, HeldInstance, NodeState, PodState, QuotaState, RegisteredDevice
from vgpuscope.views.cluster_metrics import namespace_samples, node_samples
from vgpuscope.views.exposition import Renderer

GIB = 2**30
CARD = RegisteredDevice(id="GPU-a", vendor="NVIDIA", slots=7, memory=80 * GIB, cores=100, type="A100", healthy=True)


def given(index=0, name="main", memory=GIB, cores=10):
    return Assignment(
        container_index=index, container=name, init=False, vendor="NVIDIA", device="GPU-a", memory=memory, cores=cores
    )


def ledger(*assignments, **more):
    made = ClusterLedger()
    made.set_node(NodeState(name="n1", devices=(CARD,)))
    place = {"node": "n1", "assigned_node": "n1", "phase": "Running"}
    made.set_pod(PodState(uid="u1", namespace="ml", name="p", assignments=assignments, **place, **more))
    return made


def values(samples, metric):
    return [(s.row, s.value, s.extra) for s in samples if s.metric is metric and s.value is not None]


def test_a_container_that_was_given_a_card_twice_has_one_series_with_the_sum():
    found = values(node_samples(ledger(given(), given()).node("n1")), m.HOLDER_MEMORY)
    assert [(row.container, value) for row, value, _ in found] == [("main", 2 * GIB)]


def test_no_series_is_on_the_page_twice():
    made = ledger(given(), given(), given(1, "side"))
    lines = (
        Renderer(m.METRICS, ("native", "hami", "hami-legacy")).render(node_samples(made.node("n1"))).text().splitlines()
    )
    series = [line.rsplit(b" ", 1)[0] for line in lines if not line.startswith(b"#")]
    assert len(series) == len(set(series))


def test_an_instance_is_shown_once_the_plugin_has_made_it():
    planned = HeldInstance(container_index=0, device="GPU-a", profile="1g.10gb", start=0, size=1)
    made = HeldInstance(
        container_index=0,
        device="GPU-a",
        profile="1g.10gb",
        start=1,
        size=1,
        mig="MIG-1",
        gpu_instance=9,
        compute_instance=0,
    )
    found = values(node_samples(ledger(given(), instances=(planned, made)).node("n1")), m.MIG_INSTANCE)
    assert [row.mig_name for row, _, _ in found] == ["1g.10gb-9"]


def test_a_quota_without_a_limit_has_no_limit_series_and_hamis_label_says_zero():
    made = ledger(given(memory=4 * GIB))
    samples = list(namespace_samples(made.namespace("ml")))
    assert values(samples, m.QUOTA_LIMIT) == []
    assert {extra for _, _, extra in values(samples, m.LEGACY_QUOTA_USED)} == {("0",)}
    made.set_quota(QuotaState(namespace="ml", name="q", hard={"nvidia.com/gpumem": 10000}))
    limits = values(namespace_samples(made.namespace("ml")), m.QUOTA_LIMIT)
    assert [value for _, value, _ in limits] == [10000]
