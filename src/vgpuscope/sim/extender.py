"""The scheduler extender over the simulated API: `python -m vgpuscope.sim.extender KUBECONFIG --listen HOST:PORT`."""

import argparse
import sys

from vgpuscope import config
from vgpuscope.model.service import local
from vgpuscope.services.extender import process as extender
from vgpuscope.sim.leash import end_with_stdin
from vgpuscope.sim.pods import SCHEDULER

EXTENDER_PORT = 8081  # the usual one is the analyzer's in the demo
_LEASE_SECONDS = 6.0


def main(argv: list[str]) -> int:
    """Runs until SIGTERM, or until standard input ends."""
    parser = argparse.ArgumentParser(prog="vgpuscope.sim.extender", description=__doc__)
    parser.add_argument("kubeconfig")
    parser.add_argument("--listen", default=local(EXTENDER_PORT), metavar="HOST:PORT")
    parser.add_argument("--analyzer", metavar="URL", help="whose idle workloads are named where a pod does not fit")
    parser.add_argument("--state", default="none", metavar="FILE", help="where decisions are kept")
    chosen = parser.parse_args(argv)
    end_with_stdin()
    flags: dict[str, object] = {
        "extender.listen": chosen.listen,
        "extender.kubeconfig": chosen.kubeconfig,
        "extender.scheduler_name": SCHEDULER,
        "extender.lease_namespace": "kube-system",
        "extender.lease_duration": _LEASE_SECONDS,
        "extender.identity": "demo",
        "extender.state": chosen.state,
        "extender.families": "all",
    }
    if chosen.analyzer:
        flags["extender.analyzer_url"] = chosen.analyzer
    return extender.main(config.load(flags=flags, environ={}).config)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
