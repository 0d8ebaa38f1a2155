"""The namespace of the extender's lease, for the extender and for the cluster exporter that looks for it."""

from pathlib import Path

_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def lease_namespace(configured: str) -> str:
    """As configured, else that of the service account, else kube-system."""
    if configured:
        return configured
    try:
        return _FILE.read_text().strip() or "kube-system"
    except OSError:
        return "kube-system"
