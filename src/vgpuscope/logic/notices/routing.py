"""Who is told: the channels of a notice, by the owner's annotation, then by namespace, then those for everyone.

A channel is never told of a namespace that is not its own: what no route wants goes to the operators' channels, and
without those to nobody. An owner's notice has links by which its reader answers for the owner.
"""

from collections.abc import Sequence

from vgpuscope.model.notices import FOR_OPERATORS, FOR_OWNERS, LowUse, NoticeKind, Route


def channels_for(kind: NoticeKind, namespace: str, owner: str, routes: Sequence[Route]) -> tuple[str, ...]:
    """The names of the channels, each once. `owner` is the value of the annotation; "" if there is none."""
    wanting = [route for route in routes if kind in route.kinds]
    found: list[Route] = []
    if kind in FOR_OWNERS:
        found += _for_owner(namespace, owner, wanting) or [route for route in wanting if route.operators]
    if kind in FOR_OPERATORS:
        found += operators(wanting) or ([] if namespace else wanting)
    return tuple(dict.fromkeys(route.name for route in found))


def _for_owner(namespace: str, owner: str, routes: Sequence[Route]) -> list[Route]:
    """The closest routes: of the owner, else of the namespace, else of everyone."""
    named = [route for route in routes if owner and owner in route.owners]
    near = named or [route for route in routes if namespace in route.namespaces]
    return near or [route for route in routes if route.anyone and not route.operators]


def operators(routes: Sequence[Route]) -> list[Route]:
    """The operators' channels; without one, those for everyone."""
    return [route for route in routes if route.operators] or [route for route in routes if route.anyone]


def low_uses_for(route: Route, uses: Sequence[LowUse]) -> list[LowUse]:
    """The low GPUs that a channel lists: of its namespaces; all of them for operators and for everyone."""
    if "low" not in route.kinds:
        return []
    if route.operators or route.anyone:
        return list(uses)
    return [use for use in uses if use.namespace in route.namespaces]
