"""The analyzer over the demo: `python -m vgpuscope.sim.analyzer --listen HOST:PORT --targets LIST --cluster URL`.

Its window is a minute and its pace seconds, so that a demo shows verdicts soon; elsewhere both are minutes.
"""

import argparse
import sys

from vgpuscope.services import analyzer
from vgpuscope.sim.leash import end_with_stdin

WINDOW_MINUTES = 1.0
SCRAPE_SECONDS = 2


def main(argv: list[str]) -> int:
    """Runs until SIGTERM, or until standard input ends."""
    parser = argparse.ArgumentParser(prog="vgpuscope.sim.analyzer", description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:8080", metavar="HOST:PORT")
    parser.add_argument("--targets", required=True, metavar="LIST")
    parser.add_argument("--cluster", required=True, metavar="URL")
    parser.add_argument("--history", required=True, metavar="FILE")
    parser.add_argument("--window-minutes", type=float, default=WINDOW_MINUTES, metavar="MINUTES")
    parser.add_argument("--prometheus", metavar="URL", help="ask this one instead of scraping")
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
        "prometheus.query_condition": "{}",  # cards too that no pod has
        "scheduler.interval": 5,
    }
    if chosen.prometheus:
        flags["prometheus.url"] = chosen.prometheus
    return analyzer.main(flags=flags, environ={})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
