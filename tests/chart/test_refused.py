"""Values that cannot be meant: Helm names the key and says what is wrong, before anything is installed."""

import pytest

from tests.chart.helmrun import refusal

pytestmark = pytest.mark.real

WRONG = [
    ({"agent": {"port": "9394x"}}, "/agent/port", "got string, want integer"),
    ({"agent": {"prot": 9394}}, "/agent", "'prot' not allowed"),
    ({"agnet": {}}, "", "'agnet' not allowed"),
    ({"monitor": {"service": {"port": 70000}}}, "/monitor/service/port", "maximum: got 70,000, want 65,535"),
    ({"monitor": {"service": {"type": "Headless"}}}, "/monitor/service/type", "one of"),
    ({"monitor": {"serviceMonitor": {"interval": 15}}}, "/monitor/serviceMonitor/interval", "got number, want string"),
    ({"monitor": {"serviceMonitor": {"interval": "15"}}}, "/monitor/serviceMonitor/interval", "'15' does not match"),
    ({"analyzer": {"persistence": {"enabled": "yes"}}}, "/analyzer/persistence/enabled", "got string, want boolean"),
    ({"config": {"thresholds": {"low_utilisation": 20}}}, "/config/thresholds", "'low_utilisation' not allowed"),
    ({"config": {"thresholds": {"low_utilization": "a"}}}, "/config/thresholds/low_utilization", "want number"),
    ({"config": {"thresholds": {"low_utilization": 200}}}, "/config/thresholds/low_utilization", "maximum"),
    ({"config": {"prometheus": {"url": "prometheus:9090"}}}, "/config/prometheus/url", "does not match pattern"),
    ({"config": {"log": {"format": "xml"}}}, "/config/log/format", "one of 'text', 'json'"),
    ({"config": {"agent": {"sample_interval": "soon"}}}, "/config/agent/sample_interval", "'soon' does not match"),
    ({"config": {"agent": {"pods": "foo"}}}, "/config/agent/pods", "'foo' does not match"),
    ({"config": {"agent": {"listen": ":1"}}}, "/config/agent", "'listen' not allowed"),
    ({"config": {"prometheus": {"password": "hunter2"}}}, "/config/prometheus", "'password' not allowed"),
    ({"analyzer": {"secretEnv": {"PASSWORT": {"name": "a", "key": "b"}}}}, "/analyzer/secretEnv", "'PASSWORT'"),
    ({"agent": {"hami": {"path": "usr/local/vgpu"}}}, "/agent/hami/path", "does not match pattern"),
    ({"extender": {"replicas": 0}}, "/extender/replicas", "minimum"),
    ({"extender": {"schedulerName": "GPU_scheduler"}}, "/extender/schedulerName", "does not match pattern"),
    ({"extender": {"kubeScheduler": {"extraArgs": ["v=5"]}}}, "/extender/kubeScheduler/extraArgs/0", "does not match"),
    ({"config": {"extender": {"leader_elect": False}}}, "/config/extender", "'leader_elect' not allowed"),
    ({"config": {"plugin": {"hook_path": "/x"}}}, "/config/plugin", "'hook_path' not allowed"),
    ({"extender": {"secretEnv": {"TOKEN": {"name": "a", "key": "b"}}}}, "/extender/secretEnv", "'TOKEN' not allowed"),
    ({"plugin": {"hookPath": "usr/local"}}, "/plugin/hookPath", "does not match pattern"),
]


@pytest.mark.parametrize(("values", "path", "reason"), WRONG, ids=[f"{path}-{reason}" for _, path, reason in WRONG])
def test_the_schema_refuses(values, path, reason):
    said = refusal(values)
    assert f"'{path}'" in said
    assert reason in said
    assert "hunter2" not in said


def extender(**values):
    return {"extender": {"enabled": True, **values}}


TOGETHER = [
    ({"analyzer": {"replicas": 2}}, "more than 1 replica needs a shared history"),
    ({"agent": {"enabled": False}}, "set config.prometheus.url or config.analyzer.targets"),
    ({"monitor": {"enabled": False}}, "set config.prometheus.url or config.analyzer.targets"),
    ({"agent": {"gpuAllocation": {"ratio": 2, "hostPath": "/x/y"}}}, "only one of ratio, configMap and hostPath"),
    ({"agent": {"hami": {"path": "/vgpu"}}}, "Set agent.hami.mount to directory"),
    ({"analyzer": {"ingress": {"enabled": True}}}, "at least one host"),
    ({"analyzer": {"httpRoute": {"enabled": True}}}, "at least one gateway"),
    ({"config": {"analyzer": {"history": "postgresql://u:hunter2@db/x"}}}, "the URL has a password"),
    (extender(schedulerName="default-scheduler"), "default-scheduler is the cluster's own scheduler"),
    (extender(persistence={"enabled": True}), "Set extender.replicas to 1"),
    (
        extender(replicas=1, persistence={"enabled": True}) | {"config": {"extender": {"state": "postgresql://db/x"}}},
        "Set only one of them",
    ),
    (extender() | {"config": {"extender": {"state": "postgresql://u:hunter2@db/x"}}}, "the URL has a password"),
    (extender() | {"config": {"cluster": {"scheduler_metrics": "on"}}}, "counts every binding twice"),
    (extender(webhook={"enabled": True}), "a certificate is needed"),
    (extender(webhook={"enabled": True, "secret": "tls"}), "Set extender.webhook.caBundle"),
    (
        extender(webhook={"enabled": True, "secret": "tls", "certManager": {"enabled": True}}),
        "set only one of secret and certManager.enabled",
    ),
    (extender(webhook={"enabled": True, "caBundle": "Y2E="}, web={"secret": "web"}), "Set extender.web.tls"),
]


@pytest.mark.parametrize(("values", "reason"), TOGETHER, ids=[reason for _, reason in TOGETHER])
def test_values_that_exclude_each_other_are_refused(values, reason):
    said = refusal(values)
    assert reason in said
    assert "hunter2" not in said
