"""Lists with some fields: whole ones, and single fields of a GPU's tenants and use."""

import json

import msgspec
import pytest

from vgpuscope.model.console.gpus import GpuList, GpuRow
from vgpuscope.views.console import tables

PARTS = ("tenants", "use")
ROW = {
    "gpu_id": "GPU-1",
    "use": {"mean": 0.5, "p95": 0.8, "max": 1.0},
    "tenants": [{"namespace": "ml", "pod": name, "use": {"mean": 0.1}} for name in ("a", "b")],
}


def sent(*fields):
    """What a list of one row sends, read as what the API promises of it."""
    row = msgspec.convert(ROW, Loose)
    body = tables.json_list([row], fields=fields, head={"at": None, "stale": False, "total": 1}, parts=())
    msgspec.json.decode(body, type=tables.some_of(GpuList, GpuRow, PARTS))
    return json.loads(body)["rows"][0]


class Tenant(msgspec.Struct):
    namespace: str
    pod: str
    use: dict[str, float]


class Use(msgspec.Struct):
    mean: float
    p95: float
    max: float


class Loose(msgspec.Struct):
    gpu_id: str
    use: Use
    tenants: tuple[Tenant, ...]


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        (("use.mean",), {"use": {"mean": 0.5}}),
        (("use.max", "gpu_id", "use.mean"), {"use": {"max": 1.0, "mean": 0.5}, "gpu_id": "GPU-1"}),
        (("tenants.pod", "tenants.namespace"), {"tenants": [{"pod": p, "namespace": "ml"} for p in ("a", "b")]}),
        (("use", "use.mean"), {"use": ROW["use"]}),
        (("use.mean", "use"), {"use": ROW["use"]}),
    ],
)
def test_single_fields_of_a_part_are_sent_and_a_whole_part_is_whole(fields, shown):
    assert sent(*fields) == shown


def test_a_table_has_whole_fields_each_once():
    row = msgspec.convert(ROW, Loose)
    assert tables.csv_list([row], Loose, ("use.mean", "use.max", "gpu_id")).split(b"\r\n")[0] == b"use,gpu_id"


def test_only_the_named_parts_can_be_asked_for_by_field():
    names = tables.field_names(GpuRow, PARTS)
    assert {"use", "use.mean", "tenants.pod"} <= set(names)
    assert not [name for name in names if name.startswith(("gpu_util.", "allocation."))]
