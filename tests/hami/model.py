"""A model of the scheduler of Project-HAMi/HAMi v2.10.0: its filter, its binding, its webhook, and its /metrics page.

It is written from what that program does, file by file as the functions below name it, and it is checked against
answers that were recorded from it. It shares no code with vgpuscope. It gets objects as the API server has them, and
keeps no state: what pods hold is what their annotations say.

What HAMi leaves to chance is decided here as vgpuscope decides it: of equal nodes the first by name, of equal GPUs the
one with the highest index, then the last by UUID; `chance` names what HAMi chose instead. HAMi's faults that
docs/migration.md lists are not modelled.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import combinations
from struct import pack, unpack

REGISTER, PAIR_SCORES, CORDON = "hami.io/node-nvidia-register", "hami.io/node-nvidia-score", "hami.io/device-cordon"
ALLOCATED, PLACED_ON, MIGS = "hami.io/vgpu-devices-allocated", "hami.io/vgpu-node", "hami.io/vgpu-mig-allocations"
LOCK, PHASE = "hami.io/mutex.lock", "hami.io/bind-phase"
GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
PERCENTAGE, PRIORITY = "nvidia.com/gpumem-percentage", "nvidia.com/priority"
SORT_KEYS = ("binpack", "spread", "numa")


def f32(value):
    return unpack("f", pack("f", value))[0]


class FilterError(Exception):
    """The filter answers with an error in place of nodes."""


@dataclass
class Card:
    """pkg/device/devices.go DeviceUsage."""

    id: str
    index: int
    count: int
    memory: int
    cores: int
    type: str
    numa: int
    mode: str
    health: bool
    cordoned: bool
    profiles: list
    used: int = 0
    used_memory: int = 0
    used_cores: int = 0
    instances: list = field(default_factory=list)  # (start, size, allocation)

    def copy(self):
        return Card(**{**self.__dict__, "instances": list(self.instances)})


@dataclass
class Request:
    """pkg/device/devices.go ContainerDeviceRequest; a percentage of 101 is none."""

    count: int
    memory: int
    percentage: int
    cores: int

    def of(self, card):
        if self.memory > 0:
            return self.memory
        return card.memory * self.percentage // 100 if self.percentage != 101 else 0


@dataclass
class Share:
    card: str
    memory: int
    cores: int
    profile: str = ""
    start: int = 0
    size: int = 0


# --- objects ----------------------------------------------------------------------------------------------------------


def notes(one):
    return one["metadata"].get("annotations", {})


def cards_of(node):
    """pkg/device/nvidia/device.go GetNodeDevices."""
    text = notes(node).get(REGISTER, "")
    cordoned = {part.strip() for part in notes(node).get(CORDON, "").split(",")}
    return [
        Card(
            id=one["id"],
            index=one.get("index", 0),
            count=one.get("count", 0),
            memory=one.get("devmem", 0),
            cores=one.get("devcore", 0),
            type=one.get("type", ""),
            numa=one.get("numa", 0),
            mode=one.get("mode", ""),
            health=one.get("health", False),
            cordoned=one["id"] in cordoned,
            profiles=one.get("migProfiles") or [],
        )
        for one in (json.loads(text) if text else [])
    ]


def links_of(world, name):
    """pkg/device/devices.go DecodePairScores."""
    text = next(notes(one).get(PAIR_SCORES, "[]") for one in world["nodes"] if one["metadata"]["name"] == name)
    return {one["uuid"]: one["score"] for one in json.loads(text)}


def quantity(text):
    """A whole number as the API server writes it: 15000 comes back as 15k."""
    number = str(text)
    return int(number.rstrip("kM")) * {"k": 10**3, "M": 10**6}.get(number[-1], 1)


def amount(container, name):
    resources = container.get("resources", {})
    value = resources.get("limits", {}).get(name, resources.get("requests", {}).get(name))
    return None if value is None else quantity(value)


def request_of(container):
    """pkg/device/nvidia/device.go GenerateResourceRequests, with the chart's defaults."""
    count = amount(container, GPU)
    if not count:
        return None
    memory, percentage = amount(container, MEMORY) or 0, amount(container, PERCENTAGE)
    percentage = 101 if percentage is None or percentage <= 0 else min(percentage, 100)
    if percentage == 101 and memory == 0:
        percentage = 100
    return Request(count, memory, percentage, amount(container, CORES) or 0)


def containers_of(pod):
    """All containers with their requests, init containers first, and how many of those there are."""
    first = pod["spec"].get("initContainers", [])
    return [request_of(one) for one in [*first, *pod["spec"]["containers"]]], len(first)


def segments_of(pod):
    """pkg/device/devices.go DecodePodDevices: the shares of each container."""
    text = notes(pod).get(ALLOCATED, "")
    found = []
    for segment in text.split(";")[:-1]:
        devices = [device.split(",") for device in segment.split(":") if device]
        found.append([Share(uuid, int(memory), int(cores)) for uuid, _, memory, cores in devices])
    return found


def collapsed(pod):
    """pkg/device/initContainer.go CollapseInitContainerUsage and SteadyStateDeviceUsage: card → slots, MiB, cores."""
    init = len(pod["spec"].get("initContainers", []))
    done = init > 0 and init == sum(
        1
        for one in pod.get("status", {}).get("initContainerStatuses", [])
        if one["state"].get("terminated", {}).get("exitCode") == 0
    )
    app: dict = {}
    peak: dict = {}
    for at, shares in enumerate(segments_of(pod)):
        own: dict = {}
        for one in shares:
            slots, memory, cores = own.get(one.card, (0, 0, 0))
            own[one.card] = (slots + 1, memory + one.memory, cores + one.cores)
        for card, use in own.items():
            if at >= init:
                app[card] = tuple(a + b for a, b in zip(app.get(card, (0, 0, 0)), use, strict=True))
            elif not done:
                peak[card] = tuple(map(max, peak.get(card, (0, 0, 0)), use))
    return {
        card: tuple(map(max, app.get(card, (0, 0, 0)), peak.get(card, (0, 0, 0)))) for card in app.keys() | peak.keys()
    }


def allocations_of(pod):
    """pkg/device/nvidia/mig_allocations.go DecodeMigAllocations; what it refuses is as if it were not there."""
    try:
        found = json.loads(notes(pod).get(MIGS) or "[]")
        for one in found:
            runtime = [one.get(name) is not None for name in ("migUUID", "gpuInstanceID", "computeInstanceID")]
            whole = one["gpuUUID"] and one["profile"] and one["placement"]["size"]
            if not whole or any(runtime) != all(runtime) or min(one["containerIndex"], one["deviceIndex"]) < 0:
                return []
        places = {(one["containerIndex"], one["deviceIndex"]) for one in found}
    except (ValueError, KeyError, TypeError):
        return []
    return found if len(places) == len(found) else []


def held(pod):
    ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not ended and PLACED_ON in notes(pod)


# --- usage ------------------------------------------------------------------------------------------------------------


def usage(world, name, without=""):
    """The cards of a node with what pods hold: pkg/scheduler/scheduler.go getNodesUsage. None: not registered."""
    node = next((one for one in world["nodes"] if one["metadata"]["name"] == name), None)
    if node is None or not quantity(node["status"]["allocatable"].get(GPU, 0)):
        return None
    cards = {card.id: card for card in cards_of(node)}
    for pod in world["pods"]:
        if held(pod) and notes(pod)[PLACED_ON] == name and pod["metadata"]["uid"] != without:
            _count(cards, pod)
    return list(cards.values()) or None


def _count(cards, pod):
    by_card: dict = {}
    for one in allocations_of(pod):
        by_card.setdefault(one["gpuUUID"], []).append(one)
    uses = collapsed(pod)
    for uuid, (slots, memory, cores) in uses.items():
        card = cards.get(uuid)
        if card is None:
            continue
        card.used, card.used_memory, card.used_cores = (
            card.used + slots,
            card.used_memory + memory,
            card.used_cores + cores,
        )
        if uuid in by_card and card.mode == "hami-core":
            card.health = False
        elif uuid not in by_card and card.mode == "mig":
            card.health = False  # nobody knows where its instance lies
    for uuid, found in by_card.items():
        if uuid not in cards:
            for card in cards.values():
                card.health = card.health and card.mode != "mig"
        elif cards[uuid].mode != "mig":
            cards[uuid].health = False
        else:
            cards[uuid].instances += [(one["placement"]["start"], one["placement"]["size"], one) for one in found]


def quota_used(world, namespace, without=""):
    """pkg/device/quota.go AddUsage: MiB and cores of all pods of a namespace."""
    pods = [one for one in world["pods"] if one["metadata"]["namespace"] == namespace and held(one)]
    uses = [use for pod in pods if pod["metadata"]["uid"] != without for use in collapsed(pod).values()]
    return sum(use[1] for use in uses), sum(use[2] for use in uses)


def quota_limits(world, namespace):
    hard: dict = next((one["spec"]["hard"] for one in world["quotas"] if one["metadata"]["namespace"] == namespace), {})
    return tuple(quantity(hard[key]) if (key := f"limits.{name}") in hard else None for name in (MEMORY, CORES))


# --- the order of nodes and cards -------------------------------------------------------------------------------------


def policy_of(pod, kind, default):
    return notes(pod).get(f"hami.io/{kind}-scheduler-policy", default)


def chain(policy):
    return [name.strip() for name in policy.split(",")]


def weights_of(pod):
    """pkg/util/device_scoring_weights.go ParseDeviceScoringWeights."""
    text = notes(pod).get("hami.io/device-scoring-weights")
    if text is None:
        return 1, 1, 1
    pairs = [[side.strip() for side in part.split("=", 1)] for part in text.split(",")]
    try:
        found = {name: int(value) for name, value in pairs}
    except ValueError as e:
        raise FilterError(text) from e
    if (
        len(pairs) != 3
        or set(found) != {"slot", "core", "memory"}
        or min(found.values()) < 0
        or not any(found.values())
    ):
        raise FilterError(text)
    return found["slot"], found["core"], found["memory"]


def card_score(card, weights):
    """pkg/scheduler/policy/gpu_policy.go ComputeScore; the request itself never counts for NVIDIA."""
    if not (card.count and card.cores and card.memory):
        return 0.0
    shares = (card.used / card.count, card.used_cores / card.cores, card.used_memory / card.memory)
    slots, cores, memory = (f32(f32(weight) * f32(share)) for weight, share in zip(weights, shares, strict=True))
    return f32(10 * f32(f32(slots + cores) + memory))


def in_order(cards, policy, weights, numa_bind, preferred=()):
    """pkg/scheduler/policy/gpu_policy.go Less, lessByChain; Fit begins at the end of HAMi's list, here at [0].

    `preferred`: the first of equal GPUs. Only chains compare the index.
    """
    chained = False
    single = policy.strip()
    if "," in single or single == "numa":
        chained = True
        keys = list(dict.fromkeys(name for name in chain(policy) if name in SORT_KEYS)) or ["spread"]
        if numa_bind:
            keys = ["numa", *(name for name in keys if name != "numa")]

        def key(card):
            score = card_score(card, weights)
            return tuple({"binpack": -score, "spread": score, "numa": -card.numa}[name] for name in keys)

    elif single == "mutex":

        def key(card):
            return card.used, -card.numa

    else:

        def key(card):
            score = card_score(card, weights) * (-1 if single == "binpack" else 1)
            if numa_bind:
                return (card.numa if single == "binpack" else -card.numa), score
            return score, -card.numa

    last = sorted(cards, key=lambda card: card.id, reverse=True)

    def tied(card):
        place = preferred.index(card.id) if card.id in preferred else len(preferred)
        return (-card.index, place) if chained else (place, -card.index)

    return sorted(last, key=lambda card: (*key(card), *tied(card)))


def node_score(cards):
    """pkg/scheduler/policy/node_policy.go ComputeDefaultScore, before the pod is placed."""
    total = [sum(part) for part in zip(*((card.count, card.cores, card.memory) for card in cards), strict=True)]
    if not all(total):
        return 0.0
    used = [sum(part) for part in zip(*((c.used, c.used_cores, c.used_memory) for c in cards), strict=True)]
    slots, cores, memory = (f32(part / whole) for part, whole in zip(used, total, strict=True))
    return f32(10 * f32(f32(slots + cores) + memory))


# --- the filter -------------------------------------------------------------------------------------------------------


class _Pod:
    """One pod that is being placed, and what concerns every node."""

    def __init__(self, world, pod, defaults):
        self.world, self.pod, self.notes = world, pod, notes(pod)
        self.requests, self.init = containers_of(pod)
        self.node_policy = policy_of(pod, "node", defaults["node"])
        self.policy = policy_of(pod, "gpu", defaults["gpu"])
        self.weights = weights_of(pod)
        self.numa_bind = self.notes.get("nvidia.com/numa-bind") in ("1", "t", "T", "TRUE", "true", "True")
        self.topology, self.mutex = "topology-aware" in chain(self.policy), "mutex" in chain(self.policy)
        uid, namespace = pod["metadata"]["uid"], pod["metadata"]["namespace"]
        self.links: dict = {}  # of the node that is looked at
        self.chance: dict = {}  # container → the GPUs that are preferred to equal ones
        self.preferred: list = []  # of the container that is looked at
        self.used, self.limits = quota_used(world, namespace, without=uid), quota_limits(world, namespace)

    def listed(self, key):
        return [part.strip() for part in self.notes.get(key, "").split(",") if part.strip()]

    def allows_type(self, card):
        name, use, avoid = (
            card.type.upper(),
            self.listed("nvidia.com/use-gputype"),
            self.listed("nvidia.com/nouse-gputype"),
        )
        if use and not any(part.upper() in name for part in use):
            return False
        if any(part.upper() in name for part in avoid):
            return False
        mode = self.notes.get("nvidia.com/vgpu-mode")
        return mode is None or card.mode in mode

    def allows_uuid(self, card):
        use, avoid = self.listed("nvidia.com/use-gpuuuid"), self.listed("nvidia.com/nouse-gpuuuid")
        return (not use or card.id in use) and card.id not in avoid

    def over_quota(self, shares):
        """pkg/device/nvidia/device.go fitQuota, for a pod without init containers."""
        wanted = (sum(one.memory for one in shares), sum(one.cores for one in shares))
        rows = zip(self.used, wanted, self.limits, strict=True)
        return any(limit is not None and used + more > limit for used, more, limit in rows)


def filter_pod(world, pod, names, *, node="binpack", gpu="spread", chance=("", {})):
    """pkg/scheduler/scheduler.go Filter: {"node", "shares"} or {"failed"}; None: the pod asks for no GPU.

    `chance`: the node, and by container the GPUs, that are chosen among equal ones.
    """
    question = _Pod(world, pod, {"node": node, "gpu": gpu})
    preferred_node, question.chance = chance
    if not any(question.requests):
        return None
    failed, fitting, scores = {}, {}, {}
    for name in names:
        cards = usage(world, name, without=pod["metadata"]["uid"])
        if cards is None:
            failed[name] = "node unregistered"
            continue
        question.links = links_of(world, name)
        found = _fit_node(question, cards)
        if isinstance(found, str):
            failed[name] = found
        else:
            fitting[name], scores[name] = found, node_score(cards)
    if not fitting:
        return {"failed": failed}
    sign = 1 if question.node_policy == "spread" else -1
    best = min(fitting, key=lambda name: (sign * scores[name], name != preferred_node, name))
    return {"node": best, "shares": fitting[best], "scores": {name: f"{scores[name]:.2f}" for name in scores}}


def _fit_node(question, cards):
    """pkg/scheduler/score.go scoreNode: the shares of each container, or why not."""
    segments = []
    for at, request in enumerate(question.requests[: question.init]):
        question.preferred = question.chance.get(at, [])
        found = _fit_container(question, [card.copy() for card in cards], request, [])
        if isinstance(found, str):
            return found
        segments.append(found)
    running = [card.copy() for card in cards]
    for at, request in enumerate(question.requests[question.init :], question.init):
        question.preferred = question.chance.get(at, [])
        before = [share for shares in segments[question.init :] for share in shares]
        found = _fit_container(question, running, request, before)
        if isinstance(found, str):
            return found
        segments.append(found)
    return segments


def _fit_container(question, cards, request, before):
    """pkg/scheduler/score.go fitInDevices; the cards are changed."""
    if request is None:
        return []
    order = in_order(cards, question.policy, question.weights, question.numa_bind, question.preferred)
    typed = [card for card in order if "nvidia" in card.type.lower()]
    mode = question.notes.get("nvidia.com/vgpu-mode")
    divisible = (mode is None or "mig" in mode) and any(card.mode == "mig" for card in typed)
    if request.count > len(typed) and not divisible:
        return "NodeInsufficientDevice"
    found = _fit(question, typed, request, before)
    if isinstance(found, str):
        return found
    by_id = {card.id: card for card in cards}
    for share in found:
        _add(by_id[share.card], share)
    return found


def _add(card, share):
    """pkg/device/nvidia/device.go AddResourceUsage."""
    if card.mode == "mig":
        profile, (start, size) = _candidate(card.profiles, [one[:2] for one in card.instances], share.memory)
        share.memory, share.cores = profile["memoryMB"], profile["core"]
        share.profile, share.start, share.size = profile["name"], start, size
        card.instances.append((start, size, None))
    card.used, card.used_memory, card.used_cores = (
        card.used + 1,
        card.used_memory + share.memory,
        card.used_cores + share.cores,
    )


def _candidate(profiles, occupied, memory):
    """pkg/device/nvidia/device.go selectMigCandidate, and its placement: from the high end for 1g. and 3g."""
    for profile in sorted(profiles, key=lambda one: (one["memoryMB"], one["sliceCount"])):
        if profile["memoryMB"] < memory:
            continue
        high = profile["name"].startswith(("1g.", "3g."))
        for place in sorted(profile["placements"], key=lambda one: one.get("start", 0), reverse=high):
            start, size = place.get("start", 0), place["size"]
            if all(start >= first + length or first >= start + size for first, length in occupied):
                return profile, (start, size)
    return None


def _fit(question, cards, request, before):
    """pkg/device/nvidia/device.go Fit: the shares, or HAMi's text of the reasons."""
    reasons: Counter[str] = Counter()
    picked: list[Share] = []
    numa = None
    cores = min(request.cores, 100)
    queue = list(cards)
    while queue:
        card, reason = queue[0], _unusable(question, queue[0])
        wanted = Share(card.id, request.of(card), cores)
        if not reason:
            if question.numa_bind and card.numa != numa:
                if picked and not question.topology:
                    reasons["NumaNotFit"] += len(picked)
                picked, numa = [], card.numa
            reason = _short(question, card, wanted, [*before, *picked]) or _indivisible(card, wanted, picked)
        if reason:
            reasons[reason] += 1
            queue.pop(0)
            continue
        picked.append(wanted)
        if len(picked) == request.count and not question.topology:
            return picked
        if card.mode != "mig":
            queue.pop(0)
    if question.topology and len(picked) >= request.count:
        return _linked(question, picked, request.count)
    if picked:
        reasons["AllocatedCardsInsufficientRequest"] = len(picked)
    return ", ".join(sorted(f"{count}/{len(cards)} {reason}" for reason, count in reasons.items()))


def _unusable(question, card):
    if not card.health:
        return "CardNotHealth"
    if card.cordoned:
        return "CardCordoned"
    return "" if question.allows_type(card) else "CardTypeMismatch"


def _short(question, card, wanted, before):
    cores, free_cores = wanted.cores, card.cores - card.used_cores
    if not question.allows_uuid(card):
        return "CardUuidMismatch"
    if card.count <= card.used:
        return "CardTimeSlicingExhausted"
    if question.mutex and card.used > 0:
        return "ExclusiveDeviceAllocateConflict"
    if question.over_quota([*before, wanted]):
        return "ResourceQuotaNotFit"
    if card.memory - card.used_memory < wanted.memory:
        return "CardInsufficientMemory"
    if free_cores < cores:
        return "CardInsufficientCore"
    if card.cores == 100 and cores == 100 and card.used > 0:
        return "ExclusiveDeviceAllocateConflict"
    if card.cores and not free_cores and not cores:
        return "CardComputeUnitsExhausted"
    return ""


def _indivisible(card, wanted, picked):
    """pkg/device/nvidia/device.go CustomFilterRule: no placement is free beside those picked for this container."""
    occupied = [one[:2] for one in card.instances]
    for share in [*picked, wanted] if card.mode == "mig" else ():
        if share.card == card.id:
            found = _candidate(card.profiles, occupied, share.memory)
            if found is None:
                return "CardMigTopologyInfeasible"
            occupied.append(found[1])
    return ""


def _linked(question, picked, count):
    """pkg/device/nvidia/device.go computeWorstSingleCard and computeBestCombination."""
    if len(picked) == count:
        return picked

    def link(one, other):
        return 0 if one.card == other.card else question.links.get(one.card, {}).get(other.card, 0)

    if count == 1:
        preferred = question.preferred
        return [min(picked, key=lambda one: (sum(link(one, other) for other in picked), one.card not in preferred))]
    groups = combinations(picked, count)

    def linked(group):
        return sum(link(*pair) for pair in combinations(group, 2)), [one.card for one in group] == question.preferred

    return list(max(groups, key=linked))


def annotations(pod, answer):
    """pkg/device/nvidia/device.go PatchAnnotations, with a segment for every container."""
    segments, instances = [], []
    for at, shares in enumerate(answer["shares"]):
        segments.append("".join(f"{one.card},NVIDIA,{one.memory},{one.cores}:" for one in shares) + ";")
        instances += [
            {
                "containerIndex": at,
                "deviceIndex": position,
                "gpuUUID": one.card,
                "profile": one.profile,
                "placement": {"start": one.start, "size": one.size},
            }
            for position, one in enumerate(shares)
            if one.profile
        ]
    found = {ALLOCATED: "".join(segments), PLACED_ON: answer["node"]}
    return found | ({MIGS: json.dumps(instances)} if instances else {})


# --- binding, and the lock of a node ----------------------------------------------------------------------------------

LOCK_EXPIRES = 300  # seconds


def bind(world, pod, name, now, *, fails=False):
    """pkg/scheduler/scheduler.go Bind, of a pod that is not bound: "" or why it is refused; `fails`: the last write."""
    node = next((one for one in world["nodes"] if one["metadata"]["name"] == name), None)
    if pod is None or node is None:
        return "not found"
    if any(containers_of(pod)[0]) and not _lock(world, node, pod, now):
        return f"node {name} has been locked within 5m0s"
    if any(containers_of(pod)[0]):  # HAMi marks other pods, too: docs/migration.md
        notes(pod)[PHASE] = "allocating"
    if fails:
        _unlock(node, pod)
        return "forbidden"
    pod["spec"]["nodeName"] = name
    return ""


def _lock(world, node, pod, now):
    """pkg/util/nodelock/nodelock.go LockNode; the pod's own lock is renewed, as docs/migration.md says of ours."""
    meta, own = pod["metadata"], f"{pod['metadata']['namespace']},{pod['metadata']['name']}"
    if text := notes(node).get(LOCK):
        since, _, holder = text.partition(",")
        age = now - datetime.fromisoformat(since).timestamp()
        pods = {f"{one['metadata']['namespace']},{one['metadata']['name']}" for one in world["pods"]}
        if age <= LOCK_EXPIRES and holder != own and (not holder or holder in pods):
            return False
    time = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    notes(node)[LOCK] = f"{time},{meta['namespace']},{meta['name']}"
    return True


def plugin_done(world, pod, phase):
    """pkg/device-plugin PodAllocationTrySuccess and PodAllocationFailed: the phase, then the pod's own lock is gone."""
    notes(pod)[PHASE] = phase
    for node in world["nodes"]:
        if node["metadata"]["name"] == pod["spec"]["nodeName"]:
            _unlock(node, pod)


def _unlock(node, pod):
    """pkg/util/nodelock/nodelock.go ReleaseNodeLock: the pod's own lock only."""
    if notes(node).get(LOCK, "").endswith(f",{pod['metadata']['namespace']},{pod['metadata']['name']}"):
        del notes(node)[LOCK]


# --- the webhook ------------------------------------------------------------------------------------------------------


def webhook(pod, *, scheduler="hami-scheduler"):
    """pkg/scheduler/webhook.go Handle and nvidia MutateAdmission: the pod as it is stored, or None if it is denied."""
    spec = pod["spec"]
    if pod["metadata"].get("labels", {}).get("hami.io/webhook") == "ignore":
        return pod
    if spec.get("schedulerName", "") not in ("", "default-scheduler", scheduler):
        return pod
    pod = json.loads(json.dumps(pod))
    spec, asking = pod["spec"], False
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    for one in containers:
        limits = one.get("resources", {}).get("limits", {})
        if PRIORITY in limits:
            one["env"] = [*one.get("env", []), {"name": "CUDA_TASK_PRIORITY", "value": str(limits[PRIORITY])}]
        if GPU not in limits and any(name in limits for name in (MEMORY, CORES, PERCENTAGE)):
            limits[GPU] = "1"
        if GPU not in limits:
            continue
        asking = True
        whole = int(limits[PERCENTAGE]) == 100 if PERCENTAGE in limits else MEMORY not in limits
        if CORES not in limits and whole:
            limits[CORES] = "100"
    privileged = any(one.get("securityContext", {}).get("privileged") for one in containers)
    if asking and (privileged or spec.get("nodeName")):
        return None
    if asking:
        spec["schedulerName"] = scheduler
    return pod


# --- the page ---------------------------------------------------------------------------------------------------------


def page(world):
    """cmd/scheduler/metrics.go: every series of the new names, as {(name, labels): value}."""
    found, mib = {}, 1024 * 1024

    def put(name, value, **labels):
        found[name, tuple(sorted({**labels, "zone": "vGPU"}.items()))] = float(value)

    for node in world["nodes"]:
        name = node["metadata"]["name"]
        for card in usage(world, name) or ():
            at = {"node": name, "device_uuid": card.id, "device_index": str(card.index), "device_type": card.type}
            put("hami_gpu_memory_limit_bytes", card.memory * mib, **at)
            put("hami_gpu_core_limit_ratio", card.cores, **at)
            put("hami_gpu_memory_allocated_bytes", card.used_memory * mib, **at, device_cores=str(card.cores))
            put("hami_gpu_shared_count", card.used, **at)
            put("hami_gpu_core_allocated_ratio", card.used_cores, **at)
            sizes = {"device_cores": str(card.cores), "device_memory_limit": str(card.memory)}
            put("hami_node_gpu_overview", card.used_memory * mib, **at, **sizes)
            if card.memory:
                put("hami_node_gpu_memory_allocated_ratio", f32(f32(card.used_memory) / f32(card.memory)), **at)
    namespaces: dict = {}
    for pod in filter(held, world["pods"]):
        meta, name = pod["metadata"], notes(pod)[PLACED_ON]
        for uuid, (_, memory, cores) in collapsed(pod).items():
            at = {"namespace": meta["namespace"], "pod": meta["name"], "node": name}
            put("hami_vgpu_memory_allocated_bytes", memory * mib, **at, container_index="0", device_uuid=uuid)
            put("hami_vgpu_core_allocated_ratio", cores, **at, container_index="0", device_uuid=uuid)
            namespaces[meta["namespace"]] = None
    for namespace in namespaces | dict.fromkeys(one["metadata"]["namespace"] for one in world["quotas"]):
        rows = zip((MEMORY, CORES), quota_used(world, namespace), quota_limits(world, namespace), strict=True)
        for resource, used, limit in rows:
            at = {"namespace": namespace, "quota_name": resource}
            if limit is not None:
                put("hami_resource_quota_limit", limit, **at)
            if limit is not None or namespace in namespaces:
                put("hami_resource_quota_used", used, **at, limit=str(limit or 0))
    return found
