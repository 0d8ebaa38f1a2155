"""`make demo CLUSTER=1`: a real one-node Kubernetes with simulated GPUs and the whole product, to try things in."""

import base64
import contextlib
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from tests.native.build import library
from tools.cluster import layout, machine, pki
from tools.cluster.cluster import Cluster
from tools.cluster.containers import running
from tools.cluster.progress import say
from tools.cluster.work import Work

NAMESPACE = "vgpuscope"
CHART = layout.REPOSITORY / "charts" / "vgpuscope"
STEP = 2.0  # seconds between two states of the driver
PAGE = """
Kubernetes {version} runs on this machine. Its node {node} has three H100 and one that MIG divides.
Only the GPUs are simulated.

  Console  {console}/ui/
  Token    {token}   (to sign in, if you want to approve, keep or restore)

In another terminal:
  cd {repository}
  export KUBECONFIG={config}
  export PATH={path}:$PATH
  export CONSOLE={console}

Then try:
  kubectl get pods -A
  kubectl -n research describe pod -l app=fine-tune    # why it waits: the reason for each node
  vgpuscope pending {exporter}
  vgpuscope results $CONSOLE                           # who uses what; idle verdicts after about two minutes
  kubectl -n ml-team exec deploy/train-bert -- env     # what the device plugin gave the container
  vgpuscope reclaim --url $CONSOLE                     # notebook-alice is idle: would_act, because this is a dry run

Take its GPU back, and see fine-tune start on it:
  helm -n vgpuscope upgrade vgpuscope charts/vgpuscope --reset-then-reuse-values --set config.control.dry_run=false
  kubectl -n research get pods -w

Restore it, once there is room again:
  kubectl -n research delete deployment fine-tune
  VGPUSCOPE_TOKEN={token} vgpuscope reclaim restore research/POD-OF-notebook-alice --url $CONSOLE

Start a pod of your own; its variable GPU_WORK is what it does: train, serve, idle or none:
  kubectl apply -f {example}

Logs of all programs: {logs}
Ctrl-C ends everything, and nothing is left on this machine.
"""


def main() -> None:
    """Runs until Ctrl-C or SIGTERM; nothing is left afterwards."""
    signal.signal(signal.SIGTERM, _interrupted)
    before = machine.traces()
    cluster = Cluster()
    try:
        cluster.start(driver=library())
        work = Work(layout.DRIVER / "state")
        work.step((), now=time.time())
        token = secrets.token_hex(16)
        install(cluster, token)
        cluster.kubectl("apply", "-f", f"{layout.CONFIG}/playground.yaml")
        print(_page(cluster, token), flush=True)
        while not cluster.ended():
            with contextlib.suppress(FileNotFoundError):  # `make e2e-down` removes what is read here
                work.step(running(), now=time.time())
            time.sleep(STEP)
        say(f"the node has ended; the logs in {layout.LOGS} have the reason")
    except KeyboardInterrupt:
        say("ending; this takes a few seconds")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not stop the tidying
        cluster.stop()
    for trace in machine.left(before, machine.traces()):
        say(f"left behind: {trace}")


def install(cluster: Cluster, token: str) -> None:
    """The chart with all services: extender, device plugin, webhook; reclaim in a dry run."""
    subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", layout.HOOK / "libvgpu.so"], check=True)
    cluster.kubectl("label", "node", layout.NODE, "vgpuscope.io/plugin=on")
    cluster.kubectl("create", "namespace", NAMESPACE)
    pki.issue("webhook", (f"vgpuscope-decisions.{NAMESPACE}.svc",))
    certificate = (f"--cert={layout.PKI}/webhook.crt", f"--key={layout.PKI}/webhook.key")
    cluster.kubectl("-n", NAMESPACE, "create", "secret", "tls", "webhook", *certificate)
    words = ("secret", "generic", "vgpuscope-api", f"--from-literal=token={token}")
    cluster.kubectl("-n", NAMESPACE, "create", *words)
    say("installing the chart")
    authority = base64.b64encode((layout.PKI / "ca.crt").read_bytes()).decode()
    cluster.helm(
        *("install", "vgpuscope", str(CHART), "--namespace", NAMESPACE, "--wait", "--timeout", "10m"),
        *("--set", f"image.repository={layout.PRODUCT_REPOSITORY}", "--set", f"extender.webhook.caBundle={authority}"),
        *("--values", f"{layout.CONFIG}/playground-values.yaml"),
    )
    say("all services are ready")
    cluster.wait("shares of the node", lambda: _shares(cluster))
    say("the kubelet has the GPUs")


def _shares(cluster: Cluster) -> int:
    node = cluster.get("node", layout.NODE)
    return int(node["status"]["allocatable"].get("nvidia.com/gpu", 0))


def _page(cluster: Cluster, token: str) -> str:
    services = {item["metadata"]["name"]: item["spec"] for item in cluster.get("services", "-n", NAMESPACE)}
    exporter = services["vgpuscope-metrics"]
    programs = (cluster.control_plane, cluster.helm_program.parent, Path(sys.executable).parent)
    return PAGE.format(
        version=cluster.version,
        node=layout.NODE,
        console=f"http://{services['vgpuscope-api']['clusterIP']}",
        exporter=f"http://{exporter['clusterIP']}:{exporter['ports'][0]['port']}",
        token=token,
        repository=layout.REPOSITORY,
        config=layout.KUBECONFIG,
        path=":".join(map(str, programs)),
        example=f"{layout.CONFIG}/playground-pod.yaml",
        logs=layout.LOGS,
    )


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
