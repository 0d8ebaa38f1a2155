"""What the page of one GPU shows beside its row."""

from tests.logic.console.test_groups import made
from tests.store import fleets
from vgpuscope.logic.console.details import instances, queries
from vgpuscope.logic.console.overview import gpu_class

GPU, MIG = fleets.gpu(0).gpu_id, "MIG-0"


def test_an_instance_has_the_same_class_in_the_layout_of_its_gpu_and_in_the_list():
    idle = {"verdict": "idle", "use_class": "idle"}
    held = fleets.gpu(0, mig="MIG-1", tenants=(fleets.tenant("p", **idle),), **idle)
    rows = made(fleets.analysis(fleets.NOON, fleets.gpu(0, mig=MIG, tenants=(), **idle), held))
    found = {one.mig: one.use_class for one in instances(rows, None, None, GPU)}
    assert found == {row.mig: gpu_class(row) for row in rows} == {MIG: "unallocated", "MIG-1": "idle"}


def test_the_queries_of_an_instance_are_of_that_instance_where_the_driver_divides_the_number():
    found = {one.name: one.promql for one in queries(GPU, MIG)}
    assert found["memory_used"] == f'vgpuscope_mig_memory_used_bytes{{gpu_uuid="{GPU}",mig_uuid="{MIG}"}}'
    whole = {name for name, promql in found.items() if "mig_uuid=" not in promql}
    assert whole == {"power", "power_limit", "health", "xids"}
    assert all("mig" not in one.promql for one in queries(GPU))
