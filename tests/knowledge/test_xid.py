"""What is said of an XID is what NVIDIA's catalogue says of it."""

import pytest

from vgpuscope.knowledge.xid import advice

# NVIDIA's catalogue of XIDs with the actions of NVSentinel's published mapping (2026), copied from there by hand.
CATALOGUE = """
restart-app      no   8 11 13 25 31 32 39-41 60 68-72 75-77 80 82-86 88 89 94 96-105 126-135 139
ignore           no   14 37 38 43 44 63 66 67 92 93 106 107 121 137 141 152 153 157 161
reset-gpu        yes  46 62 64 95 109 110 119 120 136 140 143 155 156 158 162
restart-machine  yes  79 160
restart-vm       yes  151
check-hardware   yes  54
update-software  yes  78
see-other-xid    no   45 154
check-uvm        no   159
follow-workflow  yes  48 74 144-150
"""


def listed():
    for line in CATALOGUE.split("\n")[1:-1]:
        action, fatal, *numbers = line.split()
        for one in numbers:
            first, _, last = one.partition("-")
            for xid in range(int(first), int(last or first) + 1):
                yield xid, (action, fatal == "yes")


@pytest.mark.parametrize(("xid", "says"), list(listed()))
def test_an_xid_of_the_catalogue_has_its_action_and_severity(xid, says):
    assert (advice(xid).action, advice(xid).fatal) == says


def test_all_others_up_to_142_are_reported_to_nvidia_and_fatal():
    others = set(range(1, 143)) - {xid for xid, _ in listed()}
    assert {(advice(xid).action, advice(xid).fatal) for xid in others} == {("report", True)}


@pytest.mark.parametrize("xid", [0, 142 + 21, 999, 2**40])
def test_of_an_xid_that_the_catalogue_does_not_have_nothing_is_claimed(xid):
    assert (advice(xid).action, advice(xid).fatal) == ("unknown", None)


def test_the_common_ones_have_names():
    named = {79: "fell off the bus", 48: "double-bit ECC error", 109: "context switch timeout", 31: "MMU fault"}
    assert {xid: advice(xid).name for xid in named} == named
