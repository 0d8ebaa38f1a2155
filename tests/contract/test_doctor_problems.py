"""Doctor names each known problem of the field by its code, and nothing else; of a healthy cluster it names none."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.contract.doctorworld import (
    PROBLEMS,
    Route,
    World,
    agent_route,
    analyzer_route,
    cluster_route,
    extender_route,
    kube_route,
    login_page,
    serving,
    world_of,
)
from tests.contract.promworld import prometheus, write
from tests.ports import free_port
from tests.waiting import wait_until
from vgpuscope.logic.doctor.chain import CHAIN, judged
from vgpuscope.model.doctor import Check, Missing
from vgpuscope.services.doctor.asked import ServiceAddress
from vgpuscope.services.doctor.collect import DoctorTargets, collect

pytestmark = pytest.mark.xdist_group("doctor")

# published dashboards and rules of HAMi before v2.9 use these names; only the new ones are exported here
RULES = """groups:
- name: hami
  rules:
  - alert: GPUMemoryUsageHigh
    expr: HostGPUMemoryUsage / on(deviceuuid) GPUDeviceMemoryLimit > 0.9
"""


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A Prometheus with all worlds, each with a label of its own; and others that are set up wrongly."""
    now = time.time()
    with ExitStack() as stack:
        paths = {name: tmp_path_factory.mktemp(name) for name in ("real", "empty", "self", "rules")}
        (paths["rules"] / "rules.yml").write_text(RULES)
        myself = "scrape_configs: [{job_name: prometheus, scrape_interval: 1s, static_configs: [{targets: ['%s']}]}]\n"
        configs = {"self": myself % f"127.0.0.1:{free_port()}", "rules": f"rule_files: [{paths['rules']}/rules.yml]\n"}
        found = {
            name: stack.enter_context(prometheus(path, configs.get(name, "global: {}\n")))
            for name, path in paths.items()
        }
        worlds = {name: world_of(name, now) for name in ("healthy", *PROBLEMS)}
        series = [one for name, world in worlds.items() for one in world.samples(name)]
        write(found["real"], series)
        write(found["rules"], worlds["healthy"].samples("dashboard_names_do_not_match"))
        wait_for_targets(found["self"])
        yield found


def wait_for_targets(url: str) -> None:
    import json
    import urllib.request

    def scraped() -> object:
        with urllib.request.urlopen(f"{url}/api/v1/query?query=up", timeout=60) as answer:
            return json.load(answer)["data"]["result"]

    wait_until(scraped, every=0.1)


def looked_at(world: World, name: str, engines: dict[str, str], path: Path, stack: ExitStack) -> DoctorTargets:
    """Serves the world; where doctor finds its parts. A part that is None does not answer, or does not exist."""
    nobody = f"http://127.0.0.1:{free_port()}"

    def at(there: object, route: Route, default: str | None) -> ServiceAddress | None:
        if not there:
            return ServiceAddress(default) if default else None
        return ServiceAddress(stack.enter_context(serving(route)))

    agent = at(world.agent, agent_route(world), nobody if world.agent == {} else None)
    kube = at(world.kube, kube_route(world), nobody)
    config = path / "kubeconfig"
    config.write_text(
        f"current-context: c\nclusters: [{{name: c, cluster: {{server: '{kube.url}'}}}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\n"
    )
    engine = {"none": nobody, **engines}.get(world.prometheus) or stack.enter_context(serving(login_page))
    condition = f'{{world="{name}"{"," + world.condition if world.condition else ""}}}'
    return DoctorTargets(
        agents=(agent,) if agent else (),
        cluster=at(world.cluster, cluster_route(world), None),
        analyzer=at(world.analyzer, analyzer_route(world), nobody),
        extender=at(world.extender, extender_route(world), nobody),
        prometheus=ServiceAddress(engine),
        kubeconfig=ServiceAddress(str(config)),
        kubernetes=True,
        condition="" if world.prometheus in {"self", "empty"} else condition,
    )


def checked(name: str, engines: dict[str, str], path: Path) -> dict[str, Check]:
    world = world_of(name, time.time())
    with ExitStack() as stack:
        facts = asyncio.run(collect(looked_at(world, name, engines, path, stack))).facts
    return {check.code: check for check in judged(facts)}


def found_in(checks: dict[str, Check]) -> dict[str, str]:
    return {
        code: f"{check.judgement.status}: {', '.join(check.judgement.examples)} {check.judgement.numbers}"
        for code, check in checks.items()
        if check.judgement.status in {"warn", "fail"}
    }


def test_of_a_healthy_cluster_doctor_names_nothing_and_looks_at_almost_everything(
    engines: dict[str, str], tmp_path: Path
):
    checks = checked("healthy", engines, tmp_path)
    assert found_in(checks) == {}
    passed = {code for code, check in checks.items() if check.judgement.status == "pass"}
    assert len(passed) >= 50, sorted(set(checks) - passed)
    assert {"GPM_HUNG", "CGROUPS_ABSENT"} <= passed
    assert checks["DCGM_NO_ANSWER"].judgement.status == "skipped"  # no agent is configured to read an exporter


@pytest.mark.parametrize("name", PROBLEMS)
def test_doctor_names_a_known_problem_and_no_other(engines: dict[str, str], tmp_path: Path, name: str):
    checks = checked(name, engines, tmp_path)
    found = found_in(checks)
    assert PROBLEMS[name].code in found, (PROBLEMS[name].source, found)
    assert set(found) - {PROBLEMS[name].code} <= set(PROBLEMS[name].also), found


def test_every_check_has_a_problem_that_it_finds():
    only_on_a_node = {"NO_GPU"}
    assert {link.code for link in CHAIN} - only_on_a_node == {problem.code for problem in PROBLEMS.values()}


@pytest.mark.parametrize("name", ["agent_down", "prometheus_down", "analyzer_down", "api_server_down"])
def test_what_cannot_be_looked_at_is_skipped_with_a_reason_and_never_passed(
    engines: dict[str, str], tmp_path: Path, name: str
):
    needed = {
        "agent_down": ("REGIONS_NOT_MOUNTED",),
        "prometheus_down": ("LABELS_FLAPPING", "SERIES_OLD", "ABSURD_VALUE"),
        "analyzer_down": ("HISTORY_OFF", "ANALYSES_STOPPED"),
        "api_server_down": ("COMPONENT_NOT_RUNNING", "EXPORTER_RESTARTS"),
    }[name]
    checks = checked(name, engines, tmp_path)
    for code in needed:
        assert checks[code].judgement.status == "skipped", code
        assert isinstance(checks[code].judgement.missing, Missing)
