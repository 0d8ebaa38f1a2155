"""The one table of DCGM's fields."""

import re

from msgspec.structs import fields

from tests.paths import REPOSITORY
from vgpuscope.knowledge import dcgm_fields
from vgpuscope.knowledge.dcgm_fields import FIELDS, PROFILING_FIELDS, DcgmField
from vgpuscope.knowledge.exporters import DCGM
from vgpuscope.knowledge.gpu_series import DCGM_RATIOS
from vgpuscope.model.activity import Activity

PACKAGE = REPOSITORY / "src/vgpuscope"


def test_every_field_is_in_the_table_once_and_has_names_of_its_own():
    defined = [value for value in vars(dcgm_fields).values() if isinstance(value, DcgmField)]
    assert sorted(one.name for one in defined) == sorted(one.name for one in FIELDS)
    names = [name for one in FIELDS for name in (one.name, one.base_name) if name]
    assert len(names) == len(set(names))


def test_a_profiling_field_is_one_of_the_model():
    assert {one.activity for one in PROFILING_FIELDS} <= {one.name for one in fields(Activity)}


def test_an_analysis_and_doctor_know_the_same_ratios():
    assert {name for name in DCGM.measures if name.endswith("_RATIO")} == DCGM_RATIOS


def test_names_of_dcgm_4_7_are_written_in_the_table_only():
    own = re.compile(r'"[^"]*(?:_UTIL_RATIO|_OCCUPANCY_RATIO|_FB_\w+_BYTES|_JOULES_TOTAL)"')
    written = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if any("DEV_" in found or "PROF_" in found for found in own.findall(path.read_text()))
    }
    assert written == {"knowledge/dcgm_fields.py"}
