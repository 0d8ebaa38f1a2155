"""Random questions for a scheduler: a world as the API server has it, and a pod that is to be placed.

A question is plain JSON, so that it can be asked of any program, made smaller, and printed. It keeps to what HAMi and
vgpuscope are meant to answer alike; docs/migration.md has the rest.
"""

import json
from copy import deepcopy
from random import Random

from tests.hami import model

TYPES = ("NVIDIA A100-SXM4-80GB", "NVIDIA-Tesla T4")
PROFILES = [
    {"name": "1g.10gb", "memoryMB": 9728, "core": 15, "sliceCount": 1},
    {"name": "2g.20gb", "memoryMB": 19968, "core": 29, "sliceCount": 2},
    {"name": "3g.40gb", "memoryMB": 40192, "core": 43, "sliceCount": 3},
    {"name": "7g.79gb", "memoryMB": 80384, "core": 100, "sliceCount": 7},
]
PLACES = ([(at, 1) for at in range(7)], [(0, 2), (2, 2), (4, 2)], [(0, 4), (4, 4)], [(0, 8)])
for _profile, _places in zip(PROFILES, PLACES, strict=True):
    _profile["placements"] = [{"start": start, "size": size} for start, size in _places]
NAMESPACES = ("ml", "web")
PLACED = {model.ALLOCATED, model.PLACED_ON, model.MIGS}  # with a part of them only, docs/migration.md says what differs


def some_world(random: Random):
    """Nodes and quotas without pods."""
    nodes = [_node(random, f"n{at}") for at in range(random.randint(1, 3))]
    quotas = [_quota(random, name) for name in NAMESPACES if random.random() < 0.25]
    return {"nodes": nodes, "pods": [], "quotas": quotas}


def _node(random, name):
    gpus = [_gpu(random, f"GPU-{name}-{at}", at) for at in range(random.choice((1, 2, 3, 4, 4)))]
    if random.random() < 0.4:  # all alike, as most real nodes are
        gpus = [{**gpus[0], "id": one["id"], "index": one["index"], "numa": one["numa"]} for one in gpus]
    notes = {model.REGISTER: json.dumps([{key: value for key, value in one.items() if value} for one in gpus])}
    if random.random() < 0.5:
        links = [
            {"uuid": one["id"], "score": {other["id"]: random.choice((10, 50, 200)) for other in gpus if other != one}}
            for one in gpus
        ]
        notes[model.PAIR_SCORES] = json.dumps(links)
    if random.random() < 0.1:
        notes[model.CORDON] = gpus[0]["id"]
    offered = {model.GPU: "0" if random.random() < 0.04 else str(sum(one["count"] for one in gpus))}
    return {"metadata": {"name": name, "annotations": notes}, "status": {"capacity": offered, "allocatable": offered}}


def _gpu(random, uuid, index):
    if random.random() < 0.3:
        size = {"count": 7, "devmem": 81920, "devcore": 100, "type": TYPES[0], "mode": "mig", "migProfiles": PROFILES}
    else:
        size = {
            "count": random.choice((1, 2, 5, 10)),
            "devmem": random.choice((8000, 16000, 40000)),
            "devcore": random.choice((100, 100, 200)),
            "type": random.choice(TYPES),
            "mode": "hami-core",
        }
    return {"id": uuid, "index": index, "numa": random.randrange(2), "health": random.random() < 0.93, **size}


def _quota(random, namespace):
    hard = {"limits.nvidia.com/gpumem": random.choice((4000, 20000, 60000)), "limits.nvidia.com/gpucores": 120}
    kept = {key: str(value) for key, value in hard.items() if random.random() < 0.7}
    return {
        "metadata": {"name": "q", "namespace": namespace},
        "spec": {"hard": kept or {"limits.nvidia.com/gpumem": "0"}},
    }


def some_pod(random: Random, name, *, limited=frozenset()):
    """A pod that asks for GPUs. In a namespace with a quota it has no init containers: HAMi counts those wrongly."""
    namespace = random.choice(NAMESPACES)
    inits = random.choice((0, 0, 0, 1, 2)) if namespace not in limited else 0
    apps = [
        _container(random, f"c{at}", asks=at == 0 or random.random() < 0.7) for at in range(random.choice((1, 1, 2, 3)))
    ]
    random.shuffle(apps)
    spec: dict = {"containers": apps}
    if inits:
        spec["initContainers"] = [_container(random, f"i{at}", asks=random.random() < 0.7) for at in range(inits)]
        for one in spec["initContainers"]:  # HAMi counts two MIG instances of one init container as one
            limits = one["resources"]["limits"]
            limits.update({model.GPU: "1"} if model.GPU in limits else {})
    notes = _annotations(random) if random.random() < 0.6 else {}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "annotations": notes},
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def _container(random, name, *, asks):
    limits = {"cpu": "1"}
    if asks:
        limits[model.GPU] = str(random.choice((1, 1, 1, 1, 2, 3)))
        by = random.random()
        if by < 0.55:
            limits[model.MEMORY] = str(random.choice((500, 1000, 2000, 4000, 8000, 15000, 41000)))
        elif by < 0.85:
            limits[model.PERCENTAGE] = str(random.choice((5, 7, 10, 33, 50, 100)))
        if random.random() < 0.4:
            limits[model.CORES] = str(random.choice((0, 10, 15, 50, 100, 130)))
    return {"name": name, "resources": {"limits": limits}}


def _annotations(random):
    choices = {
        "nvidia.com/use-gputype": ("a100", "H100,t4", "", "A100,"),
        "nvidia.com/nouse-gputype": ("t4", "H100"),
        "nvidia.com/use-gpuuuid": ("GPU-n0-0,GPU-n1-1", "GPU-n0-1"),
        "nvidia.com/nouse-gpuuuid": ("GPU-n0-0", "GPU-n1-0, GPU-n1-1"),
        "nvidia.com/vgpu-mode": ("mig", "hami-core", "hami-core,mig"),
        "nvidia.com/numa-bind": ("true", "1", "no"),
        "hami.io/node-scheduler-policy": ("binpack", "spread", "", "other"),
        "hami.io/gpu-scheduler-policy": (
            *("binpack", "spread", "mutex", "numa", "topology-aware", "binpack,numa", "numa,spread"),
            *("mutex,topology-aware", "binpack,other", "other", "", "numa,other", "mutex,other", "binpack,"),
        ),
        "hami.io/device-scoring-weights": (
            *("slot=0,core=1,memory=0", "slot=0,core=0,memory=1", "slot=1,core=0,memory=0"),
            "slot = 1000,core=+0, memory=1",
        ),
    }
    rare = {
        "hami.io/device-scoring-weights": 0.3,
        "nvidia.com/use-gpuuuid": 0.05,
        "nvidia.com/vgpu-mode": 0.12,
        "hami.io/gpu-scheduler-policy": 0.6,
    }
    found = {key: random.choice(values) for key, values in choices.items() if random.random() < rare.get(key, 0.08)}
    if "topology-aware" in found.get("hami.io/gpu-scheduler-policy", ""):
        found.pop("nvidia.com/numa-bind", None)  # HAMi then looks at the GPUs of one NUMA node only
    return found


def submitted(random: Random):
    """A pod as it is sent to the API server: amounts in any combination, zero too."""
    sizes = {
        model.MEMORY: ("0", "1000"),
        model.PERCENTAGE: ("0", "50", "100"),
        model.CORES: ("0", "30"),
        model.PRIORITY: ("0", "1"),
    }
    containers = []
    for name in ("c0", "c1")[: random.randint(1, 2)]:
        limits = {key: random.choice(values) for key, values in sizes.items() if random.random() < 0.3}
        asks = any(limits.get(key, "0") != "0" for key in (model.MEMORY, model.PERCENTAGE, model.CORES))
        if random.random() < 0.5 or (not asks and limits.keys() - {model.PRIORITY}):  # HAMi: a size of 0 is a GPU, too
            limits[model.GPU] = random.choice(("1", "2"))
        one = {"name": name, "resources": {"limits": {"cpu": "1", **limits}}}
        containers.append(one | ({"securityContext": {"privileged": True}} if random.random() < 0.1 else {}))
    spec: dict[str, object] = {"containers": containers}
    if random.random() < 0.3:
        spec["schedulerName"] = random.choice(("default-scheduler", "hami-scheduler", "volcano"))
    if random.random() < 0.1:
        spec["nodeName"] = "n0"
    labels = {"hami.io/webhook": "ignore"} if random.random() < 0.05 else {}
    return {"metadata": {"name": "p", "namespace": "ml", "labels": labels}, "spec": spec}


def change(random: Random, world):
    """What happens to the pods of a world between two questions."""
    for pod in world["pods"]:
        chance, inits = random.random(), pod["spec"].get("initContainers", [])
        if chance < 0.22:
            pod["status"]["phase"] = random.choice(("Succeeded", "Failed"))
        elif chance < 0.35 and inits:
            ended = {"terminated": {"exitCode": 0}}
            pod["status"]["initContainerStatuses"] = [{"name": one["name"], "state": ended} for one in inits]
        elif chance > 0.99 and model.MIGS in model.notes(pod):
            text = model.notes(pod).pop(model.MIGS)
            if random.random() < 0.5:
                model.notes(pod)[model.MIGS] = random.choice(("[{]", text.replace("GPU-n", "GPU-x"), "[{}]"))


def some_bindings(random: Random):
    """A world with waiting pods, and what happens to them; a step that makes no sense any more changes nothing."""
    world = some_world(random)
    limited = {one["metadata"]["namespace"] for one in world["quotas"]}
    pods = [some_pod(random, f"p{at}", limited=limited) for at in range(random.randint(2, 6))]
    for pod in pods:  # HAMi does not lock the node of a pod whose init containers only have GPUs
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        limits.setdefault(model.GPU, "1")
        pod["metadata"]["annotations"].pop("hami.io/device-scoring-weights", None)
    world["pods"] = pods
    return {"world": world, "steps": [_step(random, world) for _ in range(random.randint(5, 40))]}


def _step(random, world):
    do = random.choices(
        ("filter", "bind", "served", "ended", "deleted", "passed", "locked"), weights=(30, 30, 16, 5, 4, 6, 6)
    )[0]
    if do == "passed":
        return {"do": do, "seconds": random.choice((20, 200, 301))}
    if do == "locked":  # by another scheduler: for a pod that is gone, or as HAMi's first releases wrote it
        return {"do": do, "node": random.choice(world["nodes"])["metadata"]["name"], "by": random.choice(("", ",ml,x"))}
    if do == "bind":
        fails = random.random() < 0.15  # the API server refuses it
        return {"do": do, "pod": random.choice(world["pods"])["metadata"]["name"], "fails": fails}
    phase = {"served": ("success", "success", "failed"), "ended": ("Succeeded", "Failed")}.get(do, ("",))
    return {"do": do, "pod": random.choice(world["pods"])["metadata"]["name"], "phase": random.choice(phase)}


def smaller_bindings(question):
    """Bindings with one step, pod or node less."""
    for at in reversed(range(len(question["steps"]))):
        yield _without(question, "steps", at)
    for kind in ("pods", "quotas", "nodes"):
        for at in range(len(question["world"][kind])):
            yield _without(question, "world", kind, at)


def smaller(question):
    """Questions with one thing less."""
    world = question["world"]
    for kind in ("pods", "quotas", "nodes"):
        for at in range(len(world[kind])):
            yield _without(question, "world", kind, at)
    pods = [("pod",), *(("world", "pods", at) for at in range(len(world["pods"])))]
    for path in pods:
        one = _at(question, path)
        for key in one["metadata"]["annotations"].keys() - PLACED:
            yield _without(question, *path, "metadata", "annotations", key)
        for kind in ("initContainers", "containers"):
            for at in range(len(one["spec"].get(kind, ()))):
                if path == ("pod",) and (kind != "containers" or len(one["spec"][kind]) > 1):
                    yield _without(question, *path, "spec", kind, at)
                if model.ALLOCATED in one["metadata"]["annotations"]:
                    continue  # docs/migration.md: an assignment without a request holds nothing
                for name in one["spec"][kind][at]["resources"]["limits"]:
                    yield _without(question, *path, "spec", kind, at, "resources", "limits", name)
    for at, node in enumerate(world["nodes"]):
        gpus = json.loads(model.notes(node).get(model.REGISTER, "[]"))
        for gone in range(len(gpus)):
            made = deepcopy(question)
            left = gpus[:gone] + gpus[gone + 1 :]
            made["world"]["nodes"][at]["metadata"]["annotations"][model.REGISTER] = json.dumps(left)
            yield made
        for key in model.notes(node).keys() - {model.REGISTER}:
            yield _without(question, "world", "nodes", at, "metadata", "annotations", key)


def _at(one, path):
    for key in path:
        one = one[key]
    return one


def _without(question, *path):
    made = deepcopy(question)
    del _at(made, path[:-1])[path[-1]]
    return made


def shrunk(question, disagree, smaller=smaller):
    """The same disagreement in a question from which nothing can be taken away."""
    while (next_ := next((one for one in smaller(question) if disagree(one)), None)) is not None:
        question = next_
    return question
