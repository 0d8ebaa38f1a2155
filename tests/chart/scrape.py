"""What a ServiceMonitor means: the scrape configuration that the Prometheus Operator makes of it."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.chart.cluster import Cluster, Object

_RELABEL = {
    "sourceLabels": "source_labels",
    "targetLabel": "target_label",
    "regex": "regex",
    "replacement": "replacement",
    "action": "action",
    "separator": "separator",
}


def scrape_config(cluster: Cluster, monitor: Object, reach: Mapping[str, str]) -> dict[str, Any]:
    """The configuration for one ServiceMonitor; `reach` says by pod where its process really listens."""
    (endpoint,) = monitor["spec"]["endpoints"]
    meta = monitor["metadata"]
    return {
        "job_name": f"serviceMonitor/{meta['namespace']}/{meta['name']}/0",
        "honor_labels": endpoint.get("honorLabels", False),
        "scrape_interval": endpoint["interval"],
        "scrape_timeout": "1s",
        "metrics_path": endpoint["path"],
        "scheme": endpoint.get("scheme", "http"),
        "static_configs": [
            {"targets": [reach[labels["pod"]]], "labels": labels} for labels in _targets(cluster, monitor, endpoint)
        ],
        "relabel_configs": [
            {_RELABEL[name]: value for name, value in one.items()} for one in endpoint.get("relabelings", ())
        ],
    }


def _targets(cluster: Cluster, monitor: Object, endpoint: Object) -> Iterator[dict[str, str]]:
    """The labels of each target: selector → Service → EndpointSlices → ready pods."""
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    for namespace in monitor["spec"]["namespaceSelector"]["matchNames"]:
        services = cluster.all("v1/services", namespace)
        names = {s["metadata"]["name"] for s in services if wanted <= s["metadata"].get("labels", {}).items()}
        for part in cluster.all("discovery.k8s.io/v1/endpointslices", namespace):
            service = part["metadata"]["labels"]["kubernetes.io/service-name"]
            ports = [port["port"] for port in part["ports"] or () if port["name"] == endpoint["port"]]
            if service not in names or not ports:
                continue
            for one in part["endpoints"] or ():
                if one["conditions"].get("ready"):
                    yield {
                        "namespace": namespace,
                        "service": service,
                        "pod": one["targetRef"]["name"],
                        "endpoint": endpoint["port"],
                        "job": service,
                        "instance": f"{one['addresses'][0]}:{ports[0]}",
                    }
