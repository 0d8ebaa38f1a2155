"""Which services doctor asks when it is told nothing, little or all. Real listeners on loopback."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.contract.doctorworld import serving
from vgpuscope.services.doctor import finding
from vgpuscope.services.doctor.asked import ServiceAddress
from vgpuscope.services.doctor.collect import DoctorTargets
from vgpuscope.services.doctor.demos import DemoService, announced
from vgpuscope.services.doctor.finding import find

NOBODY = "http://127.0.0.1:1"


class Machine:
    """Services at the default ports of a machine, which a test chooses."""

    def __init__(self, stack: ExitStack, environ: dict[str, str]) -> None:
        self._stack, self.environ, self.urls = stack, environ, dict.fromkeys(finding._PORTS, NOBODY)

    def service(self, name: str) -> str:
        def route(*_: object) -> tuple[int, bytes, dict[str, str]]:
            return 200, b"ok\n", {"x-vgpuscope-service": name} if name else {}

        return self._stack.enter_context(serving(route))

    def listens(self, port: int, name: str) -> str:
        self.urls[port] = self.service(name)
        return self.urls[port]

    def found(self, **targets: object) -> DoctorTargets:
        return asyncio.run(find(DoctorTargets(**targets), self.environ))  # type: ignore[arg-type]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with ExitStack() as stack:
        made = Machine(stack, environ)
        monkeypatch.setattr(finding, "default_url", lambda port: made.urls[port])
        yield made


def demo_of(*services: tuple[str, str, str]) -> tuple[DemoService, ...]:
    return tuple(DemoService(service=code, url=url, name=name) for code, url, name in services)  # type: ignore[arg-type]


def test_what_answers_at_a_default_port_is_asked_by_what_it_is(machine: Machine):
    extender = machine.listens(8080, "extender")  # the default port of the analyzer, too
    agent = machine.listens(9394, "agent")
    machine.listens(31993, "")  # not ours
    found = machine.found()
    assert found.extender == ServiceAddress(extender, given=False, found_by="default")
    assert found.agents == (ServiceAddress(agent, given=False, found_by="default"),)
    assert (found.analyzer, found.cluster, found.plugins) == (None, None, ())


def test_all_services_of_a_demo_are_found(machine: Machine):
    services = demo_of(("analyzer", "http://a:1", ""), ("agent", "http://a:2", "n1"), ("agent", "http://a:3", "n2"))
    with announced(services, machine.environ, now=1.0):
        found = machine.found()
    assert found.analyzer == ServiceAddress("http://a:1", found_by="demo")
    assert [one.name for one in found.agents] == ["n1", "n2"]


def test_a_demo_at_the_default_ports_is_that_demo(machine: Machine):
    services = demo_of(("agent", machine.listens(9394, "agent"), "n1"), ("extender", "http://a:3", ""))
    with announced(services, machine.environ, now=1.0):
        found = machine.found()
    assert found.extender == ServiceAddress("http://a:3", found_by="demo")
    assert [one.name for one in found.agents] == ["n1"]


def test_a_demo_is_never_mixed_with_other_services(machine: Machine):
    agent = machine.listens(9394, "agent")
    with announced(demo_of(("analyzer", "http://a:1", "")), machine.environ, now=1.0):
        found = machine.found()
        assert (found.analyzer, [one.url for one in found.agents]) == (None, [agent])
        machine.urls[9394] = NOBODY
        assert machine.found(cluster=ServiceAddress("http://named:1")).analyzer is None


def test_what_is_named_takes_precedence(machine: Machine):
    machine.listens(8080, "analyzer")
    machine.listens(9394, "agent")
    named = ServiceAddress("http://named:1")
    found = machine.found(analyzer=named, agents=(named,), plugins=(named,), extender=named, cluster=named)
    assert {found.analyzer, *found.agents, *found.plugins, found.extender, found.cluster} == {named}


def test_nothing_is_found_where_there_is_nothing(machine: Machine):
    assert machine.found() == DoctorTargets()
