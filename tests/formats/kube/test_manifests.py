"""Manifests → the pods that they would create."""

import pytest
import yaml

from vgpuscope.formats.kube.manifests import wanted_pods
from vgpuscope.model.errors import BodyInvalid

CONTAINERS = "containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]"


def pods(text):
    return [one for document in yaml.safe_load_all(text) for one in wanted_pods(document)]


def test_a_pod_is_itself():
    [one] = pods(f"{{kind: Pod, metadata: {{name: a, namespace: ml}}, spec: {{{CONTAINERS}}}}}")
    assert (one.kind, one.name, one.replicas) == ("Pod", "a", None)
    assert one.pod["metadata"] == {"name": "a", "namespace": "ml"}


@pytest.mark.parametrize(
    ("kind", "more", "replicas"),
    [
        ("Deployment", "replicas: 3", 3),
        ("StatefulSet", "serviceName: x", 1),
        ("Deployment", "replicas: 0", 0),
        ("Job", "parallelism: 4", 4),
        ("Job", "{parallelism: 4, completions: 2}", 2),
        ("Job", "completions: 5", 1),
        ("DaemonSet", "minReadySeconds: 1", None),
    ],
)
def test_a_workload_is_its_template_with_its_replicas(kind, more, replicas):
    template = f"{{metadata: {{labels: {{app: w}}, annotations: {{k: v}}}}, spec: {{{CONTAINERS}}}}}"
    [one] = pods(
        f"kind: {kind}\nmetadata: {{name: w, namespace: ml}}\nspec: {{template: {template}, {more.strip('{}')}}}"
    )
    assert (one.kind, one.name, one.replicas) == (kind, "w", replicas)
    assert one.pod["kind"] == "Pod"
    assert one.pod["metadata"] == {"labels": {"app": "w"}, "annotations": {"k": "v"}, "name": "w", "namespace": "ml"}
    assert one.pod["spec"]["containers"][0]["name"] == "main"


def test_a_cron_job_is_the_template_of_its_job():
    [one] = pods(
        "kind: CronJob\nmetadata: {name: c}\n"
        f"spec: {{jobTemplate: {{spec: {{parallelism: 2, template: {{spec: {{{CONTAINERS}}}}}}}}}}}"
    )
    assert (one.name, one.replicas) == ("c", 2)


def test_several_documents_and_lists_are_read_and_a_service_has_no_pod():
    pod = f"{{kind: Pod, metadata: {{name: %s}}, spec: {{{CONTAINERS}}}}}"
    text = f"{pod % 'a'}\n---\n{{kind: Service, spec: {{ports: []}}}}\n---\n{{kind: List, items: [{pod % 'b'}]}}\n---\n"
    assert [one.name for one in pods(text)] == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        "just text",
        "[1, 2]",
        "{kind: Pod, spec: no}",
        "{kind: Deployment, spec: {template: 3}}",
        f"{{kind: Deployment, spec: {{replicas: -1, template: {{spec: {{{CONTAINERS}}}}}}}}}",
        f"{{kind: Deployment, spec: {{replicas: 1000000000, template: {{spec: {{{CONTAINERS}}}}}}}}}",
        f"{{kind: Deployment, spec: {{replicas: many, template: {{spec: {{{CONTAINERS}}}}}}}}}",
    ],
)
def test_what_is_no_manifest_is_refused_with_the_place(text):
    with pytest.raises(BodyInvalid, match=r"manifest|spec"):
        pods(text)
