"""Where a pod goes: one node of the candidates and its GPUs, decided as HAMi v2.10 decides, or why there is none.

Every candidate gets a verdict. Ties of nodes are broken by name, in alphabetical order; ties of GPUs by index, the
highest first, and then by UUID, the last in alphabetical order first. HAMi breaks them at random.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from vgpuscope.logic.scheduler.books import NodeBook
from vgpuscope.logic.scheduler.node_fit import Refusal, fit_pod
from vgpuscope.logic.scheduler.quick import Quick
from vgpuscope.logic.scheduler.rules import Rules
from vgpuscope.logic.scheduler.state import Room, SchedulerState
from vgpuscope.logic.scheduler.verdicts import refused, unregistered
from vgpuscope.model.allocation import PodState
from vgpuscope.model.placement import NodeVerdict, Placement, PlacementRequest, Policies
from vgpuscope.model.quantity import PodUID

_DEFAULT = Policies()


class Books(Protocol):
    """The nodes and quotas that a decision is made from: those of the state, or a variant of them."""

    def book(self, name: str) -> NodeBook | None: ...

    def room(self, namespace: str) -> Room: ...


def place(
    state: SchedulerState, request: PlacementRequest, candidates: Sequence[str], *, policies: Policies = _DEFAULT
) -> Placement:
    """The node and GPUs for a pod, or the verdicts on all candidates; the state does not change.

    What the pod itself holds is not counted, so that a second attempt does not compete with the first.
    """
    return check_nodes(state, request, candidates, policies=policies).placement()


def check_nodes(
    state: SchedulerState, request: PlacementRequest, candidates: Sequence[str], *, policies: Policies = _DEFAULT
) -> "Checked":
    """The first half of the same: the verdicts, before the nodes that fit are ranked."""
    books: Books = Variant(state, without=(request.uid,)) if state.holds(request.uid) else state
    return _check(books, request, candidates, rules=Rules(request.selection, policies))


class Variant:
    """The books as they would be if some pods held nothing and others held GPUs. Only their nodes are computed."""

    def __init__(
        self, state: SchedulerState, *, without: Collection[PodUID] = (), also: Sequence[PodState] = ()
    ) -> None:
        self._state, self._without, self._also = state, without, also
        names = {pod.place for uid in without for pod in state.holding(uid)} | {pod.place for pod in also}
        self._books = {name: state.book_with(name, without=without, also=also) for name in names}

    def book(self, name: str) -> NodeBook | None:
        """The GPUs of a node with their usage; None for an unknown node."""
        return self._books[name] if name in self._books else self._state.book(name)

    def room(self, namespace: str) -> Room:
        """What the quotas of a namespace leave."""
        return self._state.room(namespace, without=self._without, also=self._also)

    def changed(self, *, without: Collection[PodUID] = (), also: Sequence[PodState] = ()) -> "Variant":
        """The same with more changes."""
        return Variant(self._state, without=(*self._without, *without), also=(*self._also, *also))


def place_in(books: Books, request: PlacementRequest, candidates: Sequence[str], *, rules: Rules) -> Placement:
    """The same, for variants of the books."""
    return _check(books, request, candidates, rules=rules).placement()


def _check(books: Books, request: PlacementRequest, candidates: Sequence[str], *, rules: Rules) -> "Checked":
    room = books.room(request.namespace)
    verdicts: list[NodeVerdict] = []
    fitting: list[NodeBook] = []
    quick = Quick(request, rules, room)
    for name in dict.fromkeys(candidates):
        book = books.book(name)
        if book is None or not book.usable:
            verdicts.append(unregistered(name, book))
            continue
        found = quick.check(book) or fit_pod(book, request, rules, room)
        if isinstance(found, Refusal):
            verdicts.append(refused(book, found, rules=rules, room=room, namespace=request.namespace))
        else:
            verdicts.append(NodeVerdict(node=name, score=book.score))
            fitting.append(book)
    return Checked(request, rules, room, fitting=fitting, verdicts=tuple(verdicts))


class Checked:
    """The candidates of one pod after the checks: a verdict on each, and the nodes that fit."""

    def __init__(
        self,
        request: PlacementRequest,
        rules: Rules,
        room: Room,
        *,
        fitting: list[NodeBook],
        verdicts: tuple[NodeVerdict, ...],
    ) -> None:
        self._request, self._rules, self._room = request, rules, room
        self._fitting, self._verdicts = fitting, verdicts

    def best(self) -> NodeBook | None:
        """Rank the nodes that fit; the first of them, None if there is none."""
        sign = 1 if self._rules.node_policy == "spread" else -1
        return min(self._fitting, key=lambda book: (sign * book.score, book.name), default=None)

    def placement(self) -> Placement:
        """The decision for the best node."""
        return self.on(self.best())

    def on(self, best: NodeBook | None) -> Placement:
        """The decision for a node that fits; None: the refusal."""
        policy = f"{self._rules.node_policy}/{','.join(self._rules.gpu_policy)}"
        if best is None:
            return Placement(policy=policy, nodes=self._verdicts)
        gpus = fit_pod(best, self._request, self._rules, self._room)
        assert not isinstance(gpus, Refusal), "the node fitted a moment ago"
        slots, cores, memory = best.terms
        return Placement(
            node=best.name,
            gpus=gpus,
            score=best.score,
            policy=policy,
            terms={"slots": 10 * slots, "cores": 10 * cores, "memory": 10 * memory},
            nodes=self._verdicts,
        )


def first_place(books: Books, request: PlacementRequest, names: Sequence[str], *, rules: Rules) -> Placement:
    """The first of the nodes that fits, without verdicts: for a search that tries many placements."""
    room = books.room(request.namespace)
    quick = Quick(request, rules, room)
    for name in names:
        book = books.book(name)
        if book is None or not book.usable or isinstance(quick.check(book), Refusal):
            continue
        gpus = fit_pod(book, request, rules, room)
        if not isinstance(gpus, Refusal):
            return Placement(node=name, gpus=gpus)
    return Placement()
