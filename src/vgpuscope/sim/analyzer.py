"""The analyzer over the demo: `python -m vgpuscope.sim.analyzer --listen HOST:PORT --targets LIST --cluster URL`.

Its window is one minute and its interval some seconds, so that the demo soon shows verdicts; elsewhere both are
minutes. With `--began` the day before that moment is simulated: the store has its results, and the first window has no
gap.
"""

import argparse
import asyncio
import sys
import time

from vgpuscope import config as configuration
from vgpuscope.config.files import SettingsFile
from vgpuscope.model.service import ANALYZER_PORT, local
from vgpuscope.services.analyzer import process as analyzer
from vgpuscope.services.analyzer.sources.sources import make_source
from vgpuscope.sim.leash import end_with_stdin
from vgpuscope.sim.past import Minutes, Remembering, remember
from vgpuscope.store.opening import open_store

WINDOW_MINUTES = 1.0
SCRAPE_SECONDS = 2


def main(argv: list[str]) -> int:
    """Runs until SIGTERM, or until standard input ends."""
    parser = argparse.ArgumentParser(prog="vgpuscope.sim.analyzer", description=__doc__)
    parser.add_argument("--listen", default=local(ANALYZER_PORT), metavar="HOST:PORT")
    parser.add_argument("--targets", required=True, metavar="LIST")
    parser.add_argument("--cluster", required=True, metavar="URL")
    parser.add_argument("--extender", metavar="URL", help="the scheduler extender whose decisions are shown")
    parser.add_argument("--history", required=True, metavar="FILE")
    parser.add_argument("--window-minutes", type=float, default=WINDOW_MINUTES, metavar="MINUTES")
    parser.add_argument("--prometheus", metavar="URL", help="ask this one instead of scraping")
    parser.add_argument("--began", type=float, metavar="TIME", help="when the simulated nodes began, in Unix time")
    parser.add_argument("--config", metavar="FILE", help="settings that can be changed while it runs")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the simulated nodes")
    chosen = parser.parse_args(argv)
    end_with_stdin()
    flags: dict[str, object] = {
        "analyzer.listen": chosen.listen,
        "analyzer.targets": chosen.targets,
        "analyzer.cluster_url": chosen.cluster,
        "analyzer.history": chosen.history,
        "analyzer.scrape_interval": SCRAPE_SECONDS,
        "prometheus.time_window_min": chosen.window_minutes,
        "prometheus.step": SCRAPE_SECONDS,
        "prometheus.query_condition": "{}",  # includes GPUs without a pod
        "scheduler.interval": 5,
    }
    if chosen.extender:
        flags["analyzer.extender_url"] = chosen.extender
    if chosen.prometheus:
        flags["prometheus.url"] = chosen.prometheus
    file = SettingsFile(chosen.config, "flag --config") if chosen.config else None
    if chosen.began is None:
        return analyzer.main(flags=flags, environ={}, file=file)
    window = chosen.window_minutes * 60
    minutes = Minutes(seed=chosen.seed, began=chosen.began, seconds=window, interval=SCRAPE_SECONDS)
    asyncio.run(_remember(chosen.history, minutes, seed=chosen.seed, began=chosen.began, window=window))
    return analyzer.main(
        flags=flags,
        environ={},
        file=file,
        source=lambda found: make_source(found) if found.prometheus.url else Remembering(found, minutes),
    )


async def _remember(file: str, minutes: Minutes, *, seed: int, began: float, window: float) -> None:
    keep = configuration.load(flags={}, environ={}).config.analyzer
    store = open_store(file, keep_results=keep.keep_results, keep_hours=keep.keep_hours, keep_days=keep.keep_days)
    try:
        await remember(store.results, seed=seed, began=began, clock=time.time, minutes=minutes, window=window)
    finally:
        await store.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
