"""As a new user: Helm installs the chart into a real cluster, and a real Prometheus scrapes what is to be scraped.

API server, scheduler and controllers are real. The tests play the kubelet: they start no containers, and the services
run as processes of this machine. What Prometheus scrapes is found as the Prometheus Operator finds it.
"""

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import msgspec
import pytest

from tests.chart.cluster import Cluster, Object, ready
from tests.chart.helmrun import CHART, CRDS, only
from tests.chart.processes import analyzer
from tests.chart.scrape import scrape_config
from tests.contract.clusterrun import exporter, holder, registered
from tests.contract.promworld import prometheus
from tests.controlplane import until
from tests.services.agent.noderoot import NodeRoot
from vgpuscope.catalog import cluster as c

pytestmark = pytest.mark.real
RELEASE, HERE = "vgpuscope", "vgpuscope-install"
ALLOCATED = c.HOLDER_MEMORY.name
GPUS = {"a100-1": "GPU-1", "a100-2": "GPU-2"}
VALUES = {
    "monitor": {"serviceMonitor": {"namespace": "monitoring", "interval": "1s"}},
    "analyzer": {"persistence": {"enabled": True}, "podDisruptionBudget": {"enabled": True}},
}
RULE = """
groups:
  - name: of-the-test
    rules:
      - alert: AgentDown
        expr: up{job="vgpuscope-agent"} == 0
        annotations:
          summary: '{{ $labels.instance }} is down'
"""


@pytest.fixture(scope="module")
def chart(tmp_path_factory) -> Path:
    """The chart with one more rule, so that there is one in any case."""
    copy = tmp_path_factory.mktemp("chart") / "vgpuscope"
    shutil.copytree(CHART, copy)
    (copy / "rules").mkdir(exist_ok=True)
    (copy / "rules" / "of-the-test.yaml").write_text(RULE)
    return copy


@pytest.fixture(scope="module")
def live(cluster: Cluster) -> Iterator[Cluster]:
    """Two GPU nodes, one with HAMi's label and one with that of NVIDIA's operator, and one without GPUs."""
    cluster.operators()
    for name in ("monitoring", "ml"):
        cluster.namespace(name)
    for (name, uuid), label in zip(GPUS.items(), ({"gpu": "on"}, {"nvidia.com/gpu.present": "true"}), strict=True):
        made = registered(name, uuid)
        cluster.add_node(name, label, made["metadata"]["annotations"])
    cluster.add_node("cpu-1", {})
    cluster.create(volume("history"))
    cluster.plane.create(holder("train", "a100-1", "GPU-1"))
    with cluster.running():
        yield cluster


@pytest.fixture(scope="module")
def objects(live: Cluster, chart: Path) -> list[Object]:
    """The release, installed and ready: Helm itself waits for that."""
    found = live.install(RELEASE, HERE, VALUES, "--wait", "--timeout", "5m", chart=chart)
    until(lambda: all(ready(pod) for pod in live.all("v1/pods", HERE)))  # of a DaemonSet, Helm lets one be late
    return found


def volume(name: str) -> Object:
    spec = {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/nonexistent"}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def test_every_pod_runs_and_agents_run_on_gpu_nodes_only(live, objects):
    pods = live.all("v1/pods", HERE)
    assert all(ready(pod) for pod in pods)
    by_component: dict[str, set[str]] = {}
    for pod in pods:
        component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        by_component.setdefault(component, set()).add(pod["spec"]["nodeName"])
    assert by_component["agent"] == set(GPUS)
    assert set(by_component) == {"agent", "cluster", "analyzer"}
    (claim,) = live.all("v1/persistentvolumeclaims", HERE)
    assert claim["status"]["phase"] == "Bound"


def test_the_notes_name_commands_that_work(live, objects):
    notes = live.notes(RELEASE, HERE)
    services = {o["metadata"]["name"]: o["spec"]["ports"][0]["port"] for o in live.all("v1/services", HERE)}
    assert "port-forward svc/vgpuscope-api 8080:80" in notes
    assert "port-forward svc/vgpuscope-nodes 41991:41991" in notes
    assert {"vgpuscope-api": 80, "vgpuscope-nodes": 41991}.items() <= services.items()
    assert "kubectl get nodes -l gpu=on" in notes
    assert "kubectl get nodes -l nvidia.com/gpu.present=true" in notes
    assert "NOT INSTALLED" not in notes


def test_the_record_of_the_release_fits_into_a_secret(live, objects):
    """etcd refuses objects above 1.5 MiB, Kubernetes Secrets above 1 MiB; dashboards are part of the record."""
    (record,) = [s for s in live.all("v1/secrets", HERE) if s["type"] == "helm.sh/release.v1"]
    assert len(base64.b64decode(record["data"]["release"])) < 700_000


def test_prometheus_scrapes_all_services_and_keeps_their_labels(live, objects, tmp_path):
    with ExitStack() as stack:
        reach = started(live, tmp_path, stack)
        url = watching(live, objects, reach, tmp_path, stack)
        up = {"vgpuscope-agent": 2, "vgpuscope-cluster": 1, "vgpuscope-analyzer": 1}
        until(lambda: found(url, "sum by (job) (up)") == up)
        # the tenant's own pod and namespace, not the exporter's
        until(lambda: labels(url, f'{ALLOCATED}{{pod="train"}}') == {("ml", "train")})
        assert found(url, 'count by (job) ({exported_pod!=""})') == {}
        # what is about no pod, such as a GPU that nobody has, is not attributed to the exporter's pod
        assert set(found(url, 'count by (pod) ({job=~"vgpuscope-.*", pod!=""})', "pod")) & set(reach) == set()
        until(lambda: set(found(url, "count by (node) (vgpuscope_gpu_info)", "node")) == set(GPUS))


def test_prometheus_loads_all_rules(live, objects, tmp_path):
    with ExitStack() as stack:
        url = watching(live, objects, {}, tmp_path, stack)
        groups = asked(url, "rules")["groups"]
        shipped = only(objects, "PrometheusRule")
        assert {g["name"] for g in groups} == {g["name"] for o in shipped for g in o["spec"]["groups"]}
        assert not [rule for g in groups for rule in g["rules"] if rule["health"] == "err"]


def started(live: Cluster, path: Path, stack: ExitStack) -> dict[str, str]:
    """The services as processes, by the pods that they are."""
    reach = {}
    for pod in live.all("v1/pods", HERE):
        component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        place = path / pod["metadata"]["name"]
        place.mkdir()
        kubeconfig = live.kubeconfig(f"{RELEASE}-{component}", HERE)
        if component == "agent":
            name = pod["spec"]["nodeName"]
            root = NodeRoot(place / "root", name)
            root.nvml.gpu(0, uuid=GPUS[name])
            running = stack.enter_context(root.agent("--pods", "kube", "--kubeconfig", kubeconfig))
        elif component == "cluster":
            running = stack.enter_context(exporter(kubeconfig, place))
        else:
            settings = live.call("GET", f"/api/v1/namespaces/{HERE}/configmaps/{RELEASE}-analyzer")
            running = stack.enter_context(analyzer(kubeconfig, settings, place))
        reach[pod["metadata"]["name"]] = running.url.removeprefix("http://")
    return reach


def watching(live: Cluster, objects: list[Object], reach: dict[str, str], path: Path, stack: ExitStack) -> str:
    """A Prometheus with what ServiceMonitors and PrometheusRules of the cluster say."""
    monitors = [live.get(o) for o in only(objects, "ServiceMonitor")] if reach else []
    files = []
    for o in only(objects, "PrometheusRule"):
        file = path / f"{o['metadata']['name']}.json"
        file.write_text(json.dumps(live.get(o)["spec"]))
        files.append(str(file))

    def scraped() -> set[str]:
        found = [scrape_config(live, one, reach)["static_configs"] for one in monitors]
        return {target["labels"]["pod"] for targets in found for target in targets}

    until(lambda: scraped() == set(reach))  # a controller writes down which pods of a Service are ready
    config = {"rule_files": files, "scrape_configs": [scrape_config(live, one, reach) for one in monitors]}
    return stack.enter_context(prometheus(path, json.dumps(config)))


def asked(url: str, what: str, **params: str) -> dict:
    with urlopen(f"{url}/api/v1/{what}?{urlencode(params)}", timeout=30) as answer:
        return msgspec.json.decode(answer.read())["data"]


def found(url: str, query: str, label: str = "job") -> dict[str, float]:
    result = asked(url, "query", query=query)["result"]
    return {one["metric"].get(label, ""): float(one["value"][1]) for one in result}


def labels(url: str, query: str) -> set[tuple[str, str]]:
    result = asked(url, "query", query=query)["result"]
    return {(one["metric"]["namespace"], one["metric"]["pod"]) for one in result}


# --- later ------------------------------------------------------------------------------------------------------------


def test_upgrade_then_uninstall(live, objects, chart):
    """Last: an upgrade replaces the pods and keeps the history; uninstalling leaves the history and nothing else."""
    (claim,) = live.all("v1/persistentvolumeclaims", HERE)
    before = {pod["metadata"]["uid"] for pod in live.all("v1/pods", HERE)}
    changes = {
        "config": {"thresholds": {"low_utilization": 30}, "log": {"format": "json"}},
        "compatibility": {"handbookNames": True},
    }
    flags = ("--wait", "--timeout", "5m")
    live.helm("upgrade", RELEASE, str(chart), *flags, namespace=HERE, values=VALUES | changes)
    until(lambda: not before & {pod["metadata"]["uid"] for pod in live.all("v1/pods", HERE)})
    until(lambda: all(ready(pod) for pod in live.all("v1/pods", HERE)))
    services = {o["metadata"]["name"] for o in live.all("v1/services", HERE)}
    assert services == {"hami-monitor", "hami-webui", "vgpuscope-metrics"}
    (kept,) = live.all("v1/persistentvolumeclaims", HERE)
    assert kept["metadata"]["uid"] == claim["metadata"]["uid"]
    installed = live.objects(RELEASE, HERE)
    live.helm("uninstall", RELEASE, *flags, namespace=HERE)
    until(lambda: not live.all("v1/pods", HERE))
    left = [o["kind"] for o in installed if live.get(o) is not None]
    assert left == ["PersistentVolumeClaim"]
    assert not [s for s in live.all("v1/secrets", HERE) if s["type"] == "helm.sh/release.v1"]


def test_missing_custom_resources_are_named_and_come_with_the_next_upgrade(cluster, chart):
    here = "without-crds"
    cluster.operators()
    definitions = [msgspec.yaml.decode(file.read_bytes()) for file in CRDS.glob("*.yaml")]
    for item in definitions:
        cluster.call("DELETE", f"{cluster.path(item)}/{item['metadata']['name']}")
    until(lambda: not any(cluster.get(item) or cluster.discovered(item) for item in definitions))
    route = {"analyzer": {"httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}]}}}
    objects = cluster.install(RELEASE, here, route, chart=chart)
    assert not {"ServiceMonitor", "PrometheusRule", "HTTPRoute"} & {o["kind"] for o in objects}
    notes = cluster.notes(RELEASE, here)
    for kind in ("ServiceMonitor", "PrometheusRule", "HTTPRoute"):
        assert f"  - {kind} (" in notes
    assert "the pods have prometheus.io/scrape annotations" in notes
    cluster.operators()
    cluster.helm("upgrade", RELEASE, str(chart), namespace=here, values=route)
    assert {"ServiceMonitor", "PrometheusRule", "HTTPRoute"} <= {o["kind"] for o in cluster.objects(RELEASE, here)}
    assert "NOT INSTALLED" not in cluster.notes(RELEASE, here)
