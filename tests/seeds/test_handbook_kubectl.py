"""The commands with kubectl of the two documents on HAMi, run by the real kubectl on a cluster with the chart.

No containers run in the tests' cluster: a stand-in for the kubelet is asked what `logs` and `exec` ask of a kubelet,
and kubectl prints the log that it sends.
"""

import http.server
import json
import re
import shlex
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from tests.chart.cluster import Cluster
from tests.chart.conftest import cluster
from tests.controlplane import programs_or_skip, until
from tests.environment import bare
from tests.paths import REPOSITORY
from vgpuscope.cli import parser

__all__ = ["cluster"]  # a fixture
pytestmark = pytest.mark.real
HERE = "hami-system"
VALUES = {
    "extender": {"enabled": True, "schedulerName": "hami-scheduler"},
    "plugin": {"enabled": True},
    "compatibility": {"handbookNames": True, "handbookPodLabels": True, "handbookDashboard": True},
    "dashboards": {"language": "zh"},
}


class Kubelet:
    """Answers for the containers of a node: a log line, and 404 for everything else; remembers what was asked."""

    def __init__(self, path: Path) -> None:
        self.asked: list[str] = []
        authority, kubelet = trustme.CA(), self
        issued = authority.issue_cert("127.0.0.1")
        (path / "kubelet.pem").write_bytes(
            issued.private_key_pem.bytes() + b"".join(part.bytes() for part in issued.cert_chain_pems)
        )

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kubelet.asked.append(self.path)
                found = self.path.startswith("/containerLogs/")
                self.send_response(200 if found else 404)
                self.end_headers()
                self.wfile.write(f"log of {self.path.partition('?')[0]}\n".encode() if found else b"")

            do_POST = do_GET  # noqa: N815 - the base class calls it by this name

            def log_message(self, *_: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path / "kubelet.pem")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)


@contextmanager
def kubelet(path: Path) -> Iterator[Kubelet]:
    made = Kubelet(path)
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join()
        made.server.server_close()


class Shell:
    """kubectl as a user of the cluster runs it."""

    def __init__(self, cluster: Cluster, home: Path, node: Kubelet) -> None:
        self.cluster, self.home, self.node = cluster, home, node

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """One line of a document."""
        program, *words = shlex.split(command)
        assert program == "kubectl"
        environment = bare(KUBECONFIG=self.cluster.plane.kubeconfig, HOME=str(self.home))
        kubectl = programs_or_skip() / "kubectl"
        return subprocess.run([kubectl, *words], capture_output=True, text=True, check=False, env=environment)

    def output(self, command: str) -> str:
        done = self.run(command)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def shell(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """The chart in hami-system, on a GPU node that the scheduler and the plugin use, with running pods."""
    path = tmp_path_factory.mktemp("handbook")
    cluster.operators()
    with kubelet(path) as node:
        labels = {"gpu": "on", "vgpuscope.io/plugin": "on", "accelerator": "nvidia"}
        cluster.add_node("handbook-gpu", labels)
        address = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": node.server.server_address[1]}},
        }
        cluster.plane.patch("nodes", "handbook-gpu", {"status": address}, subresource="status")
        with cluster.running():
            cluster.install("vgpuscope", HERE, VALUES)
            found = Shell(cluster, path, node)

            def running() -> bool:
                pods = cluster.all("v1/pods", HERE)
                return len(pods) >= 6 and all(pod["status"].get("phase") == "Running" for pod in pods)

            until(running)
            yield found
            cluster.helm("uninstall", "vgpuscope", namespace=HERE)


def test_the_pods_of_all_components_are_listed_with_their_nodes(shell):
    rows = [row.split() for row in shell.output("kubectl get pods -n hami-system -o wide").splitlines()[1:]]
    owners = {re.sub(r"(-[a-f0-9]{8,10})?-[a-z0-9]{5}$", "", row[0]) for row in rows}
    expected = {"hami-scheduler", "hami-device-plugin", "vgpuscope-agent", "vgpuscope-cluster", "vgpuscope-analyzer"}
    assert owners == expected
    assert "handbook-gpu" in {row[6] for row in rows}


@pytest.mark.parametrize(
    ("command", "pod", "container"),
    [
        ("kubectl logs -n hami-system deployment/hami-scheduler", "hami-scheduler-", "extender"),
        ("kubectl logs -n hami-system daemonset/hami-device-plugin -c nvidia", "hami-device-plugin-", "nvidia"),
    ],
)
def test_logs_are_those_of_the_container_that_the_document_means(shell, command, pod, container):
    assert re.fullmatch(rf"log of /containerLogs/{HERE}/{pod}\S+/{container}\n", shell.output(command))


def test_exec_runs_the_documents_health_check_in_the_schedulers_container(shell):
    shell.run("kubectl exec -n hami-system deployment/hami-scheduler -- wget -qO- http://localhost:8080/healthz")
    (asked,) = {one for one in shell.node.asked if one.startswith("/exec/")}
    assert re.match(rf"/exec/{HERE}/hami-scheduler-\S+/extender\?", asked)
    words = re.findall(r"command=([^&]*)", asked)
    assert words == ["wget", "-qO-", "http%3A%2F%2Flocalhost%3A8080%2Fhealthz"]
    pods = shell.cluster.all("v1/pods", HERE)
    (port,) = {
        container["ports"][0]["containerPort"]
        for pod in pods
        for container in pod["spec"]["containers"]
        if container["name"] == "extender"
    }
    assert port == 8080


def test_the_level_of_the_log_is_raised_by_editing_the_deployment(shell):
    """kubectl edit, then --v=5: the same change without an editor. The program knows the flag."""
    added = json.dumps([{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--v=5"}])
    shell.output(f"kubectl patch deployment -n hami-system hami-scheduler --type=json -p {shlex.quote(added)}")
    args = shell.output(
        "kubectl get deployment -n hami-system hami-scheduler -o jsonpath={.spec.template.spec.containers[0].args}"
    )
    words = json.loads(args)
    assert vars(parser(words).parse_args(words))["command"] is not None
    assert words[-1] == "--v=5"


def test_the_services_of_port_forward_exist_at_the_documents_ports(shell):
    for service, port in (("hami-monitor", "41991"), ("hami-webui", "80"), ("hami-scheduler", "8080")):
        found = shell.output(f"kubectl get svc -n hami-system {service} -o jsonpath={{.spec.ports[0].port}}")
        assert found == port


def test_the_dashboard_is_in_its_config_map_in_the_charts_language(shell):
    command = r"kubectl get configmap hami-grafana-dashboard -n hami-system -o jsonpath='{.data.dashboard\.json}'"
    assert json.loads(shell.output(command))["uid"].endswith("-zh")


def test_gpu_nodes_and_what_they_offer_are_listed(shell):
    assert "handbook-gpu" in shell.output("kubectl get nodes -l accelerator=nvidia -o wide")
    assert shell.output("kubectl get nodes -l accelerator=nvidia -o name") == "node/handbook-gpu\n"
    assert json.loads(shell.output("kubectl get node/handbook-gpu -o jsonpath='{.status.allocatable}'"))


HEALTHY = """\
case "$*" in
  version | "get deployment -n hami-system hami-scheduler") ;;
  "get pods -n hami-system -o "*) echo pod/hami-scheduler-0 ;;
  "get pods -n hami-system --field-selector"*) echo hami-scheduler-0 True ;;
  "exec -n hami-system deployment/hami-scheduler -- wget -qO- http://localhost:8080/healthz") echo ok ;;
  "get nodes -l gpu=on -o name") echo node/gpu-1 ;;
  "get nodes -l "* | "get node/gpu-1 -o wide") ;;
  *allocatable*) echo 40 ;;
  *node-nvidia-register*) echo registered ;;
  "get deployments -n hami-system "*) echo deployment.apps/vgpuscope-analyzer ;;
  "exec -n hami-system deployment.apps/vgpuscope-analyzer -- vgpuscope doctor "*) ;;
  *) echo "unexpected: $*" >&2; exit 1 ;;
esac
"""


@pytest.mark.parametrize(
    ("gone", "fault"),
    [
        ("", None),
        ("echo pod/hami-scheduler-0", "FAILED: no pods in hami-system: is another one meant? (-n NAMESPACE)"),
        ("echo node/gpu-1", "FAILED: no node has gpu=on"),
        ("echo 40", "FAILED: node/gpu-1 offers no nvidia.com/gpu"),
    ],
)
def test_the_health_check_passes_only_where_all_is_there(tmp_path, gone, fault):
    """A stand-in for kubectl answers as in a healthy cluster, or without one of the answers."""
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\n" + (HEALTHY.replace(gone, "") if gone else HEALTHY))
    program.chmod(0o755)
    environment = bare(HOME=str(tmp_path)) | {"PATH": f"{tmp_path}:{bare()['PATH']}"}
    script = REPOSITORY / "deploy" / "hami-health-check.sh"
    done = subprocess.run(["bash", script], capture_output=True, text=True, check=False, env=environment)
    assert "unexpected" not in done.stderr
    assert (done.returncode, fault is None or fault in done.stdout) == (0 if fault is None else 1, True), done.stdout


def test_the_health_check_names_what_is_wrong_and_fails(shell):
    """Nothing answers in these containers, and the node offers no GPU: both are said, and the exit code is 1."""
    script = REPOSITORY / "deploy" / "hami-health-check.sh"
    path = f"{programs_or_skip()}:{bare()['PATH']}"
    environment = bare(KUBECONFIG=shell.cluster.plane.kubeconfig, HOME=str(shell.home)) | {"PATH": path}
    done = subprocess.run(["bash", script], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    heads = re.findall(r"^--- (.*) ---$", done.stdout, re.M)
    expected = ["Component Status", "Scheduler Health", "GPU Nodes", "Device Registration", "vgpuscope doctor"]
    assert heads == expected
    assert "FAILED: deployment/hami-scheduler does not answer on /healthz" in done.stdout
    assert "FAILED: node/handbook-gpu offers no nvidia.com/gpu" in done.stdout
    shell.cluster.plane.patch(
        "nodes", "handbook-gpu", {"status": {"allocatable": {"nvidia.com/gpu": "40"}}}, subresource="status"
    )
    done = subprocess.run(["bash", script], capture_output=True, text=True, check=False, env=environment)
    assert "node/handbook-gpu: nvidia.com/gpu 40, registered with HAMi: no" in done.stdout
    assert "offers no nvidia.com/gpu" not in done.stdout
