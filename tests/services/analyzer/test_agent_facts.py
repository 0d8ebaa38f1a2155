"""Facts of agents from the pages of our own scrapes."""

import gzip

import pytest

from tests.services.analyzer.analyzing import uuid
from vgpuscope.services.analyzer.console.agent_facts import PageFacts
from vgpuscope.sources.fleet.scrape import LastPage

AT = f'node="n",gpu_uuid="{uuid(0)}"'
WHO = f'{AT},namespace="ml",pod="p",container="c"'
PAGE = f"""# HELP vgpuscope_gpu_mode How
vgpuscope_gpu_mode{{{AT},mode="hami"}} 0
vgpuscope_gpu_mode{{{AT},mode="mps"}} 1
vgpuscope_gpu_temperature_celsius{{{AT}}} 61
vgpuscope_gpu_info{{{AT},serial="s"}} 1
vgpuscope_container_state{{{WHO},state="idle"}} 0
vgpuscope_container_state{{{WHO},state="active"}} 1
vgpuscope_vgpu_priority{{{WHO}}} 0
vgpuscope_vgpu_blocked{{{WHO}}} NaN
vgpuscope_source_up{{node="n",source="nvml"}} 0
vgpuscope_build_info{{version="1.0"}} 1
unknown_metric{{{AT}}} 5
"""


@pytest.mark.parametrize("page", [LastPage(PAGE.encode(), False), LastPage(gzip.compress(PAGE.encode()), True)])
async def test_a_page_says_how_each_gpu_and_container_is(page):
    facts = await PageFacts(lambda: {"a": page}).fleet()
    gpu = facts.gpus[uuid(0), ""]
    assert (gpu.mode, gpu.values, gpu.info) == ("mps", {"vgpuscope_gpu_temperature_celsius": 61.0}, {})
    (tenant,) = facts.tenants.values()
    assert (tenant.state, tenant.values) == ("active", {"vgpuscope_vgpu_priority": 0.0})  # 0 is a priority
    assert (facts.nodes["n"].version, facts.nodes["n"].up) == ("1.0", {"nvml": False})


async def test_more_is_read_of_one_gpu():
    found = {"a": LastPage(PAGE.encode(), False), "b": LastPage(b"", False)}
    pages = PageFacts(lambda: found)
    facts = await pages.gpu(uuid(0))
    assert facts.gpus[uuid(0), ""].info["serial"] == "s"
    assert not (await pages.gpu(uuid(1))).gpus


async def test_pages_that_have_not_changed_are_the_same_facts():
    known = {"a": LastPage(PAGE.encode(), False)}
    pages = PageFacts(lambda: dict(known))
    first = await pages.fleet()
    assert await pages.fleet() is first
    known["a"] = LastPage(PAGE.replace("61", "62").encode(), False)
    second = await pages.fleet()
    assert second is not first
    assert second.gpus[uuid(0), ""].values["vgpuscope_gpu_temperature_celsius"] == 62.0
    known.clear()
    assert not (await pages.fleet()).gpus
