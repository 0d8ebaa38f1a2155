"""What one page states and another shows, and the hours of an account: small answers written by hand."""

from typing import Any

from vgpuscope.logic.audit import statements, waste
from vgpuscope.logic.audit.checks import holds
from vgpuscope.logic.audit.same import same_figures
from vgpuscope.model.consistency import STORED, FigureComparison, FigureReading, PublicAnswer, Surfaces

GIB = 2**30


def answer(kind: str, body: Any, **query: str) -> PublicAnswer:
    return PublicAnswer(service="analyzer", surface=f"GET /{kind}", kind=kind, body=body, query=query)


def wrong(check: Any, *answers: PublicAnswer, readings: tuple[FigureReading, ...] = ()) -> list[FigureComparison]:
    return [one for one in check(Surfaces(answers=answers, readings=readings)) if not holds(one)]


def report(*examples: str, status: str = "warn") -> PublicAnswer:
    cause = "SM activity is not known, so `busy-unproductive` is never found there."
    finding = {"code": "SIGNALS_MISSING", "status": status, "cause": {"en": cause, "zh": ""}, "examples": examples}
    return answer("DoctorReport", {"findings": [finding]})


def results(**row: str) -> PublicAnswer:
    return answer("ResultRow[]", [{"gpu_id": "GPU-1", "hostname": "node-1", "use_class": "busy-unproductive"} | row])


def test_a_class_that_doctor_rules_out_and_the_results_show_is_found():
    assert len(wrong(statements.ruled_out, report("node-1: no SM activity"), results())) == 1
    assert len(wrong(statements.ruled_out, report("GPU-1"), results())) == 1
    assert wrong(statements.ruled_out, report("node-11", "GPU-12"), results()) == []
    assert wrong(statements.ruled_out, report("node-1"), results(use_class="busy")) == []
    assert wrong(statements.ruled_out, report("node-1", status="pass"), results()) == []


def test_a_signal_that_doctor_says_is_not_known_and_a_row_shows_is_found():
    def gpus(mean: float | None) -> PublicAnswer:
        rows = [{"gpu_id": "GPU-1", "node": "node-1", "sm_active": {"mean": mean}}]
        return answer("GpuList", {"rows": rows})

    assert len(wrong(statements.ruled_out, report("node-1 GPU-1: unsupported"), gpus(0.4))) == 1
    assert wrong(statements.ruled_out, report("node-1 GPU-1: unsupported"), gpus(None)) == []
    assert wrong(statements.ruled_out, report("node-1 GPU-2: unsupported"), gpus(0.4)) == []


def test_two_doctors_that_count_differently_are_found():
    def doctor(number: int, status: str = "warn") -> PublicAnswer:
        finding = {"code": "GPM_UNSUPPORTED", "status": status, "numbers": {"gpus": number}, "examples": []}
        return answer("DoctorReport", {"findings": [finding]})

    assert len(wrong(statements.doctors, doctor(4), doctor(7))) == 1
    assert wrong(statements.doctors, doctor(4), doctor(4)) == []
    assert list(statements.doctors(Surfaces(answers=(doctor(4), doctor(7, "skipped"))))) == []


def test_doctors_that_asked_different_services_are_listed_and_not_compared():
    def doctor(number: int, *names: str) -> PublicAnswer:
        finding = {"code": "CREDENTIALS_REFUSED", "status": "pass", "numbers": {"count": number}, "examples": []}
        services = [{"service": "agent", "name": name, "state": "answered"} for name in names]
        return answer("DoctorReport", {"findings": [finding], "services": services})

    other = Surfaces(answers=(doctor(1, "node-1"), doctor(2, "node-1", "node-2")))
    assert list(statements.doctors(other)) == []
    assert [(one.check, one.why) for one in statements.uncompared(other)] == [("doctors", "other-services")]
    same = Surfaces(answers=(doctor(1, "node-1"), doctor(2, "node-1")))
    assert len(list(statements.doctors(same))) == 1
    assert list(statements.uncompared(same)) == []


def low(*listed: dict[str, Any], **counts: int) -> PublicAnswer:
    body = {"threshold": 20, "gpus": list(listed), "low_utilization_count": 1, "gpu_rows": 2}
    return answer("LowBody", body | counts)


def test_a_low_row_without_a_known_status_is_found():
    low_row = {"score": 10.0, "status": "low", "verdict": "in_use"}
    idle = {"score": 40.0, "status": "normal", "verdict": "idle"}
    unproven = {"score": 5.0, "status": "unknown", "verdict": "unknown"}
    every = answer("ResultRow[]", [low_row, idle, unproven, {"score": None, "status": "unknown", "verdict": "unknown"}])
    assert wrong(statements.low_rows, low(low_row, idle), every) == []
    found = wrong(statements.low_rows, low(low_row, idle, unproven, low_utilization_count=2, gpu_rows=3), every)
    assert [one.first.figure for one in found] == ["fleet.low_or_idle", "fleet.low", "fleet.low_gpu_rows"]


def test_a_console_that_leaves_out_gpus_known_by_number_is_found():
    offer = {"resource": "nvidia.com/gpu", "replicas": 1, "profile": ""}
    ledgers = answer("NodeLedger[]", [{"name": "node-1", "offers": [{"offer": offer, "free": 2, "lost": None}]}])
    assert len(wrong(statements.fits, answer("Scheduling", {"capacity": {"whole_gpus": 1}}), ledgers)) == 1
    assert wrong(statements.fits, answer("Scheduling", {"capacity": {"whole_gpus": 2}}), ledgers) == []
    counted = answer("Scheduling", {"capacity": {"whole_gpus": 0}, "counted": [{"whole_gpus": 2}]})
    assert wrong(statements.fits, counted, ledgers) == []


def test_more_failed_attempts_than_decisions_against_a_pod_are_found():
    def pending(attempts: int, created: str | None = "2026-11-19T04:01:00Z") -> PublicAnswer:
        pod = {"namespace": "ml", "pod": "train", "pod_uid": "a", "code": "MEMORY", "created": created}
        return answer("Scheduling", {"pending": [pod | {"attempts": attempts}]})

    refused = {"pod_uid": "a", "outcome": "refused", "codes": {"MEMORY": 2}}
    rows = [refused | {"at": f"2026-11-19T04:0{n}:00Z"} for n in (4, 3, 2)]
    rows += [{"pod_uid": "b", "outcome": "bound", "codes": {}, "at": "2026-11-19T04:00:00Z"}]
    log = answer("DecisionList", {"rows": rows})
    assert [found.subject for found in wrong(statements.attempts, pending(6), log)] == ["ml/train"]
    assert wrong(statements.attempts, pending(3), log) == []
    assert wrong(statements.attempts, pending(2), log) == []  # events of the last attempt come a little later
    before = pending(6, "2026-11-19T03:00:00Z")
    assert list(statements.attempts(Surfaces(answers=(before, log)))) == []
    unasked = answer("DecisionList", {"rows": [one | {"codes": {"LOCKED": 1}} for one in rows]})
    assert list(statements.attempts(Surfaces(answers=(pending(6), unasked)))) == []


def test_an_idle_workload_without_a_case_is_found():
    pods = [{"namespace": "ml", "pod": f"pod-{n}", "verdict": "idle", "state": "running"} for n in range(2)]
    listed = answer("WorkloadList", {"group_by": "pod", "rows": pods})
    one = {"mode": "dry_run", "cases": [{"namespace": "ml", "pod": "pod-0"}]}
    both = {"mode": "dry_run", "cases": [{"namespace": "ml", "pod": f"pod-{n}"} for n in range(2)]}
    assert [found.subject for found in wrong(statements.cases, listed, answer("ReclaimList", one))] == ["ml/pod-1"]
    assert wrong(statements.cases, listed, answer("ReclaimList", both)) == []
    assert wrong(statements.cases, listed, answer("ReclaimList", {"mode": "off", "cases": []})) == []


def test_a_count_of_a_list_of_gpus_that_lists_a_gpu_twice_is_found_unless_it_is_defined():
    rows = [{"gpu_id": "GPU-1", "mig": ""}, {"gpu_id": "GPU-1", "mig": ""}]
    low = answer("LowBody", {"count": 2, "gpus": rows})
    assert len(wrong(statements.populations, low)) == 1
    defined = Surfaces(answers=(low,), defined=frozenset({"fleet.low_or_idle"}))
    assert list(statements.populations(defined)) == []


def test_a_count_that_is_not_the_sum_of_its_parts_is_found():
    def low(count: int) -> PublicAnswer:
        return answer("LowBody", {"count": count, "gpus": [], "gpu_rows": 5, "tenant_rows": 2})

    assert [one.rule for one in wrong(statements.populations, low(7))] == ["equal"]
    assert [one.rule for one in wrong(statements.populations, low(8))] == ["sum", "equal"]


def account(group: str, *rows: dict[str, Any], **changed: float) -> PublicAnswer:
    body = {"group_by": group, "history": True, "count": len(rows), "rows": list(rows), "end": "2026-11-19T12:30:00Z"}
    totals = {"idle_gpu_hours": 6.0, "in_use_gpu_hours": 10.0, "unknown_gpu_hours": 2.0}
    more = {"gpu_hours": 24.0, "held_gpu_hours": 18.0, "unallocated_gpu_hours": 6.0}
    return answer("Waste", body | totals | more | changed, since="24h")


def row(idle: float, used: float, unknown: float, **more: Any) -> dict[str, Any]:
    hours = {"idle_gpu_hours": idle, "in_use_gpu_hours": used, "unknown_gpu_hours": unknown}
    return hours | {"namespace": "ml", "pod": None, "memory_held": None, "verdict": "idle", "gpus": 1} | more


def test_gpu_hours_that_do_not_add_up_are_found():
    assert wrong(waste.hours, account("tenant")) == []
    assert len(wrong(waste.hours, account("tenant", unallocated_gpu_hours=7.0))) == 1
    assert len(wrong(waste.hours, account("tenant", unknown_gpu_hours=3.0))) == 1
    assert wrong(waste.hours, account("tenant", unknown_gpu_hours=1.0, free_part_gpu_hours=1.0)) == []
    assert len(wrong(waste.hours, account("tenant", unknown_gpu_hours=1.0, free_part_gpu_hours=0.0))) == 1


def test_rows_that_leave_out_namespaces_without_idle_hours_are_found():
    assert wrong(waste.rows, account("namespace", row(6, 4, 1), row(0, 6, 1))) == []
    assert {one.first.path for one in wrong(waste.rows, account("namespace", row(6, 4, 1)))} == {
        "in_use_gpu_hours",
        "unknown_gpu_hours",
    }


def test_rows_whose_held_hours_are_not_those_of_the_total_are_found():
    rows = (row(6, 10, 2, held_gpu_hours=17.0),)
    assert [one.first.path for one in wrong(waste.rows, account("namespace", *rows))] == ["held_gpu_hours"]
    assert wrong(waste.rows, account("namespace", *rows, free_part_gpu_hours=1.0)) == []


def test_a_namespace_that_holds_less_than_one_of_its_pods_is_found():
    pod = account("tenant", row(6, 10, 2, pod="notebook", memory_held=20 * GIB))
    assert wrong(waste.groups, pod, account("namespace", row(6, 10, 2, memory_held=26 * GIB))) == []
    assert len(wrong(waste.groups, pod, account("namespace", row(6, 10, 2, memory_held=6 * GIB)))) == 1


def test_totals_that_depend_on_the_grouping_are_found():
    assert wrong(waste.groups, account("tenant"), account("node")) == []
    assert len(wrong(waste.groups, account("tenant"), account("node", idle_gpu_hours=9.0))) == 1


def test_the_page_of_namespaces_shows_the_hours_of_the_account():
    shown = FigureReading(
        surface="GET /api/v1/namespaces",
        path="rows[0].idle_gpu_hours",
        figure="namespace.idle_gpu_hours_day",
        subject=("ml",),
        value=6.0,
    )
    assert wrong(waste.day_of_namespaces, account("namespace", row(6, 10, 2)), readings=(shown,)) == []
    assert len(wrong(waste.day_of_namespaces, account("namespace", row(9, 10, 2)), readings=(shown,))) == 1


def test_a_page_may_differ_by_the_time_since_its_hours_were_read_and_no_more():
    shown = FigureReading(
        surface="GET /NamespaceList",
        path="rows[0].idle_gpu_hours",
        figure="namespace.idle_gpu_hours_day",
        subject=("ml",),
        value=6.5,
    )

    def differences(at: str) -> int:
        page = answer("NamespaceList", {"parts": [{"name": "history", "at": at}]})
        return len(wrong(waste.day_of_namespaces, page, account("namespace", row(6, 10, 2)), readings=(shown,)))

    assert differences("2026-11-19T12:25:00Z") == 1
    assert differences("2026-11-19T11:55:00Z") == 0  # of another hour: its day begins an hour earlier


def test_a_statement_without_examples_is_of_no_gpu_in_particular():
    gpus = answer("GpuList", {"rows": [{"gpu_id": "GPU-1", "node": "node-1", "sm_active": {"mean": 0.4}}]})
    assert wrong(statements.ruled_out, report(), results()) == []  # such as to a caller of some namespaces
    assert wrong(statements.ruled_out, report(), gpus) == []


def test_hours_grow_between_two_answers_about_the_past_and_not_in_answers_of_one_analysis():
    def hours(surface: str, value: float, moment: str) -> FigureReading:
        return FigureReading(
            surface=surface, path="gpu_hours", figure="fleet.gpu_hours", subject=("7d",), value=value, moment=moment
        )

    def found(moment: str, later: float) -> int:
        return len(wrong(same_figures, readings=(hours("first", 498.40, moment), hours("second", later, moment))))

    assert found(STORED, 498.43) == 0
    assert found(STORED, 510.0) == 1
    assert found("2026-11-20T01:00:00Z", 498.43) == 1
