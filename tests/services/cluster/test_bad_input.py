"""Whatever the API server says, the exporter's page is right about the rest, names the fault, and loses nothing."""

import json
import re

import pytest

from tests.contract.clusterrun import MIB, exporter, holder, of_devices, promtool_check, quota, registered
from tests.controlplane import node, pod
from tests.services.cluster.badapi import bad_api
from vgpuscope.catalog import cluster as m
from vgpuscope.catalog.scheduling import PENDING_OLDEST, PENDING_PODS
from vgpuscope.model.errors import AnnotationMalformed, KubeUnreadable

pytestmark = pytest.mark.real

KIB = 1024
MOST = 256 * KIB  # of annotations, altogether: what a real API server lets pass
MILLION = "m" * 1_000_000  # only a server that is broken says this
REGISTER, ALLOCATED = "hami.io/node-nvidia-register", "hami.io/vgpu-devices-allocated"


def noted(item, **annotations):
    """The object with these annotations beside or in place of its own."""
    renamed = {NOTES[name]: text for name, text in annotations.items()}
    meta = item["metadata"]
    return {**item, "metadata": {**meta, "annotations": {**meta["annotations"], **renamed}}}


NOTES = {
    "register": REGISTER,
    "allocated": ALLOCATED,
    "instances": "hami.io/vgpu-mig-allocations",
    "node": "hami.io/vgpu-node",
}
GOOD_NODE, GOOD_POD, GOOD_QUOTA = registered("bad", "GPU-bad"), holder("bad", "gpu-1", "GPU-a"), quota("x", gpumem="7")


def meta(item, **more):
    return {**item, "metadata": {**item["metadata"], **more}}


# An object, and words of the reason that is to be told of it.
BAD = {
    "a node with a register of noise": (noted(GOOD_NODE, register="x" * MOST), "is not id,count,memory"),
    "a node with a register of colons": (noted(GOOD_NODE, register=":" * MOST), "more than 1024"),
    "a node with a register without an end": (noted(GOOD_NODE, register="[" * MOST), REGISTER),
    "a node with a register of another shape": (noted(GOOD_NODE, register='[{"id": 7}]'), "Expected `str`"),
    "a node with a card of a million letters": (
        noted(GOOD_NODE, register=json.dumps([{"id": MILLION}])),
        "length <= 253",
    ),
    "a node with half a card": (node("bad") | {"status": {"capacity": {"nvidia.com/gpu": "0.5"}}}, "'0.5'"),
    "a node with annotations that are a list": (meta(GOOD_NODE, annotations=["x"]), "$.metadata.annotations"),
    "a pod with devices of noise": (noted(GOOD_POD, allocated="x" * MOST), "is not uuid,type,memory,cores"),
    "a pod with devices of semicolons": (noted(GOOD_POD, allocated=";" * MOST), "more than 1024"),
    "a pod with devices of commas": (noted(GOOD_POD, allocated="," * MOST), "is not uuid,type,memory,cores"),
    "a pod with a device of a million letters": (
        noted(GOOD_POD, allocated=f"{MILLION},NVIDIA,1,1:;"),
        "is not uuid,type,memory,cores",
    ),
    "a pod with instances without an end": (noted(GOOD_POD, allocated="", instances="[" * MOST), "mig-allocations"),
    "a pod on a node of a million letters": (noted(GOOD_POD, node=MILLION, allocated=""), "is no name of a node"),
    "a pod with a label of a million letters": (
        meta(pod("bad"), labels={"hami.io/vgpu-node": MILLION}),
        "is no name of a node",
    ),
    "a pod of a million letters": (meta(GOOD_POD, name="bad" + MILLION, uid="long"), "length <= 253"),
    "a pod with a container of a million letters": (
        GOOD_POD | {"spec": {"containers": [{"name": MILLION}]}},
        "length <= 253",
    ),
    "a pod that asks for strings": (pod("bad", node="gpu-1", limits={"nvidia.com/gpu": "lots"}), "'lots'"),
    "a pod without a uid": (meta(GOOD_POD, uid=""), "no uid"),
    "a quota of strings": (quota("x", gpumem="plenty"), "'plenty'"),
    "a quota of a million digits": (quota("x", gpumem="9" * 1_000_000), "is no whole number"),
    "a quota of an object": (quota("x", gpumem={"deep": ["er"]}), "is no whole number"),
    "a quota that is a list": (GOOD_QUOTA | {"spec": {"hard": ["x"]}}, "$.spec.hard"),
}
GOOD = {"Node": GOOD_NODE, "Pod": GOOD_POD, "ResourceQuota": GOOD_QUOTA}
KIND = {"Node": "nodes", "Pod": "pods", "ResourceQuota": "resourcequotas"}


def rest(page):
    """The page without what is about the faults, and without what is said of the bad node, pod or namespace."""
    pending = "vgpuscope_cluster_pending"  # a bad pod may wait, too, or run without the GPU that it requests
    apart = (m.WATCH_FAULTS.name, m.WITHOUT_SERIES.name, pending, m.FINDINGS.name, m.FINDING.name)
    found = {key: value for key, value in of_devices(page).items() if not key[0].startswith(apart)}
    ours = {("node", "bad"), ("nodeid", "bad"), ("nodename", "bad")}
    return {key: value for key, value in found.items() if not ours & set(key[1])}


def errors(page, code=AnnotationMalformed.code):
    return sum(value for labels, value in page.named(m.ERRORS.name) if labels["code"] == code)


def faults(page):
    return sum(value for _, value in page.named(m.WATCH_FAULTS.name))


def malformed(running):
    """The log's lines about objects."""
    return [line for line in running.log.read_text().splitlines() if "] malformed " in line]


def fill(api):
    """What is right, and stays so."""
    for item in (
        registered("gpu-1", "GPU-a", "GPU-b"),
        registered("gpu-2", "GPU-c"),
        holder("one", "gpu-1", "GPU-b", memory=1000),
        holder("two", "gpu-2", "GPU-c", memory=2000),
        quota("ml", gpumem="9000"),
    ):
        api.put(item)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with bad_api(tmp_path_factory.mktemp("bad")) as api:
        fill(api)
        yield api


@pytest.fixture(scope="module")
def running(server, tmp_path_factory):
    with exporter(server.kubeconfig, tmp_path_factory.mktemp("exporter")) as running:
        yield running


@pytest.fixture(scope="module")
def well(running):
    """The page while only what is right is there."""
    return rest(running.page())


@pytest.fixture
def api(server, running, well):
    """The server, and everything is well, also afterwards."""
    running.wait(lambda: is_well(running, well))
    yield server
    server.drop_all_but("/gpu-1", "/gpu-2", "ml/one", "ml/two", "ml/gpus")


def is_well(running, well):
    try:
        page = running.page()
    except AssertionError:  # what an earlier test found is still there
        return False
    gone = not page.has(m.DEVICE_INFO.name, node="bad")
    return faults(page) == 0 and gone and rest(page) == well and page.one(m.WATCH_UP.name, kind="pods")


@pytest.mark.parametrize("what", BAD)
def test_a_bad_object_costs_itself_is_named_once_and_its_next_version_is_taken(api, running, what):
    item, reason = BAD[what]
    if item["kind"] == "Pod":
        item = meta(item, uid=item["metadata"].get("uid", what))
    before, told = running.page(), len(malformed(running))
    api.put(item)
    page = running.until(lambda page: faults(page) == 1 and errors(page) > errors(before))
    assert rest(page) == rest(before)
    assert page.one(m.WATCH_FAULTS.name, kind=KIND[item["kind"]]) == 1
    assert promtool_check_of_our_own(running) == (0, "")
    the_next_version_is_taken(api, running, item)
    page = running.until(lambda page: rest(page) == rest(before) and faults(page) == 0)
    assert errors(page) == errors(before) + 1  # however often it was looked at meanwhile
    [line] = malformed(running)[told:]
    names_object_and_reason(line, item, reason)


def looked_at_again(api, running):
    """Several times: something else changes, and changes back, and both are on the page."""
    for memory in (1001, 1000):
        api.put(holder("one", "gpu-1", "GPU-b", memory=memory))
        running.until(lambda page, memory=memory: page.one(m.HOLDER_MEMORY.name, pod="one") == memory * MIB)


def names_object_and_reason(line, item, reason):
    assert f"{item['kind']}/" in line
    assert item["metadata"]["name"][:200] in line
    assert reason in line.replace('\\"', '"')
    assert len(line) < 2 * KIB  # it quotes the noise, but not all of it


def the_next_version_is_taken(api, running, item):
    good = GOOD[item["kind"]]
    if item["metadata"].get("uid") in {"", "long"}:  # another pod, as far as anyone can tell
        api.drop(item)
    elif item["kind"] == "Pod":
        good = meta(good, uid=item["metadata"]["uid"])
    api.put(good)
    match item["kind"]:
        case "Node":
            running.until(lambda page: page.has(m.DEVICE_INFO.name, gpu_uuid="GPU-bad") and faults(page) == 0)
        case "Pod":
            running.until(lambda page: page.has(m.HOLDER_MEMORY.name, pod="bad") and faults(page) == 0)
        case _:
            running.until(lambda page: page.has(m.QUOTA_LIMIT.name, namespace="x") and faults(page) == 0)
    api.drop(good)


def promtool_check_of_our_own(running):
    """promtool has no patience with HAMi's names; ours, and the labels of all, it must like."""
    text = running.get()[2].decode()
    own = [line for line in text.splitlines() if re.match(r"(# (HELP|TYPE) )?vgpuscope_", line)]
    return promtool_check("\n".join(own) + "\n")


def test_bad_objects_in_the_first_list_cost_themselves_too(tmp_path):
    with bad_api(tmp_path) as api:
        fill(api)
        with exporter(api.kubeconfig, tmp_path) as running:
            before = running.page()
        items = [item for item, _ in BAD.values()]
        for number, item in enumerate(items):
            own = {"uid": f"uid-{number}", **item["metadata"], "name": f"{item['metadata']['name']}-{number}"}
            api.put({**item, "metadata": own})
        with exporter(api.kubeconfig, tmp_path) as running:
            page = running.until(lambda page: errors(page) == len(items))
            assert {key: rest(page).get(key) for key in rest(before)} == rest(before)
            assert len(malformed(running)) == len(items)


def test_an_object_with_two_faults_is_one_object_and_both_are_named(api, running):
    told = len(malformed(running))
    api.put(noted(meta(GOOD_POD, uid="twice"), allocated="x", instances="[7]"))
    running.until(lambda page: faults(page) == 1)
    looked_at_again(api, running)
    lines = "".join(malformed(running)[told:])
    assert (ALLOCATED in lines, "hami.io/vgpu-mig-allocations" in lines) == (True, True)


def test_what_was_well_for_a_while_and_is_bad_again_is_told_again(api, running):
    bad, good = noted(GOOD_POD, allocated="again"), GOOD_POD
    before = errors(running.page())
    for times in (1, 2):
        api.put(bad)
        running.until(lambda page, times=times: errors(page) == before + times)
        api.put(good)
        running.until(lambda page: faults(page) == 0 and page.has(m.HOLDER_MEMORY.name, pod="bad"))


def test_a_pod_on_a_node_that_was_never_seen_is_held_against_the_node_that_comes(api, running):
    before = running.page()
    api.put(holder("early", "bad", "GPU-bad", memory=3000))
    page = running.until(lambda page: page.has(m.FINDING.name, kind="node-unknown", pod="early"))
    assert but_quotas(page) == but_quotas(before)
    assert page.one(m.QUOTA_USED.name, namespace="ml", resource="nvidia.com/gpumem") == 6000
    assert page.one(m.WITHOUT_SERIES.name, reason="unregistered-device") == 1
    api.put(GOOD_NODE)
    # A page between two of its parts may still have the finding beside the new node.
    page = running.until(
        lambda page: (
            page.has(m.DEVICE_MEMORY_ALLOCATED.name, gpu_uuid="GPU-bad") and not page.has(m.FINDING.name, pod="early")
        )
    )
    assert page.one(m.DEVICE_MEMORY_ALLOCATED.name, gpu_uuid="GPU-bad") == 3000 * MIB
    assert page.one(m.WITHOUT_SERIES.name, reason="unregistered-device") == 0


def but_quotas(page):
    return {key: value for key, value in rest(page).items() if "quota" not in key[0].lower()}


def test_labels_are_escaped_whatever_is_in_them(api, running):
    gpu = 'GPU-"\n\\\x00é中'
    api.put(noted(GOOD_NODE, register=json.dumps([{"id": gpu, "devmem": 7, "type": 'a"b', "health": True}])))
    page = running.until(lambda page: page.has(m.DEVICE_INFO.name, node="bad"))
    [(labels, _)] = page.named(m.DEVICE_INFO.name, node="bad")
    assert (labels["gpu_uuid"], labels["type"]) == (gpu, 'a"b')
    assert promtool_check_of_our_own(running) == (0, "")


def test_more_devices_than_containers_ask_for_do_not_make_one_series_twice(api, running):
    """Prometheus drops what comes twice, and HAMi's labels know a container only by its index."""
    item = noted(GOOD_POD, allocated="GPU-a,NVIDIA,100,1:;GPU-a,NVIDIA,200,2:;GPU-a,NVIDIA,300,3:;")
    asks = {"name": "asks", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    item["spec"] = {"nodeName": "gpu-1", "containers": [{"name": "asks-not", "image": "none"}, asks]}
    api.put(item)
    page = running.until(lambda page: faults(page) == 1)  # which parses, and refuses what is there twice
    assert sum(value for _, value in page.named(m.HOLDER_MEMORY.name, pod="bad")) == 100 * MIB  # the others ask not


def test_an_instance_that_two_pods_claim_is_one_series(api, running):
    """So does a pod's manifest that somebody copied with its annotations."""
    held = {"containerIndex": 0, "deviceIndex": 0, "profile": "1g.10gb", "gpuUUID": "GPU-a", "migUUID": "MIG-1"}
    held |= {"placement": {"start": 0, "size": 1}, "gpuInstanceID": 7, "computeInstanceID": 0}
    api.put(noted(GOOD_POD, instances=json.dumps([held])))
    copy = noted(meta(GOOD_POD, name="copy"), instances=json.dumps([held]))
    api.put(copy)
    page = running.until(lambda page: page.has(m.HOLDER_MEMORY.name, pod="copy"))
    assert page.one(m.MIG_INSTANCE.name, mig_uuid="MIG-1") == 1


# --- bad days of the whole server -------------------------------------------------------------------------------------


@pytest.fixture
def fresh(tmp_path):
    """A server and an exporter of its own: one that failed before waits longer with every time."""
    with bad_api(tmp_path) as api:
        fill(api)
        with exporter(api.kubeconfig, tmp_path) as running:
            yield api, running


LINES = {
    "no JSON": b"<html>502 Bad Gateway</html>\n",
    "half an event": b'{"type":"ADDED","object":{"metadata":\n',
    "an event of another kind": b'{"type":"SURPRISE","object":{}}\n',
    "an event without an object": b'{"type":"ADDED"}\n',
    "brackets without an end": b"[" * 300_000 + b"\n",
    "no text": b"\xff\xfe\x00\n",
    "100 MB without an end": b"x" * 100_000_000 + b"\n",
}


@pytest.mark.parametrize("what", LINES)
def test_a_line_that_is_no_event_is_named_and_what_comes_after_it_is_taken(fresh, what):
    api, running = fresh
    before = running.page()
    api.say("pods", LINES[what])
    page = running.until(lambda page: errors(page, KubeUnreadable.code) > errors(before, KubeUnreadable.code))
    assert rest(page) == rest(before)
    # the exporter looks at its watches from time to time, and this one may be back by then
    running.wait(lambda: any("watch down kind=pods" in line for line in running.log.read_text().splitlines()))
    api.put(GOOD_POD)
    running.until(lambda page: page.has(m.HOLDER_MEMORY.name, pod="bad") and page.one(m.WATCH_UP.name, kind="pods"))


BODIES = {
    "HTML": b"<html><body>Sign in to continue</body></html>",
    "nothing": b"",
    "another kind": b'{"kind":"SecretList","metadata":{"resourceVersion":"1"},"items":[]}',
    "null": b"null",
    "100 MB of one line": b"x" * 100_000_000,
}


@pytest.mark.parametrize("what", BODIES)
def test_an_answer_that_is_no_list_is_named_and_what_is_known_stays(fresh, what):
    api, running = fresh
    before = running.page()
    api.instead["pods"] = BODIES[what]
    api.say("pods", b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}\n')  # so: a new list
    page = running.until(lambda page: page.one(m.WATCH_UP.name, kind="pods") == 0)
    assert rest(page) == rest(before)
    assert errors(page, KubeUnreadable.code) > errors(before, KubeUnreadable.code)
    assert page.one(m.WATCH_UP.name, kind="nodes") == 1
    del api.instead["pods"]
    api.put(GOOD_POD)
    running.until(lambda page: page.has(m.HOLDER_MEMORY.name, pod="bad") and page.one(m.WATCH_UP.name, kind="pods"))


JUMPING_CLOCK = """
import random, sys, time
seconds, nanoseconds = time.time, time.time_ns
jump = lambda: random.choice((0, 86400 * 400, -86400 * 400))
time.time = lambda: seconds() + jump()
time.time_ns = lambda: nanoseconds() + jump() * 10**9
from vgpuscope.cli import main
sys.exit(main())
"""


def test_a_clock_that_jumps_by_a_year_changes_nothing(tmp_path):
    """Patience is by the clock that nobody sets; who waits is known by the pods, whatever time it is."""
    with bad_api(tmp_path) as api:
        fill(api)
        api.put(pod("waits", limits={"nvidia.com/gpu": "1"}))
        with exporter(api.kubeconfig, tmp_path) as calm:
            before = calm.page()
        with exporter(api.kubeconfig, tmp_path, program=("-c", JUMPING_CLOCK)) as running:
            looked_at_again(api, running)
            page = running.until(lambda page: rest(page) == rest(before))
            assert page.named(PENDING_PODS.name) == before.named(PENDING_PODS.name) != []
            assert all(value >= 0 for _, value in page.named(PENDING_OLDEST.name))
            assert all(0 <= value < 60 for _, value in page.named(m.WATCH_AGE.name))
            assert all(value == 1 for _, value in page.named(m.WATCH_UP.name))
