"""The expressions that read a fleet."""

from vgpuscope.formats.prom.promql import parse_condition
from vgpuscope.knowledge.exporters import GROUPS
from vgpuscope.logic.fleet import queries

CONDITION = parse_condition('{pod!="",cluster="a"}')
DCGM = next(group for group in GROUPS if group.schema == "dcgm")


def test_only_matchers_that_hide_no_gpu_apply_to_every_group():
    assert [str(one) for one in queries.for_all(CONDITION)] == ['cluster="a"']


def test_an_xid_is_new_if_it_changed_in_the_window_or_was_not_there_before():
    assert queries.xids(DCGM, (), seconds=60) == (
        "(DCGM_FI_DEV_XID_ERRORS{} > 0 and changes(DCGM_FI_DEV_XID_ERRORS{}[59999ms]) > 0)"
        " or (DCGM_FI_DEV_XID_ERRORS{} > 0 unless DCGM_FI_DEV_XID_ERRORS{} offset 59999ms)"
    )


def test_an_agent_is_frozen_if_several_scrapes_show_the_same_sample():
    found = queries.frozen_agents((), seconds=60)
    assert found.split(" or ") == [
        f"(changes(vgpuscope_sample_timestamp_seconds{{}}[{span}]) == 0"
        f" and count_over_time(vgpuscope_sample_timestamp_seconds{{}}[{span}]) > 1)"
        for span in ("14999ms", "29999ms")
    ]


def test_a_rule_that_was_not_evaluated_for_three_intervals_is_not_read():
    assert queries.is_recent(910.0, end=1000.0)
    assert not queries.is_recent(909.0, end=1000.0)
    assert not queries.is_recent(None, end=1000.0)


def test_means_are_read_of_the_named_gpus_only():
    found = queries.means(DCGM, "DCGM_FI_DEV_GPU_UTIL", ["b", "a"], condition=CONDITION, step=60)
    assert found == 'avg_over_time(DCGM_FI_DEV_GPU_UTIL{pod!="",cluster="a",UUID=~"a|b"}[59999ms])'
