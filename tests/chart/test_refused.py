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
]


@pytest.mark.parametrize(("values", "path", "reason"), WRONG, ids=[f"{path}-{reason}" for _, path, reason in WRONG])
def test_the_schema_refuses(values, path, reason):
    said = refusal(values)
    assert f"'{path}'" in said
    assert reason in said
    assert "hunter2" not in said


TOGETHER = [
    ({"analyzer": {"replicas": 2}}, "more than 1 replica needs a shared history"),
    ({"agent": {"enabled": False}}, "set config.prometheus.url or config.analyzer.targets"),
    ({"monitor": {"enabled": False}}, "set config.prometheus.url or config.analyzer.targets"),
    ({"agent": {"gpuAllocation": {"ratio": 2, "hostPath": "/x/y"}}}, "only one of ratio, configMap and hostPath"),
    ({"agent": {"hami": {"path": "/vgpu"}}}, "Set agent.hami.mount to directory"),
    ({"analyzer": {"ingress": {"enabled": True}}}, "at least one host"),
    ({"analyzer": {"httpRoute": {"enabled": True}}}, "at least one gateway"),
    ({"config": {"analyzer": {"history": "postgresql://u:hunter2@db/x"}}}, "the URL has a password"),
]


@pytest.mark.parametrize(("values", "reason"), TOGETHER, ids=[reason for _, reason in TOGETHER])
def test_values_that_exclude_each_other_are_refused(values, reason):
    said = refusal(values)
    assert reason in said
    assert "hunter2" not in said
