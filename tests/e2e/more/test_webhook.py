"""The admission webhook at a real API server: what it changes and denies, its certificate, pods while it is down."""

import base64
import json
import ssl
import time
import urllib.error
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.product import NAMESPACE, Product, gpu_pod
from tools.cluster import layout, pki

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("webhook", "no_pods_left")]

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
NAMES = (f"vgpuscope-decisions.{NAMESPACE}.svc",)
PORT = 8080


@pytest.fixture(scope="module")
def webhook(scheduling: Product) -> Iterator[None]:
    """The webhook with a certificate of the cluster's authority, as docs/install.md has it."""
    _new_certificate(scheduling)
    authority = base64.b64encode((layout.PKI / "ca.crt").read_bytes()).decode()
    values = {"enabled": True, "secret": "webhook", "caBundle": authority}
    scheduling.upgraded(values={"extender": {"webhook": values}})
    scheduling.wait("the webhook", lambda: _certificates(scheduling) == [_own_certificate()] * 2)
    yield
    scheduling.upgraded(values={"extender": {"webhook": {"enabled": False, "secret": "", "caBundle": ""}}})


def test_a_pod_that_names_only_memory_gets_one_gpu_from_our_scheduler(scheduling: Product) -> None:
    pod = scheduling.run(_plain(gpu_pod("memory", containers={"main": {MEMORY: 3000}})))
    assert pod["spec"]["schedulerName"] == "vgpuscope-scheduler"
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {GPU: "1", MEMORY: "3000"}
    assert scheduling.environment("memory")["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"


def test_a_pod_that_names_only_gpus_gets_all_cores_of_one(scheduling: Product) -> None:
    pod = scheduling.run(_plain(gpu_pod("whole", containers={"main": {GPU: 1}})))
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {GPU: "1", CORES: "100"}
    assert scheduling.environment("whole")["CUDA_DEVICE_SM_LIMIT"] == "100"


def test_a_pod_without_gpus_is_stored_as_it_was_sent(scheduling: Product) -> None:
    pod = scheduling.run(_plain(gpu_pod("plain", containers={"main": {"cpu": "10m"}})))
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert "annotations" not in pod["metadata"] or not any("hami.io" in key for key in pod["metadata"]["annotations"])


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("SCHED_ADMISSION_DENIED", {"securityContext": {"privileged": True}}),
        ("SCHED_REQUEST_INVALID", {"resources": {"limits": {GPU: "1", "nvidia.com/gpumem-percentage": "170"}}}),
    ],
)
def test_an_impossible_pod_is_denied_with_its_code(scheduling: Product, code: str, change: dict[str, Any]) -> None:
    pod = _plain(gpu_pod("denied"))
    pod["spec"]["containers"][0] |= change
    answer = scheduling.cluster.kubectl("apply", "-f", "-", given=json.dumps(pod), check=False)
    assert answer.returncode != 0
    assert code in answer.stderr, answer.stderr
    assert scheduling.cluster.kubectl("-n", "ml", "get", "pod", "denied", check=False).returncode != 0


def test_a_new_certificate_is_served_without_a_restart(scheduling: Product) -> None:
    """Rotation: the Secret changes, the kubelet changes the file, and the extender serves it to the API server."""
    old, starts = _own_certificate(), _starts(scheduling)
    _new_certificate(scheduling)
    new = _own_certificate()
    assert new != old
    scheduling.wait("the new certificate in both replicas", lambda: _certificates(scheduling) == [new] * 2, within=300)
    assert _starts(scheduling) == starts
    pod = scheduling.run(_plain(gpu_pod("after", containers={"main": {MEMORY: 1000}})))
    assert pod["spec"]["schedulerName"] == "vgpuscope-scheduler", "the API server trusts it"


def test_a_certificate_that_the_api_server_does_not_trust_lets_pods_pass_unchanged(scheduling: Product) -> None:
    """failurePolicy Ignore: of a wrong name, no pod is kept out."""
    _new_certificate(scheduling, "another.name.svc")
    wrong = _own_certificate()
    scheduling.wait("the wrong certificate", lambda: _certificates(scheduling) == [wrong] * 2, within=300)
    pod = scheduling.run(_plain(gpu_pod("unseen", containers={"main": {"cpu": "10m", MEMORY: 1000}})), ready=False)
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    _new_certificate(scheduling)
    right = _own_certificate()
    scheduling.wait("the right certificate", lambda: _certificates(scheduling) == [right] * 2, within=300)


def test_without_its_pods_others_start_and_with_them_it_works_again(scheduling: Product) -> None:
    deployment = ("-n", NAMESPACE, "scale", "deploy/vgpuscope-extender")
    scheduling.cluster.kubectl(*deployment, "--replicas=0")
    scheduling.wait("no extender", lambda: not scheduling.pods("extender"))
    try:
        began = time.monotonic()
        plain = scheduling.run(_plain(gpu_pod("plain", containers={"main": {"cpu": "10m"}})))
        unchanged = scheduling.run(_plain(gpu_pod("gpu", containers={"main": {MEMORY: 1000}})), ready=False)
        assert time.monotonic() - began < 60
    finally:
        scheduling.cluster.kubectl(*deployment, "--replicas=2")
        scheduling.cluster.kubectl("-n", NAMESPACE, "rollout", "status", "deploy/vgpuscope-extender", "--timeout=180s")
    assert {pod["spec"]["schedulerName"] for pod in (plain, unchanged)} == {"default-scheduler"}
    scheduling.remove("gpu")

    def changed() -> bool:
        pod = _plain(gpu_pod("again", containers={"main": {MEMORY: 1000}}))
        scheduling.cluster.kubectl("-n", "ml", "delete", "pod", "again", "--ignore-not-found", "--grace-period=0")
        found = scheduling.run(pod, ready=False)
        return bool(found["spec"]["schedulerName"] == "vgpuscope-scheduler")

    scheduling.wait("the webhook again", changed)
    scheduling.wait("its pod", lambda: scheduling.is_ready("again"))


def test_the_console_still_shows_the_extenders_decisions(scheduling: Product) -> None:
    """TLS then holds for the extender's whole port, with a certificate of an authority that only the values name."""
    scheduling.run(_plain(gpu_pod("decided", containers={"main": {MEMORY: 1000}})))

    def decided() -> bool:
        try:
            return '"decided"' in scheduling.page("analyzer", 8080, "/api/v1/decisions/ml/decided")
        except urllib.error.HTTPError:
            return False

    scheduling.wait("the decision in the console", decided, within=60)


def _plain(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod as a user writes it who does not know of our scheduler."""
    del pod["spec"]["schedulerName"]
    return pod


def _new_certificate(product: Product, *names: str) -> None:
    pki.issue("webhook", names or NAMES)
    files = (f"--cert={layout.PKI}/webhook.crt", f"--key={layout.PKI}/webhook.key")
    words = ("create", "secret", "tls", "webhook", "-n", NAMESPACE, *files, "--dry-run=client", "-o", "yaml")
    product.cluster.kubectl("apply", "-f", "-", given=product.cluster.kubectl(*words).stdout)


def _own_certificate() -> str:
    return ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert((layout.PKI / "webhook.crt").read_text()))


def _certificates(product: Product) -> list[str]:
    """What each replica serves."""
    addresses = [pod["status"].get("podIP") for pod in product.pods("extender")]
    try:
        return [ssl.get_server_certificate((address, PORT), timeout=10) for address in addresses]
    except OSError:  # it starts
        return []


def _starts(product: Product) -> set[tuple[str, int]]:
    pods = product.pods("extender")
    return {(pod["metadata"]["uid"], s["restartCount"]) for pod in pods for s in pod["status"]["containerStatuses"]}
