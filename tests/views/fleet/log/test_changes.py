"""Changes as lines of the log."""

import pytest

from vgpuscope.model.result_change import ResultChange
from vgpuscope.views.fleet.log.changes import change_event


@pytest.mark.parametrize(
    ("mig", "messages"),
    [
        ("", ["GPU appeared", "GPU is gone"]),
        ("MIG-1", ["MIG instance appeared", "MIG instance is gone"]),
    ],
)
def test_a_line_says_whether_a_gpu_or_an_instance_of_it_came_or_went(mig, messages):
    changes = [ResultChange(kind=kind, gpu_id="GPU-1", mig=mig, node="a") for kind in ("appeared", "gone")]
    assert [change_event(change)[0] for change in changes] == messages
