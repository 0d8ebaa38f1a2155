"""The cluster exporter over the simulated API: `python -m vgpuscope.sim.exporter KUBECONFIG --listen HOST:PORT`."""

import argparse
import sys

from vgpuscope import config
from vgpuscope.model.service import CLUSTER_PORT, local
from vgpuscope.services.cluster import process as cluster
from vgpuscope.sim.leash import end_with_stdin


def main(argv: list[str]) -> int:
    """Runs until SIGTERM, or until standard input ends."""
    parser = argparse.ArgumentParser(prog="vgpuscope.sim.exporter", description=__doc__)
    parser.add_argument("kubeconfig")
    parser.add_argument("--listen", default=local(CLUSTER_PORT), metavar="HOST:PORT")
    chosen = parser.parse_args(argv)
    end_with_stdin()
    flags = {"cluster.listen": chosen.listen, "cluster.kubeconfig": chosen.kubeconfig, "cluster.families": "all"}
    return cluster.main(config.load(flags=flags, environ={}).config)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
