"""Settings as the console shows them, and what a change of them would change."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.analysis import Status, UseClass, Verdict

SettingSource: TypeAlias = Literal["default", "file", "env", "flag", "changed"]
SettingType: TypeAlias = Literal["number", "integer", "text", "boolean", "list", "duration", "choice"]


class SettingRow(Struct, frozen=True, kw_only=True):
    """One setting."""

    path: str  # thresholds.idle
    section: str
    type: SettingType
    choices: tuple[str, ...]
    minimum: float | None
    maximum: float | None
    exclusive_minimum: bool  # the minimum itself is not allowed
    default: Any  # null for a secret
    default_text: str
    value: Any  # null: not set, or a secret
    is_set: bool  # of a secret, whether there is one
    secret: bool
    source: SettingSource
    source_name: str | None  # the file or the variable
    editable: bool
    needs_restart: bool
    description: str
    flag: str | None
    env: str


class SettingList(Struct, frozen=True, kw_only=True):
    """Every setting of the analyzer."""

    updates: Literal["memory", "file", "refuse"]  # where changes are kept
    rows: tuple[SettingRow, ...]


class Judgement(Struct, frozen=True, kw_only=True):
    """What is concluded of a GPU or a tenant."""

    score: float | None
    status: Status
    verdict: Verdict
    use_class: UseClass


class PreviewRow(Struct, frozen=True, kw_only=True):
    """A GPU or a tenant that would be judged differently."""

    gpu_id: str
    mig: str | None
    node: str | None
    namespace: str | None  # null: the GPU itself
    pod: str | None
    container: str | None
    before: Judgement | None  # null: a tenant or GPU that only the other settings count, such as a pod that has ended
    after: Judgement | None


class Preview(Struct, frozen=True, kw_only=True):
    """What a change of settings would change, on the data of this moment."""

    changes: dict[str, Any]
    gpus: int  # GPUs and MIG instances that were judged
    tenants: int
    gpus_changed: int
    tenants_changed: int
    by_status_before: dict[Status, int]  # GPUs
    by_status_after: dict[Status, int]
    by_verdict_before: dict[Verdict, int]
    by_verdict_after: dict[Verdict, int]
    rows: tuple[PreviewRow, ...]  # the first of them
