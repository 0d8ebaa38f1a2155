"""Sets of values that differ as much as clusters do; every test of the rendered chart runs with all of them."""

from typing import Any

HANDBOOK: dict[str, Any] = {  # the values of the handbook's monitoring chapter, as written there
    "monitor": {
        "enabled": True,
        "service": {"type": "ClusterIP", "port": 41991},
        "serviceMonitor": {"enabled": True, "namespace": "monitoring", "interval": "15s", "path": "/metrics"},
    },
}
EVERYTHING: dict[str, Any] = {
    "assumeCRDs": True,
    "commonLabels": {"team": "gpu"},
    "image": {"digest": "sha256:" + "a" * 64, "pullSecrets": [{"name": "registry"}]},
    "config": {
        "thresholds": {"low_utilization": 25},
        "agent": {"sample_interval": "2s", "families": ["native", "hami"]},
        "cluster": {"namespaces": ["ml", "vision"], "max_series": 64000000},
        "log": {"format": "json"},
        "ai": {"enabled": False, "api_url": ""},  # as in gpu-oour's file
        "control": {"enabled": False, "api_url": ""},
    },
    "agent": {
        "runtimeClassName": "nvidia",
        "priorityClassName": "system-node-critical",
        "gpuAllocation": {"ratio": 2},
        "web": {"secret": "web", "tls": True},
        "podLabels": {"sidecar.istio.io/inject": "false"},
        "podAnnotations": {"note": "x"},
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
    },
    "cluster": {"service": {"type": "NodePort"}, "web": {"secret": "web", "tls": False}},
    "analyzer": {
        "persistence": {"enabled": True, "storageClass": "fast", "size": "10Gi", "annotations": {"a": "b"}},
        "podDisruptionBudget": {"enabled": True},
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "hosts": [{"host": "gpu.example.com"}],
            "tls": [{"secretName": "tls", "hosts": ["gpu.example.com"]}],
        },
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}], "hostnames": ["gpu.example.com"]},
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "affinity": {"nodeAffinity": {}},
    },
    "monitor": {
        "serviceMonitor": {
            "labels": {"release": "prom"},
            "scrapeTimeout": "10s",
            "endpoint": {"metricRelabelings": [{"action": "drop", "sourceLabels": ["__name__"], "regex": "nodeGPU.*"}]},
        },
    },
    "rules": {"labels": {"release": "prom"}},
    "networkPolicy": {
        "enabled": True,
        "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "egress": {"enabled": True, "to": [{"ports": [{"port": 9090, "protocol": "TCP"}]}]},
    },
    "compatibility": {"handbookPodLabels": True},
}
SETS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "handbook": HANDBOOK | {"assumeCRDs": True},
    "everything": EVERYTHING,
    "prometheus": {"config": {"prometheus": {"url": "http://prometheus.monitoring:9090"}}},
    "replicas": {
        "config": {"analyzer": {"history": "postgresql://scope@db/scope"}},
        "analyzer": {
            "replicas": 2,
            "secretEnv": {"VGPUSCOPE_PROMETHEUS_PASSWORD": {"name": "prom", "key": "password"}},
        },
    },
    "pod monitors": {"assumeCRDs": True, "monitor": {"podMonitor": {"enabled": True}}},
    "handbook names": {"compatibility": {"handbookNames": True, "handbookPodLabels": True}},
    "agents only": {"cluster": {"enabled": False}, "analyzer": {"enabled": False}},
    "kubelet": {"config": {"agent": {"pods": "kubelet"}}, "agent": {"hami": {"mount": "directory"}}},
    "nothing of the host": {
        "config": {"agent": {"pods": "none"}},
        "agent": {
            "hami": {"mount": "none"},
            "podResources": {"enabled": False},
            "cgroups": {"enabled": False},
            "nodeLabels": {"gpu": None, "nvidia.com/gpu.present": None, "vgpuscope.io/plugin": None},
        },
    },
    "ratio on the node": {"agent": {"gpuAllocation": {"hostPath": "/etc/gpu_allocation.txt"}}},
    "reads pods": {"config": {"kube": {"enabled": True}, "prometheus": {"url": "http://prometheus:9090"}}},
    "dry run": {"config": {"reclaim": {"action": "scale"}, "control": {"enabled": True}}},
    "takes back": {
        "config": {"reclaim": {"action": "scale"}, "control": {"enabled": True, "dry_run": False}},
        "analyzer": {"reclaimNamespaces": ["ml", "vision"]},
    },
    "ratio of others": {"agent": {"gpuAllocation": {"configMap": "ratio"}}},
    "schedules": {"extender": {"enabled": True}, "plugin": {"enabled": True}},
    "in place of HAMi": {
        "extender": {
            "enabled": True,
            "replicas": 1,
            "schedulerName": "hami-scheduler",
            "persistence": {"enabled": True, "storageClass": "fast"},
            "webhook": {"enabled": True, "secret": "webhook-tls", "caBundle": "Y2E="},
            "kubeScheduler": {"image": {"tag": "v1.35.0"}, "extraArgs": ["--kube-api-qps=100"]},
        },
        "plugin": {"enabled": True, "runtimeClassName": "nvidia", "web": {"secret": "web", "tls": True}},
        "config": {"extender": {"gpu_scheduler_policy": "binpack"}, "plugin": {"split_count": 20}},
        "compatibility": {"handbookNames": True},
        "networkPolicy": {"enabled": True, "from": [{"podSelector": {}}]},
    },
    "decisions in a database": {
        "extender": {
            "enabled": True,
            "secretEnv": {"VGPUSCOPE_EXTENDER_STATE": {"name": "db", "key": "url"}},
            "webhook": {"enabled": True, "certManager": {"enabled": True}},
            "affinity": {"nodeAffinity": {}},
        },
    },
    "webhook with a web configuration": {
        "extender": {
            "enabled": True,
            "web": {"secret": "web", "tls": True},
            "webhook": {"enabled": True, "caBundle": "Y2E="},
        },
    },
}
