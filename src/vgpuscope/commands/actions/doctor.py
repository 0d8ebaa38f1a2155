"""`vgpuscope doctor`: collect facts with a line of progress, judge them, and print or pack the report."""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from vgpuscope.commands.actions.access import in_pod, token
from vgpuscope.commands.actions.bundle import write_bundle
from vgpuscope.commands.actions.language import language_of
from vgpuscope.config import Config, Loaded, load, settings_file
from vgpuscope.logic.console.moments import iso
from vgpuscope.logic.doctor.chain import judged
from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.model.quantity import Seconds
from vgpuscope.services.analyzer.sources.sources import prom_api
from vgpuscope.services.doctor.asked import ServiceAddress
from vgpuscope.services.doctor.collect import Collected, DoctorTargets, Progress, collect
from vgpuscope.services.doctor.finding import find
from vgpuscope.services.doctor.prometheus import open_prometheus
from vgpuscope.sources.doctor.local import LocalPlaces
from vgpuscope.sources.fleet.promapi import PromApi
from vgpuscope.terminal.printing import print_drawn, print_json
from vgpuscope.terminal.screen import speak_plainly
from vgpuscope.version import __version__
from vgpuscope.views.doctor.report import merged, report
from vgpuscope.views.doctor.terminal import drawn

_EXIT = {"pass": 0, "warn": 1, "fail": 2, "skipped": 3}
_SHORTEST, _LONGEST = 1.0, 600.0  # seconds
_ANSWER = 256 * 2**20  # bytes


class DoctorArguments(Struct, frozen=True, kw_only=True):
    """What the command line names."""

    agents: tuple[str, ...] = ()
    cluster: str | None = None
    analyzer: str | None = None
    extender: str | None = None
    plugins: tuple[str, ...] = ()
    prometheus: str | None = None
    kubeconfig: str | None = None
    condition: str | None = None
    deadline: Seconds = 20.0


def main(asked: DoctorArguments, *, everything: bool, language: str | None, as_json: bool, bundle: str | None) -> int:
    """Print the report; the exit code by the worst finding."""
    speak_plainly()
    if not _SHORTEST <= asked.deadline <= _LONGEST:
        raise ConfigInvalid(
            f"--deadline: {asked.deadline:g} is not from {_SHORTEST:g} to {_LONGEST:g} seconds",
            hint="For example --deadline 60.",
        )
    chosen = language_of(language, os.environ)
    loaded = _loaded(os.environ)
    targets = places(asked, loaded.config, os.environ)
    began = time.monotonic()
    with _progress() as progress:
        collected = asyncio.run(_collected(targets, progress, os.environ))
    facts = collected.facts
    found = report(
        judged(facts),
        at=iso(facts.at),
        version=__version__,
        place=facts.place,
        seconds=time.monotonic() - began,
        services=facts.services,
    )
    found = merged(found, collected.report) if collected.report else found
    if bundle:
        write_bundle(bundle, found, collected.answers, loaded=loaded, secrets=_secrets(asked))
    if as_json:
        print_json(found)
    else:
        print_drawn(lambda _: drawn(found, chosen, everything=everything))
        if bundle:
            print(f"\n{bundle}")
    return _EXIT[found.status]


def places(asked: DoctorArguments, config: Config, environ: Mapping[str, str]) -> DoctorTargets:
    """Where to look, by the arguments and the settings. What they do not name is found later."""
    kubeconfig = asked.kubeconfig or environ.get("KUBECONFIG")
    usual = Path("~/.kube/config").expanduser().is_file() or in_pod()
    return DoctorTargets(
        agents=tuple(map(ServiceAddress, asked.agents)),
        cluster=_address(asked.cluster, config.analyzer.cluster_url),
        analyzer=_address(asked.analyzer, None),
        extender=_address(asked.extender, config.analyzer.extender_url),
        plugins=tuple(map(ServiceAddress, asked.plugins)),
        prometheus=_address(asked.prometheus, config.prometheus.url),
        kubeconfig=_address(asked.kubeconfig, environ.get("KUBECONFIG")),
        kubernetes=bool(kubeconfig) or usual,
        local=LocalPlaces(config.agent.hook_path, config.agent.proc_root, config.agent.podresources_socket),
        condition=asked.condition,
        token=token(),
        within=asked.deadline,
        open_prometheus=_opener(config),
    )


def _address(flag: str | None, setting: str | None) -> ServiceAddress | None:
    if flag:
        return ServiceAddress(flag)
    return ServiceAddress(setting, found_by="settings") if setting else None


def _opener(config: Config) -> Callable[[str], PromApi]:
    """Opens a Prometheus. The credentials of the settings are sent only to the address that the settings name."""

    def opened(url: str) -> PromApi:
        if url == config.prometheus.url:
            return prom_api(config, largest=_ANSWER, at_once=4)
        return open_prometheus(url)

    return opened


def _loaded(environ: Mapping[str, str]) -> Loaded:
    file = settings_file(None, environ, sections=Config.__struct_fields__).path
    return load(flags={}, environ=environ, file=file, sections=("agent", "prometheus"))


async def _collected(targets: DoctorTargets, progress: Progress, environ: Mapping[str, str]) -> Collected:
    progress(("services",))
    return await collect(await find(targets, environ), progress=progress)


@contextmanager
def _progress() -> Iterator[Progress]:
    """One line on standard error in a terminal; elsewhere nothing, so that logs stay short."""
    live = sys.stderr.isatty()

    def waiting(names: tuple[str, ...]) -> None:
        if live and names:
            print(f"\r\x1b[Klooking at: {', '.join(names)} …", end="", file=sys.stderr, flush=True)

    try:
        yield waiting
    finally:
        if live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _secrets(asked: DoctorArguments) -> tuple[str, ...]:
    """Texts that no file may hold: tokens and passwords of the addresses."""
    urls = (*asked.agents, *asked.plugins, asked.cluster, asked.analyzer, asked.extender, asked.prometheus)
    parts = [url.partition("://")[2].rpartition("@")[0] for url in urls if url and "@" in url]
    return tuple(filter(None, (token(), *parts, *(part.partition(":")[2] for part in parts))))
