"""`vgpuscope demo`."""

import argparse

from vgpuscope.commands.command import SERVICE_EXITS, Command
from vgpuscope.model.service import AGENT_PORT


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port",
        type=_port,
        default=AGENT_PORT,
        metavar="PORT",
        help="Port of the first agent; the others use the ports after it. [default: %(default)s]",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        metavar="N",
        help="The same seed gives the same workloads. [default: %(default)s]",
    )
    parser.add_argument(
        "--window-minutes",
        type=_minutes,
        default=1.0,
        metavar="MINUTES",
        help="Window of the analyzer. Verdicts are unknown until one window has passed. [default: %(default)s]",
    )
    parser.add_argument(
        "--directory",
        metavar="DIR",
        help="Directory for the files of the simulated nodes; it is kept. [default: a temporary one]",
    )
    parser.add_argument(
        "--live-reclaim",
        nargs="?",
        const="control",
        choices=("control", "scale"),
        metavar="HOW",
        help="Take GPUs of idle pods back. control: a simulated control service deletes the pods. scale: the analyzer "
        "scales their owners at the simulated Kubernetes API, which `vgpuscope reclaim restore` undoes. "
        "[default: a dry run; without HOW: control]",
    )


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.sim import demo

    return demo.main(
        base_port=args.port,
        seed=args.seed,
        directory=args.directory,
        window=args.window_minutes,
        live=args.live_reclaim,
    )


def _minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0.1 <= value <= 60:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 0.1 to 60 minutes")
    return value


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
    return int(text)


COMMAND = Command(
    name="demo",
    synopsis="demo",
    help="run a simulated GPU cluster; needs no GPU",
    description="Run simulated GPU nodes of several kinds, with a real agent on each, a real cluster exporter and a "
    "real analyzer. Ctrl-C ends the demo. DEMO_PROMETHEUS=1 adds a real Prometheus.",
    examples=(
        ("vgpuscope demo", "the default ports where they are free"),
        ("vgpuscope demo --port 20000 --seed 7", "other ports, other workloads"),
        ("vgpuscope demo --live-reclaim", "idle pods lose their GPUs after two minutes"),
        ("vgpuscope demo --live-reclaim scale", "the same, and it can be undone"),
    ),
    arguments=_arguments,
    run=_run,
    exits=SERVICE_EXITS,
)
