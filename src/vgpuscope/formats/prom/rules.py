"""The rules that a PromQL engine has loaded: the answer of /api/v1/rules, {"data": {"groups": [{"rules": [...]}]}}."""

import msgspec

from vgpuscope.model.errors import QueryFailed


class LoadedRule(msgspec.Struct):
    """One loaded rule."""

    name: str = ""
    query: str = ""


class _Group(msgspec.Struct):
    rules: list[LoadedRule] = []


class _Groups(msgspec.Struct):
    groups: list[_Group] = []


class _Rules(msgspec.Struct):
    data: _Groups


def decode_rules(data: bytes) -> list[LoadedRule]:
    """The rules of an engine; QueryFailed if the answer is none."""
    try:
        found = msgspec.json.decode(data, type=_Rules)
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise QueryFailed(f"the list of rules cannot be read: {e}") from e
    return [rule for group in found.data.groups for rule in group.rules]
