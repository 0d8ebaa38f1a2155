"""When the agent asks the API server about claims, and what it does without an answer."""

import asyncio

import pytest
from msgspec.structs import replace

from vgpuscope.model.dra import AllocatedClaim, ClaimedDevice, DraDevice, SliceState
from vgpuscope.model.errors import KubeForbidden
from vgpuscope.model.pod import Grant
from vgpuscope.services.agent import claims as module
from vgpuscope.services.agent.claims import Claims
from vgpuscope.services.agent.sampler import SourceHealth

DRIVER, UUID = "gpu.nvidia.com", "GPU-00000000-0000-4000-8000-000000000000"
RESYNC = 300.0


def granted(claim, device="gpu-0", **more):
    fields = {"namespace": "ml", "pod": "p", "container": "main", "resource": DRIVER, "pool": "n1", **more}
    return Grant(device_id=device, claim=claim and f"ml/{claim}", **fields)


def published(*names, node="n1", **more):
    devices = tuple(DraDevice(name=name, gpu=f"{UUID}{name}", uuid=f"{UUID}{name}", node=node) for name in names)
    return SliceState(**{"name": "s", "driver": DRIVER, "pool": "n1", "devices": devices, **more})


class Server:
    """What an API server has, what it was asked, and what it refuses."""

    def __init__(self):
        self.slices_now, self.claims_now, self.refuses = (published("gpu-0"),), {}, set()
        self.without_node = ()  # their devices name nodes, each for itself
        self.asked, self.opened, self.closed = [], 0, False

    def open(self):
        self.opened += 1
        return self

    async def slices(self):
        self.asked.append("slices")
        self._refuse("slices")
        return self.slices_now

    async def slices_without_node(self):
        self.asked.append("slices without node")
        self._refuse("slices without node")
        return self.without_node

    async def claim(self, whole_name):
        self.asked.append(whole_name)
        self._refuse(whole_name)
        return self.claims_now.get(whole_name)

    async def close(self):
        self.closed = True

    def _refuse(self, what):
        if what in self.refuses:
            raise KubeForbidden(f"no right to {what}")

    def questions(self):
        asked, self.asked = self.asked, []
        return asked


class World:
    def __init__(self, *, access=True, **more):
        self.now, self.server, self.errors = 1000.0, Server(), []
        self.health = SourceHealth("claims", lambda: self.now)
        self.claims = Claims(
            self.server.open if access else None,
            node="n1",
            resync=RESYNC,
            health=self.health,
            failed=self._failed,
            clock=lambda: self.now,
            **more,
        )

    def _failed(self, error):
        self.errors.append(str(error))
        self.health.bad(error)

    def resolve(self, *grants):
        return asyncio.run(self.claims.resolve(grants))

    def state(self):
        found = self.health.state()
        return found.up, found.absent


@pytest.fixture
def world():
    found = World()
    found.server.claims_now["ml/c"] = holding("gpu-0")
    return found


def holding(*devices, pool="n1"):
    return AllocatedClaim(devices=tuple(ClaimedDevice(driver=DRIVER, pool=pool, device=one) for one in devices))


def test_a_node_without_claims_asks_for_nothing(world):
    plain = granted(None, "GPU-x", resource="nvidia.com/gpu")
    assert world.resolve(plain) == (plain,)
    assert (world.server.opened, world.state()) == (0, (False, True))


def test_a_new_claim_is_asked_for_once(world):
    (found,) = world.resolve(granted("c"))
    assert (found.published.gpu, world.server.questions(), world.state()) == (
        f"{UUID}gpu-0",
        ["slices", "ml/c"],
        (True, False),
    )
    world.now += RESYNC - 1
    assert world.resolve(granted("c")) == (found,)
    assert world.server.questions() == []


def test_the_next_claim_is_asked_for_alone_and_slices_only_for_a_device_that_is_new(world):
    world.resolve(granted("c"))
    world.server.questions()
    world.server.claims_now |= {"ml/d": holding("gpu-0"), "ml/e": holding("gpu-1")}
    world.resolve(granted("c"), granted("d"))
    assert world.server.questions() == ["ml/d"]
    world.server.slices_now = (published("gpu-0", "gpu-1"),)
    world.resolve(granted("c"), granted("d"), granted("e", "gpu-1"))
    assert world.server.questions() == ["slices", "ml/e"]


def test_all_is_read_again_from_time_to_time(world):
    world.resolve(granted("c"))
    world.server.questions()
    world.now += RESYNC
    world.resolve(granted("c"))
    assert world.server.questions() == ["slices", "ml/c"]


def test_what_the_server_does_not_have_is_asked_for_again_after_a_pause(world):
    for _ in range(3):
        world.resolve(granted("gone", "gpu-7"))
    assert world.server.questions() == ["slices", "slices without node", "ml/gone"]
    world.now += module._AGAIN
    world.resolve(granted("gone", "gpu-7"))
    assert world.server.questions() == ["slices", "ml/gone"]


def rack(*names):
    """A pool of a rack, whose slices name a node for each device."""
    return published(*names, name="r1", pool="rack"), published("gpu-0", node="n2", name="r2", pool="rack")


def in_rack(device, claim="c"):
    return granted(claim, device, pool="rack")


def gpus(found):
    return [one.published and one.published.gpu for one in found]


def test_a_device_whose_slice_names_no_node_is_found_and_stays_known(world):
    world.server.without_node = rack("gpu-4", "gpu-5")
    world.server.claims_now = {"ml/c": holding("gpu-4", pool="rack"), "ml/d": holding("gpu-5", pool="rack")}
    assert gpus(world.resolve(in_rack("gpu-4"))) == [f"{UUID}gpu-4"]
    assert world.server.questions() == ["slices", "slices without node", "ml/c"]
    assert gpus(world.resolve(in_rack("gpu-4"), in_rack("gpu-5", "d"))) == [f"{UUID}gpu-4", f"{UUID}gpu-5"]
    assert world.server.questions() == ["ml/d"]
    world.now += RESYNC
    world.server.without_node = (replace(rack("gpu-4")[0], generation=2), *rack()[1:])
    world.resolve(in_rack("gpu-4"))
    assert world.server.questions() == ["slices", "slices without node", "ml/c"]
    assert gpus(world.resolve(in_rack("gpu-5"))) == [None]  # the newest generation does not have it


def test_a_device_of_the_same_pool_on_another_node_is_not_taken_for_one_of_this_node(world):
    world.server.without_node = rack("gpu-4")
    assert gpus(world.resolve(in_rack("gpu-0"))) == [None]


def test_slices_without_a_node_are_asked_for_only_if_a_device_is_missing_and_then_seldom(world):
    world.resolve(granted("c"))
    assert "slices without node" not in world.server.questions()
    began, asked = world.now, []
    while world.now < began + 3 * module._SELDOM:
        world.resolve(granted("gone", f"gpu-{world.now:.0f}"))  # each time another one
        asked += [world.now for one in world.server.questions() if one == "slices without node"]
        world.now += 10
    assert asked == [began, began + module._SELDOM, began + 2 * module._SELDOM]


def test_a_node_that_has_no_claims_for_a_while_does_not_ask_more_often(world):
    for _ in range(5):
        world.resolve(granted("gone", "gpu-7"))
        world.resolve()
    assert world.server.questions().count("slices without node") == 1


def test_slices_without_a_node_that_are_refused_cost_no_other_slice(world):
    world.server.refuses = {"slices without node"}
    assert gpus(world.resolve(granted("c"), granted("gone", "gpu-7"))) == [f"{UUID}gpu-0", None]
    assert world.errors == ["no right to slices without node"]


@pytest.mark.parametrize("refused", ["slices", "ml/c"])
def test_a_right_that_is_missing_costs_only_what_it_is_for_and_is_told(world, refused):
    world.server.refuses = {refused}
    (found,) = world.resolve(granted("c"))
    assert (found.published is None, found.requests == ()) == (refused == "slices", refused == "ml/c")
    assert (world.errors, world.state()) == ([f"no right to {refused}"], (False, False))


def test_one_claim_that_is_refused_does_not_hide_the_next(world):
    world.server.refuses, world.server.claims_now["ml/b"] = {"ml/a"}, holding("gpu-0")
    first, second = world.resolve(granted("a"), granted("b"))
    assert (first.requests, len(second.requests)) == ((), 1)


def test_a_right_that_was_given_later_is_used(world):
    world.server.refuses = {"slices"}
    world.resolve(granted("c"))
    world.server.refuses = set()
    world.now += module._AGAIN
    (found,) = world.resolve(granted("c"))
    assert (found.published.gpu, world.state()) == (f"{UUID}gpu-0", (True, False))


def test_an_error_does_not_outlive_the_claim_that_it_was_about(world):
    world.server.refuses = {"ml/x"}
    world.resolve(granted("c"), granted("x"))
    assert world.state() == (False, False)
    world.now += module._AGAIN
    world.resolve(granted("c"))
    assert world.state() == (True, False)
    world.resolve()
    assert world.state() == (False, True)
    assert world.health.state().code is None


def test_a_server_that_hangs_does_not_keep_the_kubelets_list_back(monkeypatch):
    world = World(within=0.01)

    async def never():
        await asyncio.Event().wait()

    monkeypatch.setattr(world.server, "slices", never)
    (found,) = world.resolve(granted("c"))
    assert (found, world.state()) == (granted("c"), (False, False))


def test_without_access_the_grants_stay_and_the_reason_is_told():
    world = World(access=False)
    assert world.resolve(granted("c")) == (granted("c"),)
    assert world.state() == (False, True)
    assert "--pods kube" in world.health.state().message


def test_the_connection_is_closed_at_the_end(world):
    world.resolve(granted("c"))
    asyncio.run(world.claims.close())
    assert world.server.closed
