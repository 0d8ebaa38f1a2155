"""A tenant names pods, owners and models, and chooses a namespace: people read these in messages, and act on links."""

import re
from typing import Any

import pytest

from vgpuscope.logic.notices.routing import channels_for, low_uses_for
from vgpuscope.model.notices import FOR_OPERATORS, FOR_OWNERS, NOTICE_KINDS, LowUse, Notice, NoticeKind, Route
from vgpuscope.model.reclaim import Case, Share
from vgpuscope.views.notices.message import Item, Style, message

pytestmark = pytest.mark.attack
HOSTILE = (
    "x\n- ml/other\n  Keep: https://evil.example/a evil.example/b www.evil.example c.example @all <at id='all'> [a](b)"
)
LINK = re.compile(r"\w\.[a-z]{2,}")  # what a chat service makes a link of
LINKS = {"keep": "https://gpu/keep", "snooze": "https://gpu/snooze", "release": "https://gpu/release"}


def notice(kind: NoticeKind, hostile: str) -> Notice:
    if kind == "low":
        use = LowUse(namespace=hostile, pod=hostile, gpu_id=hostile, model=hostile, score=1.0, idle_since="")
        return Notice(kind="low", channel="a", at=0.0, low=use)
    share = Share(gpu_id=hostile, model=hostile, score=1.0)
    case = Case(
        id="u", uid="u", namespace=hostile, pod=hostile, owner=hostile, since=0.0, first_idle=0.0, shares=(share,)
    )
    return Notice(kind=kind, channel="a", at=0.0, case=case, opinion=hostile)


def text(kind: NoticeKind, hostile: str, **style: Any) -> str:
    links = LINKS if kind in {"soon", "advice"} else {}
    return message([Item(notice=notice(kind, hostile), links=links)], Style(**style)).body


@pytest.mark.parametrize("style", [{}, {"language": "zh"}, {"language": "zh", "oour": True}])
@pytest.mark.parametrize("kind", NOTICE_KINDS)
def test_names_bring_no_line_no_link_and_no_mention_into_a_message(kind, style):
    told, plain = text(kind, HOSTILE, **style), text(kind, "x", **style)
    assert len(told.splitlines()) == len(plain.splitlines())
    assert not set(told) & set("<>@`*[]|{}") - set(plain)
    ours = set(re.findall(r"https?://\S+", plain))
    assert set(re.findall(r"https?://\S+|www\.\S+", told)) == ours
    assert LINK.findall(told) == LINK.findall(plain)


OTHER_SIGNS = (
    "evil．example",
    "evil｡example",
    "evil。example",
    "evil․example",
    "10.0.0.1/x",
    "http：//a",
    "http:⁄⁄a",
    "＠all",
)


@pytest.mark.parametrize("name", OTHER_SIGNS)
@pytest.mark.parametrize("style", [{}, {"language": "zh"}])
def test_signs_that_stand_for_dots_slashes_and_mentions_make_no_link_and_no_mention_either(name, style):
    """Domain names may be written with the full stops of other scripts (UTS 46)."""
    told = text("low", name, **style)
    assert name not in told
    assert not re.search(r"[a-z][.．｡。․][a-z]", told)


def test_sentences_and_numbers_stay_as_they_are():
    told = text("low", "空闲 2.5 小时。显存 v1.2.3，NVIDIA A100。")
    assert "空闲 2.5 小时。显存 v1.2.3，NVIDIA A100。" in told


TEAMS = [Route(name="ml", namespaces=frozenset({"ml"})), Route(name="ann", owners=frozenset({"ann"}))]


@pytest.mark.parametrize("kind", sorted(FOR_OWNERS | FOR_OPERATORS))
@pytest.mark.parametrize("owner", ["", "bob"])
def test_a_notice_of_an_unrouted_namespace_reaches_no_other_team(kind, owner):
    assert channels_for(kind, "web", owner, TEAMS) == ()
    ops = Route(name="ops", operators=True)
    assert channels_for(kind, "web", owner, [*TEAMS, ops]) == ("ops",)
    use = LowUse(namespace="web", pod="p", gpu_id="g", model="", score=1.0, idle_since="")
    assert [low_uses_for(route, [use]) for route in TEAMS] == [[], []]
