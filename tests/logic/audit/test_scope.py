"""What a caller of one namespace gets, written by hand."""

from typing import Any

from tests.logic.audit.test_statements import wrong
from vgpuscope.logic.audit import scope
from vgpuscope.model.consistency import PublicAnswer, Surfaces


def answer(kind: str, body: Any, *, sees: tuple[str, ...] | None) -> PublicAnswer:
    return PublicAnswer(service="analyzer", surface=f"GET /{kind}", kind=kind, body=body, sees=sees)


def test_a_tenant_of_another_namespace_anywhere_in_an_answer_is_found():
    rows = [{"gpu_id": "GPU-1", "tenants": [{"namespace": "ml"}, {"namespace": "batch"}, {"namespace": ""}]}]
    found = wrong(scope.only_own_names, answer("GpuList", {"rows": rows}, sees=("ml",)))
    assert [(one.subject, one.first.value) for one in found] == [("batch", 1)]
    assert wrong(scope.only_own_names, answer("GpuList", {"rows": rows}, sees=("ml", "batch"))) == []
    assert list(scope.only_own_names(Surfaces(answers=(answer("GpuList", {"rows": rows}, sees=None),)))) == []


def test_a_caller_without_namespaces_gets_no_name():
    found = wrong(scope.only_own_names, answer("Waste", {"rows": [{"namespace": "ml"}]}, sees=()))
    assert [one.subject for one in found] == ["ml"]


def account(hours: float, held: float) -> dict[str, Any]:
    rows = [{"namespace": "ml", "held_gpu_hours": 3.0}, {"namespace": "ml", "held_gpu_hours": 1.5}]
    return {"group_by": "tenant", "history": True, "count": 2, "rows": rows, "gpu_hours": hours, "held_gpu_hours": held}


def test_totals_of_everybody_above_the_rows_of_one_namespace_are_found():
    assert wrong(scope.only_own_hours, answer("Waste", account(4.5, 4.5), sees=("ml",))) == []
    found = wrong(scope.only_own_hours, answer("Waste", account(20.0, 12.0), sees=("ml",)))
    assert [one.first.path for one in found] == ["gpu_hours", "held_gpu_hours"]
    assert wrong(scope.only_own_hours, answer("Waste", account(20.0, 12.0), sees=None)) == []
