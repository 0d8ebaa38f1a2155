"""The caller of an API operation, and the caller's permissions.

This is all that a handler knows of who calls, however the caller was identified: token, password, proxy or address.
"""

from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

Role: TypeAlias = Literal["read", "operate", "admin"]
RANK: dict[Role, int] = {"read": 0, "operate": 1, "admin": 2}  # a higher role includes the lower ones


class Caller(Struct, frozen=True, kw_only=True):
    """One caller: a user, a token, or a program on the same machine."""

    name: str
    role: Role | None = "read"  # None: may not even read
    namespaces: tuple[str, ...] | None = None  # None: all of them

    def may(self, role: Role) -> bool:
        """Whether the caller's role includes this one."""
        return self.role is not None and RANK[self.role] >= RANK[role]

    def sees(self, namespace: str) -> bool:
        """Whether the caller may see what belongs to a namespace."""
        return self.namespaces is None or namespace in self.namespaces

    @property
    def restricted(self) -> bool:
        """Whether some namespaces are hidden from the caller."""
        return self.namespaces is not None

    def at_most(self, role: Role) -> "Caller":
        """The same caller without the permissions above a role."""
        return replace(self, role=role) if self.may(role) else self


ANYONE = Caller(name="anyone")  # a caller without credentials, if reading needs none
NOBODY = Caller(name="anyone", role=None)  # a caller without credentials, if reading needs some
