"""Paths of objects at the Kubernetes API."""

from typing import NamedTuple
from urllib.parse import quote


class ObjectRef(NamedTuple):
    """One object; the namespace is "" for cluster-scoped objects."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"

    @property
    def path(self) -> str:
        return object_path(self.api_version, self.kind, self.name, namespace=self.namespace)


def object_path(api_version: str, kind: str, name: str, *, namespace: str = "") -> str:
    """The path of one object; the namespace is "" for cluster-scoped objects."""
    return f"{_root(api_version)}/{_place(namespace)}{plural(kind)}/{quote(name, safe='')}"


def list_path(api_version: str, kind: str, *, namespace: str) -> str:
    """The path of all objects of a kind in a namespace."""
    return f"{_root(api_version)}/{_place(namespace)}{plural(kind)}"


def selector_value(text: str) -> str:
    """A value in a field selector: what separates its parts is escaped, as in apimachinery."""
    return text.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


def plural(kind: str) -> str:
    """The kind's plural as used in paths, by the rule that all known kinds follow."""
    word = quote(kind.lower(), safe="")
    if word.endswith(("s", "x", "ch")):
        return f"{word}es"
    return f"{word[:-1]}ies" if word.endswith("y") and word[-2:-1] not in "aeiou" else f"{word}s"


def _root(api_version: str) -> str:
    return f"{'/apis' if '/' in api_version else '/api'}/{quote(api_version)}"


def _place(namespace: str) -> str:
    return f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
