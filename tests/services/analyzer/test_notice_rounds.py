"""Notices, answers and the machine over random lives: crashes between any two steps, faults, two replicas.

The oracle is what the owner sees: the messages that arrived, when, and what he answered by which link.
"""

import re
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.services.analyzer import lives
from tests.services.analyzer.lives import LIVE, PODS, WINDOW, Killed, Lease, Life, begun, live
from vgpuscope.config.notify import ChannelConfig, NotifyConfig
from vgpuscope.logic.notices import links
from vgpuscope.logic.reclaim.brakes import WorkloadFacts
from vgpuscope.model.errors import CallFailed, CaseUnfit, HistoryDown, LinkUsed, NotLeader, Unknown
from vgpuscope.model.reclaim import PodFacts
from vgpuscope.services.analyzer.notices import notices as module
from vgpuscope.services.analyzer.notices.notices import Notices
from vgpuscope.services.analyzer.reclaim.reclaim import Reclaim

GRACE = 900.0
TOLD = replace(
    LIVE,
    reclaim=replace(LIVE.reclaim, grace=GRACE),
    notify=NotifyConfig(
        channels=(ChannelConfig(name="a", url="http://a/x", service="webhook"),),
        console_url="http://console",
        link_secret="s" * 32,
        digest=0.0,
    ),
)


@dataclass
class Mail:
    at: float
    pods: set[str]
    links: dict[str, str]


class FakeSender:
    """A service that takes a message, refuses it, or takes it and loses the answer."""

    service, longest = "webhook", 16_000

    def __init__(self, life: "ToldLife") -> None:
        self.life = life

    async def send(self, _: str, body: str) -> None:
        life = self.life
        life.fuse.step()
        if life.service == "refuses":
            raise CallFailed("500")
        uids = set[str]()
        found = dict[str, str]()
        for token in re.findall(r"/owner/([\w-]+)", body):
            link = links.read(token, life.key, now=life.now)
            uids.add(link.case_id)
            found[f"{link.case_id} {link.action}"] = token
        if "will be taken back" in body:
            life.mails.append(Mail(life.now, uids, found))
        life.fuse.step()
        if life.service == "lost":
            raise CallFailed("timeout")

    def close(self) -> None:
        pass


@dataclass
class ToldLife(Life):
    config: Any = TOLD
    service: str = "ok"
    mails: list[Mail] = field(default_factory=list)
    notices: dict[int, Notices] = field(default_factory=dict)
    answered: dict[str, str] = field(default_factory=dict)  # by uid
    maybe_released: set[str] = field(default_factory=set)  # the process died while the owner gave it back
    used: list[str] = field(default_factory=list)
    key: bytes = b""
    known: WorkloadFacts = field(default_factory=lambda: WorkloadFacts(pod=PodFacts(read=True)))

    def __post_init__(self) -> None:
        self.key = module.link_key(self.config.notify, self.config.analyzer) or b""
        super().__post_init__()

    def start(self, *, leads: bool):
        lease = Lease(leads)
        notices = Notices(lambda: self.config, clock=lambda: self.now)
        given = replace(self.given(lease), channel=notices.ready, notify=notices.calls, facts=lambda _: self.known)
        machine = Reclaim(given)
        self.notices[id(machine)] = notices
        return machine, lease

    async def deliver(self) -> None:
        for machine, lease in list(self.replicas):
            if lease.leads:
                notices = self.notices[id(machine)]
                for name, channel in notices.channels().items():
                    if not isinstance(channel.sender, FakeSender):
                        notices._channels[name] = replace(channel, sender=cast(Any, FakeSender(self)))
                await self.surviving(machine, notices.deliver_due(machine.notices))
        await super().deliver()

    async def answer(self, action: str, pod: str, replica: int) -> None:
        """The owner opens the last mail about this pod, and uses a link of it, through any replica."""
        uid = self.uid(pod)
        token = next((mail.links[f"{uid} {action}"] for mail in reversed(self.mails) if uid in mail.pods), None)
        if token is None:
            return
        link = links.read(token, self.key, now=self.now)
        machine, _ = self.replicas[replica]
        try:
            await machine.case_actions.answer(link, seconds=10 * WINDOW)
        except Killed:
            self.answered.pop(uid, None)  # the owner saw no answer: either may be true
            self.maybe_released |= {uid} if action == "release" else set()
            await self.surviving(machine, _killed())
        except (HistoryDown, NotLeader, CaseUnfit, Unknown, LinkUsed):
            return
        else:
            assert token not in self.used, "a link worked twice"
            self.used.append(token)
            self.answered[uid] = action


async def _killed() -> None:
    raise Killed


ACTIONS = st.one_of(
    st.tuples(st.just("idle"), st.sampled_from(PODS)),
    st.tuples(st.just("window"), st.just("")),
    st.tuples(st.just("window"), st.just("")),
    st.tuples(st.just("window"), st.just("")),
    st.tuples(st.sampled_from(["busy", "unknown", "reborn"]), st.sampled_from(PODS)),
    st.tuples(st.sampled_from(["keep", "snooze", "release"]), st.tuples(st.sampled_from(PODS), st.integers(0, 1))),
    st.tuples(st.sampled_from(["refuses", "ok", "lost", "down", "up", "swap", "both"]), st.just("")),
    st.tuples(st.just("kill"), st.integers(0, 12)),
)


async def act(life: ToldLife, what: str, of) -> None:
    if what in {"refuses", "ok", "lost"}:
        life.service = what
    elif what in {"keep", "snooze", "release"}:
        pod, replica = of
        await life.answer(what, pod, replica)
    else:
        await lives.act(life, what, of)
        if what == "window":
            await life.deliver()


def check(life: ToldLife, before: int, answered: dict[str, str]) -> None:
    for effect in life.received[before:]:
        told = [mail.at for mail in life.mails if effect.uid in mail.pods]
        assert told, "acted on an owner who was never told"
        early = answered.get(effect.uid) == "release" or effect.uid in life.maybe_released
        assert early or effect.at >= min(told) + GRACE, "acted before the grace period ended"
        assert answered.get(effect.uid) != "keep", "acted against the owner's word"


@given(st.lists(ACTIONS, min_size=15, max_size=50))
@example([("idle", "a"), *[("window", "")] * 3, ("kill", 1), ("release", ("a", 0)), ("window", "")])
@settings(deadline=None, max_examples=60)
def test_nobody_loses_a_gpu_untold_or_against_his_word(actions):
    async def story(life: ToldLife) -> None:
        for what, of in actions:
            before, answered = len(life.received), dict(life.answered)
            await act(life, what, of)
            check(life, before, answered)

    live(ToldLife, story)


@pytest.fixture
async def life(tmp_path):
    async with begun(ToldLife, tmp_path / "store.db") as one:
        yield one


async def idle_until_told(life: ToldLife) -> None:
    life.verdicts["a"] = "idle"
    for _ in range(6):
        await life.window()
        if life.mails:
            return
    raise AssertionError("nobody was told")


def states(life: ToldLife) -> list[str]:
    return [machine.cases[life.uid("a")].state for machine, lease in life.replicas if lease.leads]


@pytest.mark.parametrize("step", range(40))
async def test_a_process_that_dies_at_any_step_tells_twice_at_most_and_never_forgets(life, step):
    life.verdicts["a"] = "idle"
    await life.window()
    await life.window()
    life.fuse.left = step
    for _ in range(5):
        await life.window()
        await life.deliver()
    life.fuse.left = None
    assert 1 <= len(life.mails) <= 2
    await life.window()
    await life.window()
    assert [effect.uid for effect in life.received][:1] == [life.uid("a")]
    assert len({effect.key for effect in life.received}) == 1


async def test_death_between_delivery_and_settling_sends_the_notice_again(life):
    life.service = "lost"
    await idle_until_told(life)
    assert (len(life.mails), states(life)) == (1, ["notified"])
    life.service = "ok"
    life.now += 5.0
    await life.deliver()
    assert (len(life.mails), states(life)) == (2, ["grace"])


async def test_a_notice_that_fails_for_a_day_ends_the_case_and_nothing_was_taken(life):
    life.service = "refuses"
    life.verdicts["a"] = "idle"
    for _ in range(200):
        await life.window()
    assert (life.received, states(life)) == ([], ["failed"])
    [machine] = [machine for machine, lease in life.replicas if lease.leads]
    assert machine.cases[life.uid("a")].reason == "notice_failed"


async def test_a_channel_that_is_renamed_tells_through_its_new_name(life):
    life.service = "refuses"
    life.verdicts["a"] = "idle"
    for _ in range(3):
        await life.window()
    assert states(life) == ["notified"]
    renamed = ChannelConfig(name="b", url="http://b/x", service="webhook")
    life.config = replace(TOLD, notify=replace(TOLD.notify, channels=(renamed,)))
    life.service = "ok"
    for _ in range(2):
        await life.window()
    assert (len(life.mails), states(life)) == (1, ["grace"])


async def test_when_the_last_channel_is_removed_the_grace_period_begins(life):
    life.service = "refuses"
    life.verdicts["a"] = "idle"
    for _ in range(3):
        await life.window()
    life.config = replace(TOLD, notify=NotifyConfig())
    await life.window()
    assert states(life) == ["grace"]


async def test_whoever_was_in_a_dry_run_is_told_when_it_ends(life):
    life.config = replace(TOLD, control=replace(TOLD.control, dry_run=True))
    life.verdicts["a"] = "idle"
    for _ in range(3):
        await life.window()
    assert (life.mails, states(life)) == ([], ["grace"])
    life.config = TOLD
    await life.window()
    await life.deliver()
    assert (len(life.mails), life.received, states(life)) == (1, [], ["grace"])


async def test_a_digest_interval_holds_the_second_message_back(life):
    life.config = replace(TOLD, notify=replace(TOLD.notify, digest=5 * WINDOW))
    await idle_until_told(life)
    begun = life.now
    life.verdicts["b"] = "idle"
    for _ in range(12):
        await life.window()
        if len(life.mails) == 2:
            break
    assert life.mails[1].at - begun >= 5 * WINDOW - 1
    assert life.mails[1].pods == {life.uid("b")}


@pytest.mark.parametrize("replica", [0, 1])
@pytest.mark.parametrize(("action", "wanted"), [("keep", 0), ("snooze", 0), ("release", 1)])
async def test_an_answer_through_any_replica_holds_for_the_leader(life, replica, action, wanted):
    await idle_until_told(life)
    await life.answer(action, "a", replica)
    assert life.answered == {life.uid("a"): action}
    await life.analyse()  # before the leader looked at the store by itself
    await life.deliver()
    assert len(life.received) == wanted
    for _ in range(4):
        await life.window()
    assert len(life.received) == wanted


async def test_nobody_is_told_on_doubt_and_the_notice_waits_for_proof(life):
    life.service = "refuses"
    life.verdicts["a"] = "idle"
    for _ in range(3):
        await life.window()
    life.service = "ok"
    life.verdicts["a"] = "unknown"
    for _ in range(3):
        await life.window()
    assert (life.mails, states(life)) == ([], ["notified"])
    life.verdicts["a"] = "idle"
    await life.window()
    assert (len(life.mails), states(life)) == (1, ["grace"])


async def test_an_owner_who_gives_back_does_not_wait_for_his_own_grace_period(life):
    life.known = WorkloadFacts(pod=PodFacts(read=True, idle_grace=100 * WINDOW))
    await idle_until_told(life)
    for _ in range(3):
        await life.window()
    assert life.received == []
    await life.answer("release", "a", 0)
    await life.window()
    assert len(life.received) == 1


async def test_the_annotation_chooses_the_channel(life):
    channels = (
        TOLD.notify.channels[0],
        ChannelConfig(name="ann", url="http://b/x", service="webhook", owners=("ann",)),
    )
    life.config = replace(TOLD, notify=replace(TOLD.notify, channels=channels))
    life.known = WorkloadFacts(pod=PodFacts(read=True, notify="ann"))
    await idle_until_told(life)
    [machine] = [machine for machine, lease in life.replicas if lease.leads]
    notices = life.notices[id(machine)]
    assert notices.counts == {("ann", "success"): 1}


def broken(life: ToldLife, template: str = "{{ pod - 1 }}", **more) -> None:
    """A template that cannot be rendered, as one that the check of the settings could not find out."""
    channel = replace(TOLD.notify.channels[0], templates={"soon": template}, **more)
    life.config = replace(TOLD, notify=replace(TOLD.notify, channels=(channel, *life.config.notify.channels[1:])))


async def test_a_text_that_cannot_be_written_is_a_failure_of_its_channel_and_ends_after_a_day(life):
    broken(life)
    life.verdicts["a"] = "idle"
    for _ in range(4):
        await life.window()
    machine = life.replicas[0][0]
    [call] = await life.store.calls_of(life.uid("a"))
    assert (states(life), call.attempts > 0, "TypeError" in call.error) == (["notified"], True, True)
    notices = life.notices[id(machine)]
    assert "TypeError" in notices.states["a"].error
    assert notices.counts["a", "failure"] == call.attempts
    for _ in range(200):
        await life.window()
    assert (life.received, states(life), machine.cases[life.uid("a")].reason) == ([], ["failed"], "notice_failed")


async def test_a_text_that_cannot_be_written_delays_no_other_kind_and_no_other_channel(life):
    other = ChannelConfig(name="b", url="http://b/x", service="webhook")
    life.config = replace(TOLD, notify=replace(TOLD.notify, channels=(*TOLD.notify.channels, other)))
    broken(life, "{% if pod == 'a' %}{{ pod - 1 }}{% else %}{{ keep_url }} will be taken back{% endif %}")
    life.verdicts |= {"a": "idle", "b": "idle"}
    for _ in range(4):
        await life.window()
        life.now += 2.0
        await life.deliver()
    counts = life.notices[id(life.replicas[0][0])].counts
    assert counts["b", "success"] == 2  # about both pods
    assert counts["a", "success"] == 1  # about the pod whose text can be written
    assert (counts["b", "failure"], counts["a", "failure"] > 0) == (0, True)


async def test_an_unforeseen_error_of_one_channel_stops_no_other(life, monkeypatch):
    other = ChannelConfig(name="b", url="http://b/x", service="webhook")
    life.config = replace(TOLD, notify=replace(TOLD.notify, channels=(*TOLD.notify.channels, other)))
    sent = FakeSender.send

    async def send(self: FakeSender, title: str, body: str) -> None:
        if self is life.notices[id(life.replicas[0][0])].channels()["a"].sender:
            raise ZeroDivisionError("at https://bot.example.com/secret")
        await sent(self, title, body)

    monkeypatch.setattr(FakeSender, "send", send)
    life.verdicts["a"] = "idle"
    for _ in range(4):
        await life.window()
    notices = life.notices[id(life.replicas[0][0])]
    assert (notices.counts["b", "success"], len(life.mails)) == (1, 1)
    assert notices.states["a"].error == "unexpected ZeroDivisionError"  # its text may name a secret address
