"""The cluster: brings it up step by step, and is a test's way to its programs, its API and its containers."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tools.cluster import archive, image, images, layout, pki
from tools.cluster.errors import Failed, Lacking
from tools.cluster.progress import say

TEMPLATES = Path(__file__).with_name("config")
WITHIN = float(os.environ.get("VGPUSCOPE_E2E_WITHIN", "180"))  # seconds for any one step on a busy machine


class Cluster:
    """A running one-node Kubernetes; `start` makes one, and `attached` is the one that runs here already."""

    def __init__(self) -> None:
        self.control_plane = _built("controlplane")
        self.helm_program = _built("helm")
        self.node_programs = _built("cluster")
        self.version = self._run([self.control_plane / "kube-apiserver", "--version"]).split()[-1].lstrip("v")
        self.image: archive.Image | None = None  # the product's, if the cluster was started here
        self._warden: subprocess.Popen[bytes] | None = None

    # --- up and down --------------------------------------------------------------------------------------------------

    def start(self, driver: Path) -> None:
        """Everything up to a Ready node with DNS; the product's image is in it, the product is not installed."""
        for path in (
            layout.BIN,
            layout.CONFIG,
            layout.LOGS,
            layout.DATA,
            layout.KUBELET,
            layout.HOOK,
            layout.CONTAINERD.parent,
        ):
            path.mkdir(parents=True, exist_ok=True)
        self.image = product = image.product(revision=_revision())
        say(f"image {product.name} is made")
        pki.write()
        self._write_configuration()
        (layout.DRIVER / "state").mkdir(parents=True)
        shutil.copy(driver, layout.DRIVER / "libnvidia-ml.so.1")
        shutil.copy(Path(__file__).with_name("nvidia-container-runtime"), layout.BIN)
        self._enter()
        self.start_containerd()
        self._start_control_plane()
        self.wait("containerd", lambda: self.ctr("version", check=False).returncode == 0)
        with tempfile.TemporaryDirectory(dir=layout.ROOT) as place:
            small = images.small(
                Path(place), control_plane=self.control_plane, node_programs=self.node_programs, version=self.version
            )
            for item in (*small, product):
                self.load(item)
        say("images are loaded")
        self.wait("API server", lambda: self.kubectl("get", "--raw", "/readyz", check=False).returncode == 0)
        say("API server is ready")
        self.start_kubelet()
        self.wait("node", lambda: self.kubectl("get", "node", layout.NODE, check=False).returncode == 0)
        self.kubectl("wait", "--for=condition=Ready", f"node/{layout.NODE}", f"--timeout={WITHIN:.0f}s")
        say("node is ready")
        programs = self.node_programs
        self.start_program("kube-proxy", [programs / "kube-proxy", "--config", f"{layout.CONFIG}/kube-proxy.yaml"])
        self.kubectl("apply", "-f", f"{layout.CONFIG}/dns.yaml")
        self.kubectl("-n", "kube-system", "rollout", "status", "deploy/coredns", f"--timeout={WITHIN:.0f}s")
        say("DNS is ready")

    def keep(self) -> None:
        """The cluster stays when this program ends."""
        assert self._warden is not None
        assert self._warden.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended
            self._warden.stdin.write(b"keep\n")
            self._warden.stdin.close()

    def stop(self) -> None:
        """Ends everything and waits until nothing is left."""
        if self._warden is not None and self._warden.poll() is None:
            self._warden.send_signal(signal.SIGTERM)
            self._warden.communicate(timeout=60)
            say("the cluster is gone")

    def ended(self) -> bool:
        """Whether the node is gone, although nobody asked it to end."""
        return self._warden is None or self._warden.poll() is not None

    def _enter(self) -> None:
        """Starts the node's first process."""
        with (layout.LOGS / "node.log").open("ab") as log:
            words = [sys.executable, "-m", "tools.cluster.warden"]
            self._warden = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=layout.REPOSITORY, start_new_session=True
            )
        warden = self._warden
        self.wait("node.log", lambda: layout.CONTROL.exists() or warden.poll() is not None)
        if not layout.CONTROL.exists():
            raise Failed(f"the node does not start:\n{_end_of('node')}")

    def _write_configuration(self) -> None:
        values = {name: str(value) for name, value in vars(layout).items() if name.isupper()}
        for template in TEMPLATES.iterdir():
            text = re.sub(r"@(\w+)@", lambda match: values[match[1]], template.read_text())
            (layout.CONFIG / template.name).write_text(text)
        (layout.CONFIG / "cni").mkdir()
        (layout.CONFIG / "network.json").rename(layout.CONFIG / "cni" / "10-vgpuscope.conflist")

    def _start_control_plane(self) -> None:
        here, at, etcd = self.control_plane, layout.PKI, "http://127.0.0.1:2379"
        self.start_program(
            "etcd",
            [
                *(here / "etcd", "--data-dir", layout.DATA / "etcd", "--unsafe-no-fsync", "--log-level", "warn"),
                *("--listen-client-urls", etcd, "--advertise-client-urls", etcd),
            ],
        )
        self.start_apiserver()
        common = ["--bind-address=127.0.0.1", "--leader-elect=false"]
        self.start_program(
            "kube-controller-manager",
            [
                *(here / "kube-controller-manager", f"--kubeconfig={at}/controller-manager.kubeconfig", *common),
                *(f"--service-account-private-key-file={at}/sa.key", f"--root-ca-file={at}/ca.crt"),
                *("--use-service-account-credentials", "--allocate-node-cidrs=false"),
            ],
        )
        self.start_program(
            "kube-scheduler", [here / "kube-scheduler", f"--kubeconfig={at}/scheduler.kubeconfig", *common]
        )

    # --- programs of the node -----------------------------------------------------------------------------------------

    def start_containerd(self) -> None:
        self.start_program("containerd", ["containerd", "--config", f"{layout.CONFIG}/containerd.toml"])

    def start_apiserver(self) -> None:
        at = layout.PKI
        self.start_program(
            "kube-apiserver",
            [
                *(self.control_plane / "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379"),
                *(f"--bind-address={layout.NODE_IP}", f"--advertise-address={layout.NODE_IP}", "--secure-port=6443"),
                *(f"--tls-cert-file={at}/apiserver.crt", f"--tls-private-key-file={at}/apiserver.key"),
                *(f"--client-ca-file={at}/ca.crt", f"--service-cluster-ip-range={layout.SERVICES}"),
                *("--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction"),
                *("--allow-privileged=true", "--service-account-issuer=https://kubernetes.default.svc"),
                *(f"--service-account-key-file={at}/sa.pub", f"--service-account-signing-key-file={at}/sa.key"),
                *(
                    f"--kubelet-client-certificate={at}/kubelet-client.crt",
                    f"--kubelet-client-key={at}/kubelet-client.key",
                ),
                *(f"--kubelet-certificate-authority={at}/ca.crt", "--kubelet-preferred-address-types=InternalIP"),
                *(f"--requestheader-client-ca-file={at}/ca.crt", "--requestheader-allowed-names=front-proxy-client"),
                *(f"--proxy-client-cert-file={at}/front-proxy.crt", f"--proxy-client-key-file={at}/front-proxy.key"),
                *(f"--audit-policy-file={layout.CONFIG}/audit.yaml", f"--audit-log-path={layout.AUDIT}"),
            ],
        )

    def start_kubelet(self) -> None:
        """Starts it as often as it takes, as systemd does: it ends if containerd is not ready yet."""
        argv = [
            *(self.node_programs / "kubelet", f"--config={layout.CONFIG}/kubelet.yaml"),
            *(f"--kubeconfig={layout.PKI}/kubelet.kubeconfig", f"--hostname-override={layout.NODE}"),
            *(f"--node-ip={layout.NODE_IP}", "--root-dir=/var/lib/kubelet"),
        ]

        def serves() -> bool:
            state = request(do="status", name="kubelet")
            if state["pid"] is None or state["status"] is not None:
                self.start_program("kubelet", argv)
            return connects(str(layout.NODE_IP), 10250)

        self.wait("kubelet", serves)

    def start_program(self, name: str, argv: list[Any]) -> int:
        """Starts a program in the node; its log is NAME.log."""
        log = str(layout.LOGS / f"{name}.log")
        return int(request(do="start", name=name, argv=[str(word) for word in argv], log=log, env={}))

    def program_pid(self, name: str) -> int | None:
        """The pid, as the node counts them."""
        pid: int | None = request(do="status", name=name)["pid"]
        return pid

    @staticmethod
    def node_pids() -> dict[int, int]:
        """What this machine calls the processes of the node, by their pids there."""
        pids = {}
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"/{layout.NAME}" in (process / "cgroup").read_text():
                    status = (process / "status").read_text()
                    numbers = status.partition("NSpid:")[2].partition("\n")[0].split()
                    if len(numbers) > 1:  # else it is the warden's
                        pids[int(numbers[1])] = int(numbers[0])
        return pids

    def stop_program(self, name: str, *, number: int = signal.SIGTERM, within: float = 30) -> None:
        request(do="stop", name=name, number=number, within=within)

    def restart_node(self) -> None:
        """What a restart of the machine does to a node: all containers die with the kubelet, its files stay."""
        self.stop_program("kubelet", number=signal.SIGKILL)
        for line in self.ctr("tasks", "ls").stdout.splitlines()[1:]:
            self.ctr("tasks", "kill", "-s", "KILL", line.split()[0], check=False)
        self.stop_program("containerd", number=signal.SIGKILL)
        self.start_containerd()
        self.start_kubelet()

    # --- its API and its containers -----------------------------------------------------------------------------------

    def kubectl(self, *words: str, check: bool = True, given: str | None = None) -> "subprocess.CompletedProcess[str]":
        command = [self.control_plane / "kubectl", "--kubeconfig", layout.KUBECONFIG, *words]
        return self._completed(command, check=check, given=given)

    def get(self, *words: str) -> Any:
        """Objects as JSON: the item, or the list of items."""
        answer = json.loads(self.kubectl("get", *words, "-o", "json").stdout)
        return answer["items"] if answer["kind"].endswith("List") else answer

    def apply(self, *objects: Mapping[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", given="\n---\n".join(json.dumps(item) for item in objects))

    def helm(self, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        command = [self.helm_program, "--kubeconfig", layout.KUBECONFIG, *words]
        return self._completed(command, check=check)

    def ctr(self, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """containerd's own client, for the containers of Kubernetes."""
        return self._completed(["ctr", "--address", layout.CONTAINERD, "-n", "k8s.io", *words], check=check)

    def load(self, item: archive.Image) -> None:
        """Puts an image into containerd."""
        words = ["ctr", "--address", str(layout.CONTAINERD), "-n", "k8s.io", "images", "import", "-"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as client:
            assert client.stdin is not None
            archive.write(client.stdin, item)
        if client.returncode:
            raise Failed(f"containerd does not take the image {item.name}")

    def wait(self, what: str, condition: Callable[[], Any], *, within: float = WITHIN) -> Any:
        """Returns the first true value of the condition."""
        end = time.monotonic() + within
        while not (value := condition()):
            if time.monotonic() > end:
                raise Failed(f"{what}: not within {within:g} s\n{_end_of(what)}")
            time.sleep(0.2)
        return value

    def _run(self, words: list[Any]) -> str:
        return self._completed(words, check=True).stdout

    @staticmethod
    def _completed(words: list[Any], *, check: bool, given: str | None = None) -> "subprocess.CompletedProcess[str]":
        command = [str(word) for word in words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, input=given, timeout=600)
        if check and done.returncode:
            raise Failed(f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done


def connects(address: str, port: int) -> bool:
    """Whether a port of the node, a pod or a Service takes connections."""
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError:
        return False
    return True


def request(**parts: Any) -> Any:
    """Asks the node's first process for something."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(layout.CONTROL))
        connection.sendall(json.dumps(parts).encode() + b"\n")
        answer = json.loads(connection.makefile().readline())
    if "error" in answer:
        raise Failed(answer["error"])
    return answer["ok"]


def _built(tool: str) -> Path:
    """What tools/TOOL/build made."""
    script = layout.REPOSITORY / "tools" / tool / "build"
    done = subprocess.run([script, "--find"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Lacking((done.stdout or done.stderr).strip())
    return Path(done.stdout.strip())


def _revision() -> str:
    words = ["git", "-C", str(layout.REPOSITORY), "rev-parse", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def _end_of(name: str) -> str:
    log = layout.LOGS / f"{name.removesuffix('.log')}.log"
    return log.read_text(errors="replace")[-3000:] if log.exists() else ""
