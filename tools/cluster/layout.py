"""Where everything of the cluster lies, and its addresses."""

import os
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vgpuscope"
ROOT = Path("/var/tmp/vgpuscope-cluster")  # fixed: one cluster on a machine, and short enough for paths of sockets
NAME = "vgpuscope-cluster"  # of the cgroups, and of what is seen outside
LOCK = Path("/var/tmp/vgpuscope-cluster.lock")

NODE = "gpu-node-1"
NETWORK = IPv4Network("10.199.0.0/16")  # everything below is part of it
HOST_IP = IPv4Address("10.199.0.1")
NODE_IP = IPv4Address("10.199.0.2")
PODS = IPv4Network("10.199.16.0/20")
SERVICES = IPv4Network("10.199.128.0/17")
API_IP, DNS_IP = SERVICES[1], SERVICES[10]
API = f"https://{NODE_IP}:6443"
LINK = "vgpuscope0"  # this machine's end of the cable to the node

BIN, CONFIG, LOGS, PKI = ROOT / "bin", ROOT / "config", ROOT / "logs", ROOT / "pki"
EARLIER_LOGS = ROOT / "logs-before"  # of the cluster before: a test that failed runs once more on a new one
DATA = ROOT / "data"  # of etcd and containerd; in memory, and seen in the node only
DRIVER = ROOT / "driver"  # the stand-in driver's library and the state that it reads
KUBELET = ROOT / "kubelet"  # /var/lib/kubelet of the node
HOOK = ROOT / "hook"  # /usr/local/vgpu of the node
NEW_ROOT = ROOT / "root"  # the node's root file system is mounted here
CONTROL = ROOT / "node.sock"  # starts and ends programs in the node
CONTAINERD = ROOT / "run" / "containerd.sock"
CONTAINERD_STATE = ROOT / "run" / "containerd"  # a bundle for each container
KUBECONFIG = PKI / "admin.kubeconfig"
AUDIT = LOGS / "audit.log"

WORK_IMAGE = "vgpuscope.local/work:1"
PAUSE_IMAGE = "vgpuscope.local/pause:1"
DNS_IMAGE = "vgpuscope.local/coredns:1"
PRODUCT_REPOSITORY = "vgpuscope.local/vgpuscope"
