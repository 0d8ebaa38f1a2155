"""Kubernetes' rules for names. Whoever may create a pod writes the reference to its owner: the API server checks only
that its parts are not empty.
"""

import re

from vgpuscope.formats.kube.paths import ObjectRef
from vgpuscope.model.errors import KubeObjectUnreadable

_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_RULES = {
    "namespace": re.compile(_LABEL),
    "name": re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[-.a-z0-9]*[a-z0-9])?"),
    "kind": re.compile(r"[A-Za-z](?:[-A-Za-z0-9]{0,61}[A-Za-z0-9])?"),
    "apiVersion": re.compile(rf"(?:(?=[^/]{{1,253}}/){_LABEL}(?:\.{_LABEL})*/)?{_LABEL}"),
}
_SHOWN = 40  # characters of a name that breaks a rule


def checked(ref: ObjectRef) -> ObjectRef:
    """The same reference; KubeObjectUnreadable if no object can have this name, so that no request is made."""
    parts = {"namespace": ref.namespace, "name": ref.name, "kind": ref.kind, "apiVersion": ref.api_version}
    for what, text in parts.items():
        if ref.kind == "Namespace" and what == "namespace" and not text:
            continue
        if not _RULES[what].fullmatch(text):
            raise KubeObjectUnreadable(f"no object has the {what} {text[:_SHOWN]!r} ({len(text)} characters)")
    return ref
