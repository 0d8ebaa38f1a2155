"""Allocate, asked by a kubelet that speaks with grpcio: who is served, what is written, what happens when it fails."""

import asyncio
import contextlib
import json
from types import SimpleNamespace

import grpc
import pytest

from tests.services.plugin.pluginrun import ALLOCATED, LOCK, PHASE, TO_ALLOCATE, assigned, lock
from tests.standins.kubelet import Kubelet, plugin_directory
from tests.standins.smallapi import small_api
from tests.waiting import until, wait_until
from vgpuscope.logic.plugin.devices import offered
from vgpuscope.logic.plugin.injection import HamiCore
from vgpuscope.model.plugin import GpuState, KubeletView, PluginGpu, StaticInstance
from vgpuscope.runtime.counters import Counters
from vgpuscope.services.plugin import allocation
from vgpuscope.services.plugin.allocation import Allocator
from vgpuscope.services.plugin.cluster import ClusterSide
from vgpuscope.sinks.container_dirs import ContainerDirs
from vgpuscope.sources.plugin.kubelet import KubeletSide

A, B, M = "GPU-aaaa", "GPU-bbbb", "GPU-mmmm"
MIG = "hami.io/vgpu-mig-allocations"
LOCKED = {LOCK: "2023-05-01T00:00:00Z,ml,p"}
INSTANCES = tuple(
    StaticInstance(uuid=f"MIG-{n}", gpu_instance=7 + n, compute_instance=0, profile="1g.10gb", start=n, size=1)
    for n in range(2)
)
STATES = {
    A: GpuState(gpu=PluginGpu(uuid=A, index=0, model="T4"), driver="ok"),
    B: GpuState(gpu=PluginGpu(uuid=B, index=1, model="T4"), driver="ok"),
    M: GpuState(gpu=PluginGpu(uuid=M, index=2, model="A100", mig=True, instances=INSTANCES), driver="ok"),
}


@pytest.fixture
async def world(tmp_path, request):
    """A plugin's answers behind its real socket, and a registered kubelet; GPUs can be changed by `states`.

    Its parameter: whether pods that HAMi did not place get whole GPUs.
    """
    hook = tmp_path / "vgpu"
    hook.mkdir()
    (hook / "libvgpu.so").touch()
    states, counters, kept = dict(STATES), Counters(), []
    control = HamiCore(hook=str(hook), library=str(hook / "libvgpu.so"), preload=str(hook / "ld.so.preload"))
    with small_api(tmp_path) as api, plugin_directory() as plugins, Kubelet(plugins) as kubelet:
        api.node("n1")
        cluster = ClusterSide("n1", api.kubeconfig)
        allocator = Allocator(
            cluster=cluster,
            dirs=ContainerDirs(str(hook), str(tmp_path / "locks")),
            control=control,
            states=lambda: states,
            devices=lambda: {one.id: one for one in offered(states.values(), split=2)},
            whole=getattr(request, "param", False),
            count=counters.count,
            kept=lambda: kept.append(1),
            kubelet=kubelet.view,
            patience=0.3,
            clock=lambda: 1705984204.0,
        )
        side = KubeletSide(str(plugins), allocator)
        side.offer(offered(states.values(), split=2))
        await side.listen()
        await side.register()
        await until(lambda: kubelet.devices)
        yield SimpleNamespace(
            api=api,
            kubelet=kubelet,
            cluster=cluster,
            side=side,
            allocator=allocator,
            states=states,
            hook=hook,
            counters=counters,
            kept=kept,
            path=tmp_path,
        )
        kubelet.forget()
        await side.close()
        await allocator.close()
        await cluster.close()


async def allocate(world, *containers):
    return await asyncio.to_thread(world.kubelet.allocate, *containers)


async def refusal(world, count):
    """What the kubelet is told."""
    with pytest.raises(grpc.RpcError) as refused:
        await allocate(world, [f"{A}-{n}" for n in range(count)])
    await world.allocator.close()  # the event is posted
    return refused.value.details()


def containers(*names, init=()):
    """Containers that ask for a GPU, and those whose name starts with `side`, which do not."""

    def one(name):
        asks = {} if name.startswith("side") else {"resources": {"limits": {"nvidia.com/gpu": 1}}}
        return {"name": name, **asks}

    return {"containers": [one(name) for name in names], "initContainers": [one(name) for name in init]}


def directories(world):
    return sorted(path.name for path in (world.hook / "containers").iterdir())


async def test_containers_are_served_in_order_and_the_last_one_ends_the_binding(world):
    text = f"{A},NVIDIA,1000,5:;;{B},NVIDIA,1500,10:{A},NVIDIA,500,7:;"
    spec = containers("first", "side", "second")
    spec["containers"][2]["resources"]["limits"]["nvidia.com/gpu"] = 2
    world.api.pod("p", assigned(text), spec=spec)
    world.api.annotate("nodes", "n1", **lock("p"))
    (answer,) = await allocate(world, [f"{A}-0"])
    assert answer.envs["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"
    pod = world.api.annotations("pods", "p")
    assert (pod[TO_ALLOCATE], pod[PHASE]) == (f";;{B},NVIDIA,1500,10:{A},NVIDIA,500,7:;", "allocating")
    assert LOCK in world.api.annotations("nodes", "n1")
    (answer,) = await allocate(world, [f"{B}-0", f"{B}-1"])
    assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == f"{B},{A}"
    assert answer.envs["CUDA_DEVICE_MEMORY_LIMIT_1"] == "500m"
    assert answer.envs["CUDA_DEVICE_SM_LIMIT"] == "10"
    pod = world.api.annotations("pods", "p")
    assert (pod[TO_ALLOCATE], pod[PHASE], pod[ALLOCATED]) == (";;;", "success", text)
    assert LOCK not in world.api.annotations("nodes", "n1")
    assert directories(world) == ["uid-p_first", "uid-p_second"]
    await world.allocator.close()
    assert [event["note"] for event in world.api.events] == ["Allocated GPU-0 on n1", "Allocated GPU-0, GPU-1 on n1"]
    assert {event["eventTime"] for event in world.api.events} == {"2024-01-23T04:30:04.000000Z"}  # by the passed clock


@pytest.mark.parametrize("served", ["", ";"])
async def test_segments_that_v2_10_leaves_out_still_reach_the_right_container(world, served):
    text = f"{A},NVIDIA,1000,0:;{B},NVIDIA,2000,0:;"  # two segments for three containers
    rest = text if not served else f";{B},NVIDIA,2000,0:;"
    world.api.pod("p", assigned(text) | {TO_ALLOCATE: rest}, spec=containers("side", "one", "two"))
    await allocate(world, [f"{A}-0"])
    assert directories(world) == ["uid-p_two" if served else "uid-p_one"]


async def test_init_containers_come_first(world):
    world.api.pod("p", assigned(f"{A},NVIDIA,1,0:;;"), spec=containers("side", init=("load",)))
    await allocate(world, [f"{A}-0"])
    assert directories(world) == ["uid-p_load"]


async def test_two_containers_at_once_get_two_segments(world):
    text = "".join(f"{A},NVIDIA,{n}000,0:;" for n in (1, 2, 3))
    world.api.pod("p", assigned(text), spec=containers("a", "b", "c"))
    answers = await asyncio.gather(*(allocate(world, [f"{A}-0"]) for _ in range(3)))
    limits = sorted(answer[0].envs["CUDA_DEVICE_MEMORY_LIMIT_0"] for answer in answers)
    assert limits == ["1000m", "2000m", "3000m"]
    assert directories(world) == ["uid-p_a", "uid-p_b", "uid-p_c"]
    assert world.api.annotations("pods", "p")[TO_ALLOCATE] == ";;;"


async def test_of_two_pods_the_one_that_the_kubelet_knows_is_served(world):
    world.api.pod("early", assigned(f"{A},NVIDIA,1,0:;", bound="1"))
    world.api.pod("late", assigned(f"{B},NVIDIA,2,0:;", bound="2"))
    world.kubelet.knows = KubeletView(pods=frozenset({("ml", "late")}), holding=frozenset())
    (answer,) = await allocate(world, [f"{A}-0"])
    assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == B
    world.kubelet.knows = KubeletView(
        pods=frozenset({("ml", "late"), ("ml", "early")}), holding=frozenset({("ml", "late", "main")})
    )
    (answer,) = await allocate(world, [f"{A}-0"])
    assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == A


@pytest.mark.parametrize(
    ("name", "annotations", "more"),
    [
        ("elsewhere", assigned(f"{A},NVIDIA,1,0:;", node="n2"), {"node": "n2"}),
        ("running", assigned(f"{A},NVIDIA,1,0:;"), {"phase": "Running"}),
        ("started", assigned(f"{A},NVIDIA,1,0:;"), {"started": True}),
        ("served", assigned(";", phase="success"), {}),
        ("plain", {}, {}),
        ("leaving", assigned(f"{A},NVIDIA,1,0:;"), {}),
        ("misplaced", assigned(f"{A},NVIDIA,1,0:;", node="n2"), {}),
        ("failed", assigned(f"{A},NVIDIA,1,0:;", phase="failed"), {}),
    ],
)
async def test_pods_of_other_nodes_and_phases_are_not_served(world, name, annotations, more):
    world.api.pod(name, annotations, **more)
    if name == "leaving":
        world.api.objects["/api/v1/namespaces/ml/pods/leaving"]["metadata"]["deletionTimestamp"] = (
            "2026-11-17T08:00:00Z"
        )
    assert (await refusal(world, 1)).startswith("ALLOCATE_POD_UNKNOWN")
    assert world.allocator.failures == {"ALLOCATE_POD_UNKNOWN": 1}
    assert [path for path, _ in world.api.patches if name not in {"leaving"}] == []


FAILED = {
    "ALLOCATE_COUNT_MISMATCH": f"{A},NVIDIA,1,0:{B},NVIDIA,1,0:;",
    "ALLOCATE_DEVICE_UNKNOWN": "GPU-gone,NVIDIA,1,0:;",
    "ANNOTATION_MALFORMED": f"{A},NVIDIA,much,0:;",
    "ALLOCATE_DEVICE_UNHEALTHY": f"{B},NVIDIA,1,0:;",
}


@pytest.mark.parametrize("code", FAILED)
async def test_a_failure_ends_the_binding_with_its_code(world, code):
    world.states[B] = GpuState(gpu=STATES[B].gpu, driver="lost")
    world.api.pod("p", assigned(FAILED[code]))
    world.api.annotate("nodes", "n1", **lock("p"))
    said = await refusal(world, 1)
    assert said.startswith(code), said
    pod = world.api.annotations("pods", "p")
    assert (pod[PHASE], pod[TO_ALLOCATE]) == ("failed", FAILED[code])
    assert LOCK not in world.api.annotations("nodes", "n1")
    assert world.allocator.failures == {code: 1}
    (event,) = world.api.events
    assert (event["reason"], event["type"]) == ("DeviceAllocationFailed", "Warning")
    assert event["note"].startswith(code)
    assert not (world.hook / "containers").exists()


def taken_back(world, code):
    """Everything that a failure must leave behind."""
    (event,) = world.api.events
    assert (event["reason"], event["regarding"]["name"], event["note"].split(":")[0]) == (
        "DeviceAllocationFailed",
        "p",
        code,
    )
    assert world.api.annotations("pods", "p")[PHASE] == "failed"
    assert LOCK not in world.api.annotations("nodes", "n1")
    assert not (world.hook / "containers").exists() or directories(world) == []
    assert world.allocator.failures == {code: 1}


async def test_a_pod_that_changes_all_the_time_fails_and_is_taken_back(world):
    world.api.pod("p", assigned(f"{A},NVIDIA,1,0:;"))
    world.api.annotate("nodes", "n1", **LOCKED)
    world.api.before_patch += [lambda _: world.api.annotate("pods", "p", note="hello")] * 5
    await refusal(world, 1)
    taken_back(world, "SCHED_ALLOCATE_FAILED")


async def test_an_error_of_our_own_is_taken_back(world, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(allocation, "controlled", broken)
    world.api.pod("p", assigned(f"{A},NVIDIA,1,0:;"))
    world.api.annotate("nodes", "n1", **LOCKED)
    assert "ZeroDivisionError: ours" in await refusal(world, 1)
    taken_back(world, "SCHED_ALLOCATE_FAILED")


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (("PATCH", "/pods"), "KUBE_UNWRITTEN"),
        (("GET", "/nodes"), "KUBE_UNREADABLE"),
        (("GET", "/pods"), "KUBE_UNREADABLE"),
    ],
)
async def test_what_could_not_be_taken_back_is_taken_back_when_the_api_server_answers(world, request_, code):
    world.api.pod("p", assigned(f"{A},NVIDIA,1,0:;"))
    world.api.annotate("nodes", "n1", **LOCKED)
    world.api.fail[request_] = 503
    assert (await refusal(world, 1)).startswith(code)
    assert world.kept == [1]
    assert not await world.allocator.undo_failed()
    assert world.api.annotations("pods", "p")[PHASE] == "allocating"
    world.api.fail.clear()
    assert await world.allocator.undo_failed()
    await world.allocator.close()
    taken_back(world, code)


async def failed_unseen(world):
    """An Allocate that failed before the pod was known."""
    world.api.fail["GET", "/nodes"] = 503
    await refusal(world, 1)
    world.api.fail.clear()


async def test_a_pod_that_took_the_lock_after_the_failure_is_not_the_one_that_failed(world):
    await failed_unseen(world)
    world.api.pod("next", assigned(f"{A},NVIDIA,1,0:;"))
    world.api.annotate("nodes", "n1", **{LOCK: "2222-02-02T00:00:00Z,ml,next"})
    assert not await world.allocator.undo_failed()
    assert world.api.annotations("pods", "next")[PHASE] == "allocating"
    assert LOCK in world.api.annotations("nodes", "n1")
    world.api.pod("next", assigned(f"{A},NVIDIA,1,0:;"), phase="Failed")  # the kubelet ended it
    assert await world.allocator.undo_failed()
    assert LOCK not in world.api.annotations("nodes", "n1")


async def test_a_pod_that_is_served_at_the_second_request_has_not_failed(world):
    world.api.pod("p", assigned(f"{A},NVIDIA,1,0:;{B},NVIDIA,1,0:;"), spec=containers("one", "two"))
    world.api.annotate("nodes", "n1", **LOCKED)
    await failed_unseen(world)
    await allocate(world, [f"{A}-0"])
    assert await world.allocator.undo_failed()
    assert world.api.annotations("pods", "p")[PHASE] == "allocating"
    assert LOCK in world.api.annotations("nodes", "n1")


async def test_another_pod_of_the_same_name_does_not_pay_for_the_failure(world):
    world.api.pod("p", assigned(f"{A},NVIDIA,1,0:;"))
    world.api.fail["PATCH", "/pods"] = 503
    await refusal(world, 1)
    world.api.fail.clear()
    world.api.pod("p", assigned(f"{A},NVIDIA,1,0:;"))
    world.api.objects["/api/v1/namespaces/ml/pods/p"]["metadata"]["uid"] = "uid-of-another"
    world.api.annotate("nodes", "n1", **LOCKED)
    assert await world.allocator.undo_failed()
    assert world.api.annotations("pods", "p")[PHASE] == "allocating"
    assert LOCK in world.api.annotations("nodes", "n1")


async def test_a_failure_does_not_release_the_lock_of_another_pod(world):
    world.api.pod("p", assigned("GPU-gone,NVIDIA,1,0:;"))
    world.api.annotate("nodes", "n1", **lock("other"))
    world.api.pod("other", {}, phase="Running")
    await refusal(world, 1)
    assert world.api.annotations("nodes", "n1")[LOCK].endswith("other")


async def test_a_lock_is_released_although_the_kubelet_changes_the_node_meanwhile(world):
    world.api.pod("p", assigned(f"{A},NVIDIA,1,0:;"))
    world.api.annotate("nodes", "n1", **lock("p"))
    world.api.before_patch += [lambda _: world.api.annotate("nodes", "n1", status="new")] * 3
    await allocate(world, [f"{A}-0"])
    assert LOCK not in world.api.annotations("nodes", "n1")


async def test_a_lock_that_another_pod_took_meanwhile_stays(world):
    world.api.pod("p", assigned(f"{A},NVIDIA,1,0:;"))
    world.api.annotate("nodes", "n1", **lock("p"))
    world.api.before_patch.append(lambda _: world.api.annotate("nodes", "n1", **lock("next")))
    await allocate(world, [f"{A}-0"])
    assert world.api.annotations("nodes", "n1")[LOCK].endswith("next")


async def test_a_lock_of_old_releases_that_names_nobody_is_released(world):
    world.api.pod("p", assigned(f"{A},NVIDIA,1,0:;"))
    world.api.annotate("nodes", "n1", **{LOCK: "2023-05-01T00:00:00Z"})
    await allocate(world, [f"{A}-0"])
    assert LOCK not in world.api.annotations("nodes", "n1")


async def test_a_pod_that_vanished_leaves_no_lock(world):
    world.api.annotate("nodes", "n1", **lock("vanished"))
    assert (await refusal(world, 1)).startswith("ALLOCATE_POD_UNKNOWN")
    assert LOCK not in world.api.annotations("nodes", "n1")


async def test_a_pod_that_vanishes_in_between_is_not_served(world):
    world.api.pod("p", assigned(f"{A},NVIDIA,1,0:;"))

    def vanish(_):
        world.api.drop("p")
        world.api.pod("p", {}, phase="Running")  # another one of the same name: the version differs

    world.api.before_patch.append(vanish)
    assert (await refusal(world, 1)).startswith("ALLOCATE_POD_UNKNOWN")
    assert directories(world) == []


async def test_a_pod_that_was_changed_in_between_is_read_again(world):
    world.api.pod("p", assigned(f"{A},NVIDIA,1,0:;"))
    world.api.before_patch.append(lambda _: world.api.annotate("pods", "p", note="hello"))
    await allocate(world, [f"{A}-0"])
    assert world.api.annotations("pods", "p")[PHASE] == "success"
    assert directories(world) == ["uid-p_main"]


async def test_without_an_api_server_nothing_is_given(world):
    world.api.pod("p", assigned(f"{A},NVIDIA,1,0:;"))
    world.api.fail["GET", "/pods"] = 503
    assert (await refusal(world, 1)).startswith("KUBE_UNREADABLE")
    assert world.api.annotations("pods", "p")[PHASE] == "allocating"
    world.api.fail.clear()
    await allocate(world, [f"{A}-0"])


async def test_a_change_that_the_api_server_refuses_takes_everything_back(world):
    world.api.pod("p", assigned(f"{A},NVIDIA,1,0:;"))
    world.api.fail["PATCH", "/pods"] = 500
    assert (await refusal(world, 1)).startswith("KUBE_UNWRITTEN")
    assert directories(world) == []


async def test_an_event_that_cannot_be_posted_costs_no_container_its_devices(world):
    world.api.pod("p", assigned(f"{A},NVIDIA,1,0:;"))
    world.api.fail["POST", "/events"] = 403
    await allocate(world, [f"{A}-0"])
    await world.allocator.close()
    assert world.counters.errors == {"KUBE_FORBIDDEN": 1}


async def test_a_hook_path_that_is_a_file_is_a_failure_with_a_code(world):
    (world.hook / "containers").touch()
    world.api.pod("p", assigned(f"{A},NVIDIA,1,0:;"))
    assert (await refusal(world, 1)).startswith("ALLOCATE_DIRECTORY")
    assert world.api.annotations("pods", "p")[PHASE] == "failed"


async def test_a_container_that_wants_no_control_gets_no_limits_and_no_region(world):
    spec = containers("main")
    spec["containers"][0]["env"] = [{"name": "CUDA_DISABLE_CONTROL", "value": "true"}]
    world.api.pod("p", assigned(f"{A},NVIDIA,1,0:;"), spec=spec)
    (answer,) = await allocate(world, [f"{A}-0"])
    assert (dict(answer.envs), list(answer.mounts)) == ({"NVIDIA_VISIBLE_DEVICES": A}, [])
    assert not (world.hook / "containers").exists()
    assert world.api.annotations("pods", "p")[PHASE] == "success"


async def test_an_old_directory_of_the_container_is_replaced(world):
    old = world.hook / "containers" / "uid-p_main"
    old.mkdir(parents=True)
    (old / "old.cache").touch()
    world.api.pod("p", assigned(f"{A},NVIDIA,1,0:;"))
    await allocate(world, [f"{A}-0"])
    assert list(old.iterdir()) == []


whole_gpus = pytest.mark.parametrize("world", [True], indirect=True)


async def whole(world, *ids):
    """The events after an Allocate."""
    await allocate(world, ids)
    await world.allocator.close()
    return [(event["regarding"]["name"], event["note"]) for event in world.api.events]


@whole_gpus
async def test_the_only_pod_that_asks_for_as_many_whole_gpus_gets_the_event(world, caplog):
    caplog.set_level("INFO")
    world.api.pod("other", {}, spec=containers("side"))
    world.api.pod("placed", assigned(";"), started=True)
    world.api.pod("elsewhere", {}, node="n2")
    world.api.pod("p", {}, spec=containers("one", "two"))
    assert await whole(world, f"{B}-0") == [("p", "Allocated GPU-1 on n1")]
    assert await whole(world, f"{A}-0") == [("p", "Allocated GPU-1 on n1"), ("p", "Allocated GPU-0 on n1")]
    world.api.pod("next", {})  # while the first one is still pending
    assert (await whole(world, "MIG-1"))[2:] == [("next", "Allocated GPU-2 on n1")]
    said = [record.fields for record in caplog.records if record.message == "allocated whole devices"]
    assert [(one["node"], one["gpus"], one["devices"], one["pod"]) for one in said] == [
        ("n1", "GPU-1", B, "ml/p"),
        ("n1", "GPU-0", A, "ml/p"),
        ("n1", "GPU-2", "MIG-1", "ml/next"),
    ]


@whole_gpus
@pytest.mark.parametrize("asking", [(), ("p", "q")])
async def test_whole_gpus_that_may_be_of_several_pods_are_only_logged(world, asking, caplog):
    caplog.set_level("INFO")
    for name in asking:
        world.api.pod(name, {})
    world.api.pod("more", {}, spec={"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]})
    assert await whole(world, f"{B}-0") == []
    (said,) = [record.fields for record in caplog.records if record.message == "allocated whole devices"]
    assert (said["node"], said["gpus"], said.get("pod")) == ("n1", "GPU-1", None)


async def test_mig_instances_are_found_by_profile_and_place_and_named_in_the_annotation(world):
    chosen = [
        {
            "containerIndex": 0,
            "deviceIndex": 0,
            "gpuUUID": M,
            "profile": "1g.10gb",
            "placement": {"start": 1, "size": 1},
        }
    ]
    world.api.pod("p", assigned(f"{M},NVIDIA,9728,15:;") | {MIG: json.dumps(chosen)})
    (answer,) = await allocate(world, ["MIG-0"])
    assert (dict(answer.envs), list(answer.mounts)) == ({"NVIDIA_VISIBLE_DEVICES": "MIG-1"}, [])
    made = {"migUUID": "MIG-1", "gpuInstanceID": 8, "computeInstanceID": 0}
    assert json.loads(world.api.annotations("pods", "p")[MIG]) == [chosen[0] | made]


async def test_mig_instances_can_be_assigned_by_their_ids(world):
    world.api.pod("p", assigned("MIG-1,NVIDIA,9728,15:;"))
    (answer,) = await allocate(world, ["MIG-0"])
    assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == "MIG-1"
    await world.allocator.close()
    assert [event["note"] for event in world.api.events] == ["Allocated GPU-2 on n1"]


async def test_a_mig_instance_that_does_not_exist_is_not_given(world):
    world.api.pod("p", assigned(f"{M},NVIDIA,9728,15:;"))
    assert (await refusal(world, 1)).startswith("ALLOCATE_DEVICE_UNKNOWN")


async def hung_up(world, text=f"{A},NVIDIA,1,0:;", spec=None):
    """An Allocate for pod p during which the kubelet hangs up; returns when all work is done."""
    world.api.pod("p", assigned(text), spec=spec)
    world.api.annotate("nodes", "n1", **lock("p"))
    allocations = world.allocator.allocations

    def hang_up(_):
        world.kubelet.forget()
        wait_until(lambda: not world.side.followers)  # the plugin has noticed

    world.api.before_patch.append(hang_up)
    with contextlib.suppress(grpc.RpcError, ValueError):
        await allocate(world, [f"{A}-0"])
    await until(lambda: world.allocator.allocations != allocations)  # the last thing that is done
    await world.allocator.close()


async def test_a_kubelet_that_hangs_up_leaves_no_pod_half_served(world):
    await hung_up(world)
    assert world.api.annotations("pods", "p")[PHASE] == "success"
    assert directories(world) == ["uid-p_main"]


async def registered_again(world):
    await world.side.register()
    await until(lambda: world.side.followers)


async def test_a_kubelet_that_restarted_gets_the_answer_that_it_has_missed_once(world):
    await hung_up(world)
    await registered_again(world)
    (answer,) = await allocate(world, [f"{B}-0"])
    assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == A
    directory = next(mount.host_path for mount in answer.mounts if mount.container_path == str(world.hook))
    assert directory.endswith("uid-p_main")
    assert directories(world) == ["uid-p_main"]
    assert world.allocator.allocations == 1
    assert (await refusal(world, 1)).startswith("ALLOCATE_POD_UNKNOWN")


async def test_a_missed_answer_is_not_given_to_others(world):
    await hung_up(world)
    await registered_again(world)
    assert (await refusal(world, 2)).startswith("ALLOCATE_POD_UNKNOWN")  # another number of devices
    world.api.pod("p", assigned(";"), phase="Running")
    world.api.pod("q", assigned(f"{B},NVIDIA,1,0:;"))
    (answer,) = await allocate(world, [f"{A}-0"])
    assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == B
