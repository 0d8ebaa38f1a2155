"""Pods that wait, as samples, as JSON and as text."""

import json
from typing import Any

import msgspec
from rich.console import Console

from vgpuscope.catalog import cluster as catalog
from vgpuscope.catalog.metric import FAMILIES
from vgpuscope.model.pending import PendingList, PendingPod, Said, WaitingCount
from vgpuscope.model.scheduling_codes import Reason
from vgpuscope.views.cluster.pending.api import pending_list
from vgpuscope.views.cluster.pending.metrics import pending_samples
from vgpuscope.views.cluster.pending.table import pending_table, pod_view
from vgpuscope.views.exposition.sharded import ShardedPage

NOW = 1_800_000_000.0
MEMORY = "SCHED_INSUFFICIENT_GPU_MEMORY"


def said(code=MEMORY, *nodes, count=None, **more):
    reason = Reason(code=code, nodes=nodes, node_count=count, detail=more.pop("detail", "words"))
    return Said(reason=reason, component="hami-scheduler", **more)


def pod(*reasons, **more):
    code = reasons[0].reason.code if reasons else "SCHED_NOT_TRIED"
    named: dict[str, Any] = {"namespace": "ml", "pod": "train-0", "pod_uid": "u", "code": code, "created": NOW - 300}
    return PendingPod(said=reasons, **(named | more))


def text(drawn, width=200):
    console = Console(width=width, no_color=True, highlight=False)
    with console.capture() as captured:
        console.print(drawn)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def view(shown, **more):
    return text(pod_view(shown, msgspec.structs.replace(pending_list([shown], NOW), **more)))


def table(*pods, width=None, outcomes=False):
    return text(pending_table(pending_list(pods, NOW), width, outcomes=outcomes), width or 1000)


# --- samples ----------------------------------------------------------------------------------------------------------


def page(*counts):
    made = ShardedPage(catalog.METRICS, FAMILIES)
    made.update("pending", pending_samples(counts))
    return [line for line in made.text().decode().splitlines() if line.startswith("vgpuscope_cluster_pending")]


def test_counts_and_ages_are_on_the_page_by_namespace_and_code():
    counts = (
        WaitingCount(namespace="ml", code=MEMORY, pods=2, oldest=70.5),
        WaitingCount(namespace="", code="SCHED_TAINT", pods=1),
    )
    assert sorted(page(*counts)) == [
        'vgpuscope_cluster_pending_oldest_seconds{namespace="ml",code="SCHED_INSUFFICIENT_GPU_MEMORY"} 70.5',
        'vgpuscope_cluster_pending_pods{code="SCHED_TAINT"} 1',
        'vgpuscope_cluster_pending_pods{namespace="ml",code="SCHED_INSUFFICIENT_GPU_MEMORY"} 2',
    ]


# --- JSON -------------------------------------------------------------------------------------------------------------


def test_the_answer_has_the_pods_and_what_their_codes_mean():
    found = pod(said(), said("SCHED_TAINT", current=False), said("SCHED_OF_TOMORROW"))
    body = json.loads(msgspec.json.encode(pending_list([found], NOW)))
    assert list(body) == ["now", "pending", "codes", "facts", "facts_zh", "advice", "advice_zh"]
    assert body["now"] == NOW
    assert list(body["codes"]) == [MEMORY, "SCHED_TAINT"]
    assert {"stage", "meaning", "runbook"} <= set(body["codes"][MEMORY])
    assert msgspec.convert(body, type=PendingList) == pending_list([found], NOW)


# --- text -------------------------------------------------------------------------------------------------------------


def test_a_row_names_a_few_nodes_and_how_many_more_there_are():
    named = table(pod(said(MEMORY, "a", "b", "c", "d", count=5)))
    assert "words. Nodes: 5 (a, b, c and 2 more).  5 nodes: words (a, b, c and 2 more)" in named
    assert "words. Nodes: 1 (a).  1 node: words (a)" in table(pod(said(MEMORY, "a", count=1)))
    assert "words. Nodes: 4.  4 nodes: words" in table(pod(said(MEMORY, count=4)))
    assert table(pod(said())).endswith("words.  words")


def test_what_is_not_kept_is_counted_with_the_rest():
    assert "words. 4 more reasons." in table(pod(said(), said("SCHED_TAINT"), said_cut=3))


def test_reasons_that_are_history_and_reports_of_the_same_code_are_no_more_reasons():
    assert "more reason" not in table(pod(said(), said(detail="other words"), said("SCHED_TAINT", current=False)))
    assert "1 more reason." in table(pod(said(), said("SCHED_TAINT"), said("SCHED_TAINT", "b")))


def test_the_reason_begins_with_plain_words_and_the_code_of_hami_is_behind():
    raw = pod(said(detail="CardInsufficientMemory", count=2), said("SCHED_TAINT"))
    row = table(raw).splitlines()[1]
    assert "No GPU has as much free memory as the pod asks for. Nodes: 2. 1 more reason." in row
    assert row.endswith("  2 nodes: CardInsufficientMemory")
    chinese = text(pending_table(pending_list([raw], NOW), None, outcomes=False, language="zh"), 1000)
    assert "没有一张 GPU 的空闲显存够该 Pod 使用。节点：2 个。另有 1 个原因。" in chinese


def test_a_code_that_this_version_does_not_know_is_shown_with_its_message():
    assert "Gone tomorrow. Nodes: 1 (a)." in table(pod(said("SCHED_OF_TOMORROW", "a", detail="Gone tomorrow")))


def test_a_pod_without_amounts_or_times_shows_that_it_is_not_known():
    row = table(pod(created=None)).splitlines()[1]
    assert row.split()[:5] == ["ml/train-0", "–", "SCHED_NOT_TRIED", "–", "0"]


def test_a_clock_that_jumps_makes_no_negative_ages():
    assert "-" not in table(pod(created=NOW + 500)).splitlines()[1].replace("train-0", "")
    assert "0.0 s ago" in view(pod(said(first=NOW + 9, last=NOW + 9)))


def test_a_narrow_table_shows_the_reason_and_says_what_it_hides():
    """The reason is what the command is for; how long a name is makes no difference."""
    long = pod(said(detail="CardInsufficientMemory"), pod="a-pod-with-a-rather-long-name-0")
    *rows, rest, hidden = table(long, pod(pod="new"), width=80).splitlines()
    assert rows[0].split() == ["POD", "AGE", "REASON"]
    assert "ml/a-pod-with-a-rather-long-name-0" in rows[1]
    assert rows[1].endswith("  No GPU has as much free memory as the")
    assert rows[2].strip() == "pod asks for."
    # between words a line ends as late as 80 columns let it
    assert rows[3].endswith("  No scheduler has reported anything")
    assert rest == " " * rows[0].index("REASON") + "about the pod yet."
    assert hidden == "5 columns hidden (CODE, SCHEDULER, ASKS FOR, ATTEMPTS, EVENT); --wide shows all"


def test_every_outcome_has_a_headline():
    ended = {"ended": NOW - 60, "node": "n1"}
    assert view(pod()).startswith("ml/train-0 has waited for 5 min\n")
    assert "was scheduled on n1 60 s ago, after 4 min\n" in view(pod(outcome="scheduled", **ended))
    assert "failed on n1 60 s ago, before it started\n" in view(pod(outcome="failed", **ended))
    assert "failed 60 s ago, before it started\n" in view(pod(outcome="failed", ended=NOW - 60))
    assert "was deleted 60 s ago, after waiting for 4 min\n" in view(pod(outcome="deleted", ended=NOW - 60))


def test_the_advice_names_the_namespace_and_the_node():
    waits = pod(said("SCHED_QUOTA_EXCEEDED"), said("SCHED_NODE_SELECTOR", "gpu-7"))
    shown = text(pod_view(waits, pending_list([waits], NOW), "zh"))
    assert "kubectl describe resourcequota -n ml`" in shown
    assert "kubectl describe node gpu-7`" in shown


def test_a_code_is_explained_once_however_many_said_it():
    shown = view(pod(said(MEMORY, "a", count=2), said(detail="other words", count=3, last=NOW - 3)))
    assert shown.count("what to do") == 1
    assert "nodes       1: a" not in shown
    assert "nodes       2: a and 1 more" in shown
    assert "message     other words\n" in shown


def test_history_stands_apart_and_what_is_cut_is_told():
    shown = view(pod(said(), said("SCHED_TAINT", current=False, last=NOW - 7200), said_cut=9))
    assert (
        "\nreported earlier\n  SCHED_TAINT  words, by hami-scheduler, 2 h ago\n  and 9 more, which are not stored"
        in shown
    )


def test_a_code_of_a_newer_exporter_is_shown_without_an_explanation():
    assert "SCHED_OF_TOMORROW" in view(pod(said("SCHED_OF_TOMORROW")))
    assert "meaning" not in view(pod(said("SCHED_OF_TOMORROW")))


def test_advice_is_shown_where_there_is_some():
    assert "capacity" not in view(pod(said()))
    assert "\ncapacity\n  less\n" in view(pod(said(), said("SCHED_TAINT", current=False)), advice=("less",))


def test_the_numbers_stand_with_the_code_they_belong_to_before_what_to_do():
    shown = view(pod(said(), said("SCHED_TAINT")), facts={MEMORY: ("n1: 6 MiB missing.", "n2: 8 MiB missing.")})
    memory, taint = shown.split("SCHED_TAINT")
    numbers = "  numbers     n1: 6 MiB missing.\n              n2: 8 MiB missing.\n  what to do  "
    assert numbers in memory
    assert "numbers" not in taint


def test_a_row_has_the_number_behind_its_code():
    row = table(pod(said(MEMORY, "a", count=1), fact="a: 6 MiB missing."))
    assert "No GPU has as much free memory as the pod asks for. a: 6 MiB missing. Nodes: 1 (a).  1 node: words" in row


def test_no_code_that_is_said_now_is_among_what_was_reported_earlier():
    shown = view(pod(said(), said(detail="older words", current=False), said("SCHED_TAINT", current=False)))
    now, earlier = shown.split("reported earlier")
    assert "  earlier     older words\n" in now
    assert MEMORY not in earlier
    assert "SCHED_TAINT" in earlier


def test_a_summary_without_a_cause_is_shown_only_where_no_cause_is():
    vague = "SCHED_NO_NODE_FITS"
    assert vague not in view(pod(said(), said(vague)))
    assert vague in view(pod(said(vague)))
