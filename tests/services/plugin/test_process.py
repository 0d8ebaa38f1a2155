"""The device plugin as a process: a kubelet that speaks with grpcio, the real binding on a stand-in driver."""

import json
import os
import time
from contextlib import ExitStack

import grpc
import pytest

from tests.attack.test_feedback import gpus_of
from tests.native.scenario import NO_PERMISSION, mig_uuid
from tests.services.plugin.pluginrun import (
    ALLOCATED,
    FIRST,
    LOCK,
    PHASE,
    REGISTER,
    SECOND,
    TO_ALLOCATE,
    assigned,
    lock,
    plugin,
    plugin_at,
)
from tests.services.plugin.test_feedback import REAL, RECENT, Container
from tests.standins.smallapi import small_api


def soon(condition, *, within):
    end = time.monotonic() + within
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)  # between two looks, not in place of one
    return condition()


def healthy(running):
    return {id_ for id_, health in running.kubelet.devices.items() if health == "Healthy"}


def test_a_container_gets_its_share_of_a_gpu_from_registration_to_event(tmp_path):
    with plugin(tmp_path, "--split-count", "4") as running:
        kubelet, api = running.kubelet, running.api
        request = kubelet.registered[0]
        assert (request.resource_name, request.options.get_preferred_allocation_available) == ("nvidia.com/gpu", True)
        assert healthy(running) == {f"{uuid}-{n}" for uuid in (FIRST, SECOND) for n in range(4)}
        assert kubelet.options().get_preferred_allocation_available
        kubelet.prestart(f"{FIRST}-0")
        kubelet.until(running.registered)
        first = running.registered()[0]
        assert first == {
            "id": FIRST,
            "count": 4,
            "devmem": 81920,
            "devcore": 100,
            "type": "NVIDIA A100-SXM4-80GB",
            "mode": "hami-core",
            "health": True,
        }
        kubelet.until(lambda: running.ready()[0] == 200)

        api.pod("train", assigned(f"{SECOND},NVIDIA,8000,30:;"))
        api.annotate("nodes", "n1", **lock("train"))
        chosen = kubelet.prefer([f"{FIRST}-0", f"{FIRST}-1", f"{SECOND}-3"], 1)
        assert chosen == [f"{SECOND}-3"]  # that of the GPU which the scheduler assigned
        (answer,) = kubelet.allocate(chosen)
        cache = answer.envs.pop("CUDA_DEVICE_MEMORY_SHARED_CACHE")
        assert dict(answer.envs) == {
            "NVIDIA_VISIBLE_DEVICES": SECOND,
            "CUDA_DEVICE_MEMORY_LIMIT_0": "8000m",
            "CUDA_DEVICE_SM_LIMIT": "30",
        }
        hook, directory = str(running.hook), running.hook / "containers" / "uid-train_main"
        assert cache.startswith(f"{hook}/")
        assert cache.endswith(".cache")
        assert [(m.container_path, m.host_path, m.read_only) for m in answer.mounts] == [
            (f"{hook}/libvgpu.so", f"{hook}/libvgpu.so", True),
            (hook, str(directory), False),
            ("/tmp/vgpulock", "/tmp/vgpulock", False),
            ("/etc/ld.so.preload", f"{hook}/ld.so.preload", True),
        ]
        assert directory.stat().st_mode & 0o777 == 0o777
        assert (running.hook / "ld.so.preload").read_text() == f"{hook}/libvgpu.so\n"
        pod = api.annotations("pods", "train")
        assert (pod[TO_ALLOCATE], pod[PHASE], pod[ALLOCATED]) == (";", "success", f"{SECOND},NVIDIA,8000,30:;")
        assert LOCK not in api.annotations("nodes", "n1")
        kubelet.until(lambda: api.events)
        (event,) = api.events
        assert (event["reason"], event["note"], event["reportingController"], event["type"]) == (
            "DeviceAllocated",
            "Allocated GPU-1 on n1",
            "hami-device-plugin",
            "Normal",
        )
        assert running.value("hami_device_plugin_device_count") == 2
        assert running.value("hami_device_plugin_allocate_duration_seconds_count") == 1
        assert running.value(f'hami_device_plugin_healthy_status{{node="n1",device="{FIRST}"}}') == 1
        assert running.value('vgpuscope_plugin_kubelet_up{node="n1"}') == 1


def test_after_a_restart_of_the_kubelet_and_a_lost_socket_it_registers_again(tmp_path):
    with plugin(tmp_path) as running:
        kubelet = running.kubelet
        kubelet.until(lambda: running.ready()[0] == 200)  # the first registration was answered
        kubelet.restart()  # deletes all sockets, as the real one does
        kubelet.until(lambda: len(kubelet.registered) >= 2 and len(kubelet.devices) == 20)
        before = len(kubelet.registered)
        (kubelet.directory / kubelet.registered[0].endpoint).unlink()
        kubelet.until(lambda: len(kubelet.registered) > before)
        kubelet.stop()
        kubelet.until(lambda: running.value('vgpuscope_plugin_kubelet_up{node="n1"}') == 0)
        assert running.ready()[0] == 503
        kubelet.lists.clear()
        kubelet.start()
        kubelet.until(lambda: len(kubelet.devices) == 20)
        kubelet.until(lambda: running.ready()[0] == 200)
        assert running.value('vgpuscope_plugin_kubelet_registrations_total{node="n1",result="success"}') >= 3


def test_a_kubelet_that_refuses_is_asked_again(tmp_path):
    with plugin(tmp_path) as running:
        kubelet = running.kubelet
        kubelet.until(lambda: running.ready()[0] == 200)
        kubelet.refuse = "not now"
        # The plugin registers again when its socket is gone. The kubelet listens meanwhile, so it can only refuse.
        (kubelet.directory / kubelet.registered[0].endpoint).unlink()
        failed = 'vgpuscope_plugin_kubelet_registrations_total{node="n1",result="failure"}'
        kubelet.until(lambda: (running.value(failed) or 0) >= 2)
        assert "KUBELET_DOWN" in running.log
        assert "not now" in running.log
        kubelet.lists.clear()
        kubelet.refuse = ""
        kubelet.until(lambda: kubelet.devices)


def test_health_follows_the_driver_and_xids_as_nvidia_rates_them(tmp_path):
    with plugin(tmp_path, "--split-count", "1", settings="clear_faults_after: 0") as running:
        kubelet, api, node = running.kubelet, running.api, running.node
        both, first, second = {f"{FIRST}-0", f"{SECOND}-0"}, {f"{FIRST}-0"}, {f"{SECOND}-0"}
        kubelet.until(running.registered)

        node.lost(0).write()
        kubelet.until(lambda: healthy(running) == second)
        kubelet.until(lambda: [gpu.get("health") for gpu in running.registered()] == [None, True])
        assert running.value(f'hami_device_plugin_healthy_status{{node="n1",device="{FIRST}"}}') == 0
        assert running.value(f'vgpuscope_plugin_gpu_unhealthy{{node="n1",gpu_uuid="{FIRST}",reason="lost"}}') == 1
        node.heal(0).write()
        kubelet.until(lambda: healthy(running) == both)  # a lost GPU is healthy when it answers
        kubelet.until(lambda: all(gpu.get("health") for gpu in running.registered()))

        def heard(times):  # again and again: NVML gives an event only to those who listened before it
            node.xid(0, 31).write()  # of the application: it costs no health
            return soon(lambda: running.log.count("xid=31 ") >= times, within=1.0)

        kubelet.until(lambda: heard(1))  # perhaps by who listened before the GPU was back
        kubelet.until(lambda: heard(running.log.count("xid=31 ") + 1))
        # Only once: a second fault could come after the operator has cleared the first.
        node.xid(0, 43).xid(1, 48).write()  # one of the application, one that asks for a reset
        kubelet.until(lambda: healthy(running) == first)
        kubelet.until(lambda: "vgpuscope.io/gpu-faults" in api.annotations("nodes", "n1"))
        assert '"xid":48' in api.annotations("nodes", "n1")["vgpuscope.io/gpu-faults"]
        assert running.value(f'vgpuscope_plugin_gpu_unhealthy{{node="n1",gpu_uuid="{SECOND}",reason="xid-48"}}') == 1
        api.annotate("nodes", "n1", **{"vgpuscope.io/gpu-faults": None})  # the operator clears it
        kubelet.until(lambda: healthy(running) == both)
        assert "fault cleared by an operator" in running.log


def test_a_plugin_that_is_stopped_finishes_the_allocation_first(tmp_path):
    with plugin(tmp_path) as running:
        api = running.api
        running.kubelet.until(running.registered)
        api.pod("train", assigned(f"{SECOND},NVIDIA,8000,30:;"))
        api.annotate("nodes", "n1", **lock("train"))

        def stop(_):  # while the pod is being changed
            running.process.terminate()
            running.kubelet.until(lambda: "stopping" in running.log)
            soon(lambda: running.process.poll() is not None, within=2.0)

        api.before_patch.append(stop)
        (answer,) = running.kubelet.allocate([f"{SECOND}-3"])
        assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == SECOND
        assert running.process.wait(30) == 0
        assert api.annotations("pods", "train")[PHASE] == "success"
        assert LOCK not in api.annotations("nodes", "n1")
        assert [event["reason"] for event in api.events] == ["DeviceAllocated"]


def test_a_plugin_that_is_stopped_ends_the_list_of_devices_and_does_not_wait_for_the_kubelet_to_hang_up(tmp_path):
    with plugin(tmp_path) as running:
        kubelet = running.kubelet
        kubelet.until(lambda: running.ready()[0] == 200)
        running.process.terminate()
        assert running.process.wait(12) == 0  # waiting for the kubelet, it took all of its 20 s
        kubelet.until(lambda: kubelet.ends)
        assert kubelet.ends == ["OK"]


def test_directories_of_pods_that_are_gone_are_removed(tmp_path):
    left = tmp_path / "vgpu" / "containers" / "uid-gone_main"
    left.mkdir(parents=True)
    os.utime(left, (1.7e9, 1.7e9))
    with plugin(tmp_path) as running:
        # The directory goes first and is counted after it.
        removed = 'vgpuscope_plugin_container_dirs_removed_total{node="n1"}'
        running.kubelet.until(lambda: running.value(removed) == 1)
        assert not left.exists()


def test_a_gpu_that_was_lost_before_the_start_is_counted_and_unhealthy(tmp_path):
    lost = {"id": "GPU-lost", "index": 2, "count": 10, "devmem": 81920, "devcore": 100, "type": "NVIDIA A100"}
    with small_api(tmp_path) as api:
        api.node("n1", **{REGISTER: json.dumps([lost | {"mode": "hami-core", "health": True}])})
        with plugin_at(tmp_path, api.kubeconfig, "--split-count", "1") as running:
            running.api = api
            running.kubelet.until(lambda: len(running.registered()) == 3)
            assert [gpu.get("health", False) for gpu in running.registered()] == [True, True, False]
            running.kubelet.until(lambda: "GPU-lost-0" in running.kubelet.devices)
            assert running.kubelet.devices["GPU-lost-0"] == "Unhealthy"
            assert running.value("hami_device_plugin_device_count") == 3
            assert running.value('hami_device_plugin_healthy_status{node="n1",device="GPU-lost"}') == 0


def test_without_the_library_gpus_are_shared_by_time_and_no_limits_are_set(tmp_path):
    with plugin(tmp_path, library=False) as running:
        running.api.pod("train", assigned(f"{FIRST},NVIDIA,8000,30:;"))
        (answer,) = running.kubelet.allocate([f"{FIRST}-0"])
        assert (dict(answer.envs), list(answer.mounts)) == ({"NVIDIA_VISIBLE_DEVICES": FIRST}, [])
        assert not (running.hook / "containers").exists()
        assert running.log.count("HAMi's library is missing") == 1
        assert running.value('vgpuscope_plugin_limits_enforced{node="n1"}') == 0


def test_whole_gpus_go_to_pods_that_hami_did_not_place_and_shares_do_not(tmp_path):
    with plugin(tmp_path, "--split-count", "1") as running:
        (answer,) = running.kubelet.allocate([f"{SECOND}-0", f"{FIRST}-0"])
        assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == f"{SECOND},{FIRST}"
        with pytest.raises(grpc.RpcError, match="ALLOCATE_DEVICE_UNKNOWN"):
            running.kubelet.allocate(["GPU-of-another-node-0"])


def test_a_gpu_that_hangs_in_the_driver_is_unhealthy_and_the_others_stay_healthy(tmp_path):
    with plugin(tmp_path, "--split-count", "1") as running:
        running.node.hang("nvmlDeviceGetMemoryInfo_v2", slot=1).write()
        running.kubelet.until(lambda: healthy(running) == {f"{FIRST}-0"})
        running.node.heal(1).write()
        running.kubelet.until(lambda: healthy(running) == {f"{FIRST}-0", f"{SECOND}-0"})


def test_mig_instances_are_offered_by_their_ids_and_registered_as_profiles_with_their_places(tmp_path):
    with plugin(tmp_path, "--split-count", "1") as running:
        node = running.node
        for index, gi in enumerate((7, 9)):
            node.mig(1, index, gi=gi, memory_total=9728 << 20, placed=(19, gi - 7))
        node.write()
        running.kubelet.until(lambda: healthy(running) == {f"{FIRST}-0", mig_uuid(1, 0), mig_uuid(1, 1)})
        running.kubelet.until(lambda: running.registered()[1].get("mode") == "mig")
        profile = {"name": "1g.10gb", "memoryMB": 9728, "core": 15, "sliceCount": 1}
        places = [{"start": 0, "size": 1}, {"start": 2, "size": 1}]
        assert running.registered()[1]["migProfiles"] == [profile | {"placements": places}]
        assert running.registered()[1]["count"] == 2
        (answer,) = running.kubelet.allocate([mig_uuid(1, 1)])  # of a pod that HAMi did not place
        assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == mig_uuid(1, 1)
        assert running.value("hami_device_plugin_device_count") == 2


def test_mig_instances_whose_places_the_driver_does_not_report_are_logged_once(tmp_path):
    """They are registered without a profile, so no scheduler can choose them."""
    with plugin(tmp_path) as running:
        node = running.node.mig(1, 0, gi=7, memory_total=9728 << 20)
        node.fail("nvmlDeviceGetGpuInstanceById", NO_PERMISSION, slot=1).write()
        running.kubelet.until(lambda: mig_uuid(1, 0) in healthy(running))
        running.kubelet.until(lambda: running.registered()[1].get("migProfiles", []) == [])
        running.kubelet.until(lambda: "the driver does not report where" in running.log)
        (line,) = [line for line in running.log.splitlines() if "the driver does not report where" in line]
        assert mig_uuid(1, 0) in line


def test_feedback_runs_only_if_it_is_switched_on(tmp_path):
    with plugin(tmp_path, settings="feedback: true, handshake: true") as running:
        decisions = 'vgpuscope_plugin_feedback_decisions_total{node="n1",decision="block"}'
        running.kubelet.until(lambda: running.value(decisions) == 0)
        running.kubelet.until(lambda: "hami.io/node-handshake" in running.api.annotations("nodes", "n1"))
    (tmp_path / "off").mkdir()
    with plugin(tmp_path / "off") as running:
        assert "feedback" not in running.page()


def test_a_plugin_that_is_stopped_leaves_no_container_blocked(tmp_path):
    root = tmp_path / "vgpu" / "containers"
    Container(root, "high", REAL[2], priority=0, recent=1000)
    low = Container(root, "low", REAL[2], priority=1, recent=2)
    share = "".join(f"{one},NVIDIA,1,0:" for one in gpus_of(root)) + ";"
    with small_api(tmp_path) as api, ExitStack() as stack:
        api.node("n1")
        for name in ("high", "low"):
            api.pod(name, assigned(share), phase="Running")
        running = stack.enter_context(plugin_at(tmp_path, api.kubeconfig, settings="feedback: true"))
        running.kubelet.until(lambda: low.fields[RECENT] == -1)
        running.process.terminate()
        assert running.process.wait(30) == 0
        assert low.fields[RECENT] == 0


def test_without_a_driver_nothing_is_registered_until_it_is_loaded(tmp_path):
    with plugin(tmp_path, driver=False) as running:
        running.kubelet.until(lambda: "DRIVER_ABSENT" in running.log)
        status, said = running.ready()
        assert status == 503
        assert "the driver" in said
        assert running.kubelet.registered == []
        assert running.registered() == []
        running.node.heal().write()
        running.kubelet.until(lambda: len(running.kubelet.devices) == 20)
        running.kubelet.until(lambda: running.ready()[0] == 200)
