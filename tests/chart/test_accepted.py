"""Every object of the chart is accepted by a real API server: server-side dry run, with strict checks of fields."""

import pytest

from tests.chart.helmrun import NAMESPACE, documents, pod_specs, template
from tests.chart.valuesets import SETS
from tests.controlplane import ApiError
from tests.paths import REPOSITORY

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def served(cluster):
    cluster.operators()
    for name in (NAMESPACE, "monitoring", "ml", "vision", "vgpuscope"):
        cluster.namespace(name)
    return cluster


@pytest.mark.parametrize("name", SETS, ids=lambda name: name.replace(" ", "-"))
def test_every_object_is_accepted(served, name):
    objects = template(SETS[name] | {"assumeCRDs": True})
    assert len(objects) > 5
    for item in objects:
        served.create(item, dryRun="All", fieldValidation="Strict")


@pytest.mark.parametrize("file", ["agent", "cluster", "analyzer", "prometheus-operator"])
def test_the_plain_manifests_are_accepted(served, file):
    for item in documents((REPOSITORY / "deploy" / f"{file}.yaml").read_text()):
        if item["kind"] != "Namespace":
            served.create(item, dryRun="All", fieldValidation="Strict")


def test_a_wrong_field_would_be_noticed(served):
    item = next(o for o in template() if o["kind"] == "DaemonSet")
    item["spec"]["template"]["spec"]["hostPid"] = True
    with pytest.raises(ApiError, match="unknown field"):
        served.create(item, dryRun="All", fieldValidation="Strict")


def test_only_the_agent_needs_a_privileged_namespace(served):
    """Kubernetes' own Pod Security admission is the judge."""
    served.namespace("restricted", {"pod-security.kubernetes.io/enforce": "restricted"})
    for component, spec in pod_specs(template()).items():
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": component, "namespace": "restricted"},
            "spec": spec,
        }
        if component == "agent":
            with pytest.raises(ApiError, match="hostPID=true"):
                served.create(pod, dryRun="All")
        else:
            served.create(pod, dryRun="All")
