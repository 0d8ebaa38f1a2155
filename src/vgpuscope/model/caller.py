"""The caller of an API operation, and the caller's permissions."""

from typing import Literal, TypeAlias

from msgspec import Struct

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


ANYONE = Caller(name="anyone")  # a caller without credentials, if reading needs none
