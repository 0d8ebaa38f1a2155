"""Who is told what, and how notices share a message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.logic.notices.digest import MOST, cut, fitting, size
from vgpuscope.logic.notices.kinds import of_breaker, of_move
from vgpuscope.logic.notices.routing import channels_for
from vgpuscope.model.notices import FOR_OPERATORS, FOR_OWNERS, NOTICE_KINDS, Route
from vgpuscope.model.reclaim import STATES, Case

ML = Route(name="ml", namespaces=frozenset({"ml", "vision"}))
ANN = Route(name="ann", owners=frozenset({"ann"}))
ALL = Route(name="all")
OPS = Route(name="ops", operators=True)


@pytest.mark.parametrize(
    ("kind", "namespace", "owner", "wanted"),
    [
        ("soon", "ml", "", ("ml",)),  # its namespace
        ("soon", "ml", "ann", ("ann",)),  # the owner's annotation is closer
        ("soon", "ml", "bob", ("ml",)),  # nobody has that name
        ("soon", "web", "", ("all",)),  # no route of its own
        ("taken", "vision", "", ("ml",)),
        ("failed", "ml", "ann", ("ops",)),
        ("breaker_opened", "", "", ("ops",)),
        ("restored", "ml", "", ("ml", "ops")),
    ],
)
def test_a_notice_takes_the_closest_route(kind, namespace, owner, wanted):
    assert channels_for(kind, namespace, owner, [ML, ANN, ALL, OPS]) == wanted


def test_without_a_route_the_operators_are_told_and_without_operators_nobody():
    assert channels_for("soon", "web", "", [ML, OPS]) == ("ops",)
    assert channels_for("soon", "web", "", [ML, ANN]) == ()
    assert channels_for("failed", "web", "", [ML, ANN]) == ()
    assert channels_for("breaker_opened", "", "", [ML, ANN]) == ("ml", "ann")  # it names no workload
    assert channels_for("failed", "web", "", [ML, ALL]) == ("all",)


routes = st.builds(
    Route,
    name=st.sampled_from("abcdef"),
    namespaces=st.frozensets(st.sampled_from(["ml", "web"])),
    owners=st.frozensets(st.sampled_from(["ann", "bob"])),
    operators=st.booleans(),
    kinds=st.frozensets(st.sampled_from(NOTICE_KINDS)),
)


@given(
    st.sampled_from(sorted(FOR_OWNERS | FOR_OPERATORS)),
    st.sampled_from(["ml", "web", "x"]),
    st.sampled_from(["", "ann"]),
    st.lists(routes),
)
def test_a_notice_is_sent_to_no_channel_of_others_never_twice_and_never_lost_where_somebody_may_read_it(
    kind, namespace, owner, some
):
    found = channels_for(kind, namespace, owner, some)
    assert len(set(found)) == len(found)
    fit = {
        route.name
        for route in some
        if kind in route.kinds
        and (route.operators or route.anyone or namespace in route.namespaces or owner in route.owners)
    }
    assert set(found) <= fit
    if any(kind in route.kinds and route.operators for route in some):
        assert found
    assert all(any(route.name == name and kind in route.kinds for route in some) for name in found)


@given(st.lists(st.text("字ab\n", min_size=1, max_size=30), min_size=1, max_size=80), st.integers(10, 400))
def test_a_message_holds_as_many_as_fit_and_the_order_stays(items, longest):
    def text(some):
        return "head\n" + "\n".join(some)

    chosen, body = fitting(items, text, longest=longest)
    assert list(chosen) == items[: len(chosen)]
    assert 1 <= len(chosen) <= MOST
    assert size(body) <= longest or "\n" not in body.removesuffix("…").rstrip("\n")
    if len(chosen) < min(len(items), MOST):
        assert size(text(items[: len(chosen) + 1])) > longest  # one more would not have fitted


def test_a_text_is_cut_between_lines():
    assert cut("one\nhttps://example.com/a-long-link\nthree", 20) == "one\n…"


@pytest.mark.parametrize("state", STATES)
def test_nobody_is_told_of_a_dry_run(state):
    before = Case(id="a", uid="a", namespace="ml", pod="p", since=0.0, first_idle=0.0, state="acting", notified_at=1.0)
    after = Case(id="a", uid="a", namespace="ml", pod="p", since=0.0, first_idle=0.0, state=state, dry_run=True)
    assert of_move(before, after, tell=False, only_told=False) is None


def test_which_moves_are_told():
    def case(state, reason="", told=None):
        return Case(
            id="a",
            uid="a",
            namespace="ml",
            pod="p",
            since=0.0,
            first_idle=0.0,
            state=state,
            reason=reason,
            notified_at=told,
        )

    def kind(before, after, **more):
        return of_move(before, after, **{"tell": False, "only_told": False} | more)

    assert kind(case("candidate"), case("notified"), tell=True) == "soon"
    assert kind(case("candidate"), case("notified"), tell=True, only_told=True) == "advice"
    assert kind(case("acting"), case("verified")) == "taken"
    assert kind(case("acting"), case("failed")) == "failed"
    assert kind(case("verified"), case("restored")) == "restored"
    assert kind(case("grace", told=1.0), case("released", "works_again", 1.0)) == "recovered"
    assert kind(case("grace"), case("released", "works_again")) is None  # nobody was told before
    assert kind(case("grace", told=1.0), case("released", "ended", 1.0)) is None  # the owner ended it himself
    assert kind(None, case("candidate")) is None
    assert of_breaker(was_open=False, is_open=True) == "breaker_opened"
    assert of_breaker(was_open=True, is_open=False) == "breaker_closed"
    assert of_breaker(was_open=True, is_open=True) is None
