"""The console over a real Prometheus: facts of agents by our own queries, and charts whose every sample is known."""

import time

import pytest

from tests.contract.promworld import prometheus, write
from tests.services.analyzer.analyzing import running, uuid
from vgpuscope.catalog import agent as m
from vgpuscope.services.analyzer.settings.settings import Settings
from vgpuscope.services.analyzer.sources.sources import Sources

GIB = 1024.0**3
EVERY, SECONDS = 15, 900
WHO = {"namespace": "ml", "pod": "train", "pod_uid": "u", "container": "main"}


def fleet(now: float):
    """Two GPUs of one node: one works at 40 % in a container with limits, the other does nothing.

    As of every agent, means and maxima of its window are beside the values at its scrapes, and differ from them.
    """
    times = [now - SECONDS + step * EVERY for step in range(SECONDS // EVERY + 1)]
    place = {"job": "agent", "instance": "node-0:9394", "node": "node-0"}

    def series(metric, value, **labels):
        return {"__name__": metric.name, **place, **labels}, [(at, float(value)) for at in times]

    for number, util in ((0, 0.4), (1, 0.0)):
        gpu = {"gpu_uuid": uuid(number)}
        yield series(m.GPU_INFO, 1, **gpu, gpu_index=str(number), model="NVIDIA A100-SXM4-80GB", serial=f"s-{number}")
        yield series(m.GPU_UTILIZATION, util / 2, **gpu)
        yield series(m.GPU_UTILIZATION_MEAN, util, **gpu)
        yield series(m.GPU_UTILIZATION_MAX, 2 * util, **gpu)
        yield series(m.GPU_MEMORY_USED, 10 * GIB, **gpu)
        yield series(m.GPU_MEMORY_TOTAL, 80 * GIB, **gpu)
        yield series(m.GPU_POWER, 90 + 100 * number, **gpu)
        yield series(m.GPU_POWER_MEAN, 100 + 100 * number, **gpu)
        yield series(m.GPU_POWER_MAX, 130 + 100 * number, **gpu)
        yield series(m.GPU_TEMPERATURE, 50 + number, **gpu)
        for mode in ("hami", "exclusive", "free"):
            yield series(m.GPU_MODE, mode == ("hami", "free")[number], **gpu, mode=mode)
        for owner, size in (("containers", 9), ("system", 1), ("unattributed", 0), ("free", 70)):
            yield series(m.GPU_MEMORY_LEDGER, size * GIB, **gpu, owner=owner)
    held = {**WHO, "gpu_uuid": uuid(0)}
    yield series(m.CONTAINER_INFO, 1, **held, mode="hami", allocated="true")
    yield series(m.CONTAINER_SM, 0.2, **held)
    yield series(m.CONTAINER_SM_MEAN, 0.4, **held)
    yield series(m.CONTAINER_SM_MAX, 0.8, **held)
    yield series(m.CONTAINER_MEMORY_USED, 9 * GIB, **held)
    yield series(m.CONTAINER_MEMORY_TOTAL, 16 * GIB, **held)
    for state in ("idle", "active"):
        yield series(m.CONTAINER_STATE, state == "active", **held, state=state)
    yield series(m.VGPU_SM_LIMIT, 0.5, **held, vdevice_index="0")
    yield from beside(place, times)
    yield series(m.SOURCE_UP, 1, source="nvml")
    yield series(m.BUILD_INFO, 1, version="9.9")
    yield series(m.SAMPLE_TIME, now)


def beside(place, times):
    """The same pod and node beside the GPU: counters that grow by so much a second, and gauges."""

    def series(metric, value, **labels):
        return {"__name__": metric.name, **place, **labels}, [(at, value(at - times[0])) for at in times]

    for metric, speed in ((m.HOST_CPU, 2.5), (m.HOST_PERIODS, 10), (m.HOST_THROTTLED_PERIODS, 2), (m.HOST_READ, 4096)):
        yield series(metric, lambda age, speed=speed: 7.0 + age * speed, **WHO)
    for mode, speed in {"user": 3.0, "system": 1.0, "iowait": 0.8, "steal": 0.0, "idle": 11.2}.items():
        yield series(m.NODE_CPU, lambda age, speed=speed: 1e6 + age * speed, mode=mode)
    yield series(m.HOST_WORKING_SET, lambda _: 3 * GIB, **WHO)
    yield series(m.HOST_MEMORY_LIMIT, lambda _: 4 * GIB, **WHO)
    yield series(m.NODE_CPUS, lambda _: 16.0)
    yield series(m.NODE_LOAD, lambda _: 4.5, minutes="1")
    method = {"resource": "sm", "method": "nvml-process", "certainty": "measured"}
    yield series(m.CONTAINER_METHOD, lambda _: 1.0, **WHO, gpu_uuid=uuid(0), **method)
    yield series(m.CONTAINER_SM_ERROR, lambda _: 0.01, **WHO, gpu_uuid=uuid(0))


@pytest.fixture
async def analyzer(tmp_path):
    with prometheus(tmp_path) as url:
        now = time.time()
        write(url, list(fleet(now)))
        flags = {"prometheus.url": url, "prometheus.query_condition": '{pod!=""}', "scheduler.interval": 3600}
        config = Settings(flags={"analyzer.listen": "127.0.0.1:0", **flags}, environ={}, file=None).config
        async with running(sources=Sources(config), **flags) as found:
            await found.analysed()
            found.written = now
            yield found


async def test_agents_facts_and_charts_come_from_the_engine(analyzer):
    answer = await analyzer.json("/api/v1/gpus")
    assert {part["name"]: part["state"] for part in answer["parts"]} == {
        "analysis": "ok",
        "cluster": "absent",
        "agents": "ok",
    }
    busy, quiet = answer["rows"]
    assert [(row["mode"], row["temperature"], row["memory_unattributed"]) for row in (busy, quiet)] == [
        ("hami", 50.0, 0),
        ("free", 51.0, 0),
    ]
    (tenant,) = busy["tenants"]
    assert (tenant["pod"], tenant["state"], tenant["cores_limit"], tenant["memory_limit"]) == (
        "train",
        "active",
        50,
        16 * GIB,
    )
    (node,) = (await analyzer.json("/api/v1/nodes"))["rows"]
    assert (node["agent"]["version"], node["agent"]["sources"][0]["source"]) == ("9.9", "nvml")
    detail = await analyzer.json(f"/api/v1/gpus/{uuid(0)}")
    assert detail["hardware"]["serial"] == "s-0"
    ledger = detail["ledger"]
    assert (ledger["total"], sum(row["memory"] for row in ledger["rows"])) == (80 * GIB, 80 * GIB)
    await charts(analyzer)


async def charts(analyzer):
    """Means and sums over the last minutes, against the values that were written."""

    async def last(query: str) -> dict[str, float | None]:
        chart = await analyzer.json(f"/api/v1/history/series?range=30m&points=60&end={analyzer.written}&{query}")
        assert chart["source"] == "prometheus"
        assert chart["parts"][-1] == {**chart["parts"][-1], "name": "prometheus", "state": "ok"}
        assert all(len(column["values"]) == len(chart["times"]) <= 60 for column in chart["columns"])
        assert all(column["promql"] for column in chart["columns"])
        return {column["quantity"]: column["values"][-2] for column in chart["columns"]}

    # Neither an energy counter nor a cluster exporter's allocations were written.
    absent = {"energy": None, "memory_allocated": None, "cores_allocated": None}
    one = {"use": 0.4, "use_max": 0.8, "memory_used": 10 * GIB, "memory_max": 10 * GIB, "power": 100.0}
    assert await last(f"gpu_id={uuid(0)}") == one | {"power_max": 130.0} | absent
    # peaks of several GPUs need not be at the same moment
    node = {"use": 0.2, "use_max": 0.8, "memory_used": 20 * GIB, "memory_max": None, "power": 300.0}
    assert await last("node=node-0") == await last("") == node | {"power_max": None} | absent
    pod = await last("namespace=ml&pod=train&quantity=use,use_max,memory_used")
    assert pod == {"use": 0.4, "use_max": 0.8, "memory_used": 9 * GIB}
    empty = await analyzer.json("/api/v1/history/series?range=30m&gpu_id=GPU-nope")
    assert empty["source"] != "prometheus"


async def test_a_pod_is_shown_with_what_it_uses_beside_its_gpu(analyzer):
    found = (await analyzer.json("/api/v1/workloads/ml/train"))["beside"]
    (row,) = found["containers"]
    assert (row["container"], row["cpu_cores"], row["read_rate"]) == ("main", pytest.approx(2.5), pytest.approx(4096))
    assert (row["throttled"], row["memory"], row["memory_limit"]) == (pytest.approx(0.2), 3 * GIB, 4 * GIB)
    assert (row["cpu_limit"], row["written_rate"], found["received_rate"]) == (None, None, None)
    assert found["figures"] == [
        {
            "gpu_id": uuid(0),
            "mig": None,
            "container": "main",
            "resource": "sm",
            "method": "nvml-process",
            "certainty": "measured",
            "error": 0.01,
        }
    ]
    assert (found["source"], found["processes"]) == ("prometheus", None)


async def test_a_node_is_shown_with_its_cpu_memory_and_load(analyzer):
    found = (await analyzer.json("/api/v1/nodes/node-0"))["beside"]
    assert (found["cpus"], found["cpu_used"], found["iowait"]) == (16, pytest.approx(0.25), pytest.approx(0.05))
    assert (found["load"], found["memory_total"]) == ([4.5, None, None], None)
