"""The source in use, and how another one takes its place."""

import asyncio
from typing import Any

import pytest

from tests.http.serving import SOON, until
from vgpuscope.config import NO_FILE, Config, load
from vgpuscope.model.errors import ConfigInvalid, ScopeError
from vgpuscope.services.analyzer.settings.settings import Settings
from vgpuscope.services.analyzer.sources.own_scrapes import ScrapeSource
from vgpuscope.services.analyzer.sources.prometheus.reading import PrometheusSource
from vgpuscope.services.analyzer.sources.sources import Sources, check_source, make_source


def config(**settings):
    flags = {name.replace("__", "."): value for name, value in settings.items()}
    return load(flags=flags, environ={}).config


PROMETHEUS = {"prometheus__url": "http://127.0.0.1:1"}
SCRAPES = {"analyzer__targets": "127.0.0.1:1"}


async def nobody_reads() -> None:
    """Nothing runs that could still need a former source."""


@pytest.mark.parametrize(("settings", "kind"), [(PROMETHEUS, PrometheusSource), (SCRAPES, ScrapeSource)])
async def test_the_settings_say_which_source_it_is(settings, kind):
    assert isinstance(make_source(config(**settings)), kind)


async def test_a_prometheus_weighs_more_than_targets():
    assert isinstance(make_source(config(**PROMETHEUS, **SCRAPES)), PrometheusSource)


async def test_nothing_to_read_from_is_refused():
    for refuse in (make_source, check_source):
        with pytest.raises(ConfigInvalid, match="nothing to read from"):
            refuse(Config())


def test_settings_that_name_no_source_read_gpu_oours_default():
    def read(**environ: str) -> str | None:
        return Settings(flags={}, environ=environ, file=NO_FILE).config.prometheus.url

    assert read() == "http://prometheus:9090"
    assert read(PROM_URL="http://named:9090") == "http://named:9090"
    assert read(VGPUSCOPE_ANALYZER_TARGETS="a:9394") is None
    assert read(VGPUSCOPE_ANALYZER_DISCOVER_SERVICES="gpu/agent:9394") is None


def test_the_default_source_is_none_that_other_services_and_commands_may_ask():
    assert load(flags={}, environ={}).config.prometheus.url is None


async def test_a_condition_that_only_an_engine_can_tell_is_refused_for_own_scrapes_before_anything_changes():
    by_class = {"prometheus__query_condition": '{pod=~"\\\\pL+"}'}
    check_source(config(**PROMETHEUS, **by_class))
    with pytest.raises(ConfigInvalid, match="only with Prometheus"):
        check_source(config(**SCRAPES, **by_class))


async def test_a_change_that_concerns_the_source_makes_another_one():
    sources = Sources(config(**PROMETHEUS))
    first = sources.current
    sources.renew(config(**PROMETHEUS, thresholds__low_utilization=30))
    assert sources.current is first
    sources.renew(config(prometheus__url="http://127.0.0.1:2"))
    assert sources.current is not first
    await sources.close()


async def test_own_scrapes_begin_anew_with_another_condition_and_not_with_what_is_for_an_engine():
    sources = Sources(config(**SCRAPES))
    first = sources.current
    sources.renew(config(**SCRAPES, prometheus__deadline="20s"))
    assert sources.current is first
    sources.renew(config(**SCRAPES, prometheus__query_condition='{pod="a"}'))
    assert sources.current is not first
    await sources.close()


async def test_a_source_that_cannot_be_made_leaves_the_former_in_place(caplog):
    sources = Sources(config(**PROMETHEUS))
    first = sources.current
    sources.renew(config(**PROMETHEUS, prometheus__ca_file="/nowhere.pem"))
    assert sources.current is first
    assert "new source rejected" in caplog.text
    await sources.close()


async def test_a_former_source_is_closed_once_nobody_reads_from_it(monkeypatch):
    closed, reading = [], asyncio.Event()

    async def aclose(self):
        closed.append(self)

    async def finished():
        await reading.wait()

    monkeypatch.setattr(PrometheusSource, "aclose", aclose)
    sources = Sources(config(**PROMETHEUS))
    first = sources.current
    running = asyncio.create_task(sources.run(finished=finished))
    await until(lambda: len(asyncio.all_tasks()) >= 4)  # it waits for a change
    sources.renew(config(prometheus__url="http://127.0.0.1:2"))
    await until(lambda: len(asyncio.all_tasks()) < 4)  # it has seen one
    assert closed == []
    reading.set()
    await until(lambda: closed == [first])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def known(sources):
    assert isinstance(sources.current, ScrapeSource)
    return sources.current._known


async def test_scraping_goes_on_with_the_new_targets():
    sources = Sources(config(**SCRAPES))
    running = asyncio.create_task(sources.run(finished=nobody_reads))
    await until(lambda: known(sources))
    sources.renew(config(analyzer__targets="127.0.0.1:2"))
    await until(lambda: "http://127.0.0.1:2" in known(sources))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await sources.close()


async def test_the_first_scrapes_are_waited_for_but_not_for_ever():
    sources = Sources(config(**SCRAPES))
    async with asyncio.timeout(SOON):
        await sources.begun(within=0.3)
    await sources.close()
    asked = Sources(config(**PROMETHEUS))
    async with asyncio.timeout(SOON):
        await asked.begun(within=3600)
    await asked.close()


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        (SCRAPES, None),
        ({"analyzer__targets": "http://a:9394,http://b:31993"}, "http://b:31993"),
        ({"analyzer__targets": "a:9394,b:31993"}, "b:31993"),
        ({"analyzer__targets": "http://b:31993", "analyzer__cluster_url": "http://c:1"}, "http://c:1"),
    ],
)
async def test_the_cluster_exporter_is_found_among_the_targets(settings, url):
    sources = Sources(config(**settings))
    assert sources._owners_at == url
    assert (sources._owners is None) == (url is None)
    if url is None:
        assert await sources.owners() == {}
    await sources.close()


@pytest.mark.attack
@pytest.mark.parametrize(("settings", "other"), [(PROMETHEUS, SCRAPES), (SCRAPES, PROMETHEUS)])
async def test_unexpected_errors_of_every_source_are_counted(settings, other):
    counted: list[ScopeError] = []
    sources = Sources(config(**settings))
    sources.on_error(counted.append)
    before = sources.current
    sources.renew(config(**other))
    for source in (before, sources.current):
        assert isinstance(source, PrometheusSource | ScrapeSource)
        source.units.failed("a unit", ZeroDivisionError())
    assert [error.code for error in counted] == ["INTERNAL"] * 2
    await sources.close()


class Broken:
    async def read(self):
        raise ZeroDivisionError("a broken promise of our own")

    async def __aexit__(self, *_):
        """Nothing is open."""


@pytest.mark.attack
async def test_unexpected_errors_about_owners_and_nodes_are_of_them_alone():
    counted: list[ScopeError] = []
    sources: Any = Sources(config(**SCRAPES))
    sources.on_error(counted.append)
    sources._owners = sources._nodes = Broken()
    assert await sources.nodes() is None
    with pytest.raises(ScopeError, match="owners"):  # which an analysis takes for a part that is missing
        await sources.owners()
    assert [error.code for error in counted] == ["INTERNAL"] * 2
    await sources.close()
