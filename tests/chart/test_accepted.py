"""Every object of the chart is accepted by a real API server: server-side dry run, with strict checks of fields."""

import pytest

from tests.chart.cluster import definition
from tests.chart.helmrun import CHART, NAMESPACE, documents, helm, pod_specs, template
from tests.chart.valuesets import SETS
from tests.controlplane import ApiError
from tests.paths import REPOSITORY

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def served(cluster):
    cluster.operators()
    kinds = (("Certificate", "certificates"), ("Issuer", "issuers"))  # of cert-manager, which checks them itself
    cluster.define(definition("cert-manager.io", "v1", *kind) for kind in kinds)
    for name in (NAMESPACE, "monitoring", "ml", "vision", "vgpuscope"):
        cluster.namespace(name)
    return cluster


@pytest.mark.parametrize("name", SETS, ids=lambda name: name.replace(" ", "-"))
def test_every_object_is_accepted(served, name):
    objects = template(SETS[name] | {"assumeCRDs": True})
    assert len(objects) > 5
    for item in objects:
        served.create(item, dryRun="All", fieldValidation="Strict")


@pytest.mark.parametrize("file", ["agent", "cluster", "analyzer", "extender", "plugin", "prometheus-operator"])
def test_the_plain_manifests_are_accepted(served, file):
    for item in documents((REPOSITORY / "deploy" / f"{file}.yaml").read_text()):
        if item["kind"] != "Namespace":
            served.create(item, dryRun="All", fieldValidation="Strict")


def test_a_wrong_field_would_be_noticed(served):
    item = next(o for o in template() if o["kind"] == "DaemonSet")
    item["spec"]["template"]["spec"]["hostPid"] = True
    with pytest.raises(ApiError, match="unknown field"):
        served.create(item, dryRun="All", fieldValidation="Strict")


PRIVILEGED = {"agent": "hostPID=true", "plugin": "hostPath"}


def test_only_what_works_with_the_node_needs_a_privileged_namespace(served):
    """Kubernetes' own Pod Security admission is the judge."""
    served.namespace("restricted", {"pod-security.kubernetes.io/enforce": "restricted"})
    for component, spec in pod_specs(template(SETS["schedules"])).items():
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": component, "namespace": "restricted"},
            "spec": spec,
        }
        if component in PRIVILEGED:
            with pytest.raises(ApiError, match=PRIVILEGED[component]):
                served.create(pod, dryRun="All")
        else:
            served.create(pod, dryRun="All")


def test_the_name_of_hamis_scheduler_is_refused_while_it_runs(served):
    """Helm asks the cluster: two schedulers of one name would allocate the same GPU twice."""
    served.namespace("hami-system")
    hami = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "hami-scheduler",
            "namespace": "hami-system",
            "labels": {"app.kubernetes.io/component": "hami-scheduler"},
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    }
    served.create(hami)
    served.namespace("taken-over")
    words = ("upgrade", "--install", "vgpuscope", str(CHART), "--namespace", "taken-over")
    flags = ("--kubeconfig", served.plane.kubeconfig)
    values = {"extender": {"enabled": True, "schedulerName": "hami-scheduler"}}
    refused = helm(*words, *flags, values=values)
    assert refused.returncode != 0
    assert "HAMi's own scheduler runs as hami-system/hami-scheduler" in refused.stderr
    other = helm(*words, *flags, values={"extender": {"enabled": True}})
    assert other.returncode == 0, other.stderr
    served.call("PATCH", f"{served.path(hami)}/hami-scheduler", {"spec": {"replicas": 0}})
    done = helm(*words, *flags, values=values)
    assert done.returncode == 0, done.stderr
