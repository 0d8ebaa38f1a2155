"""`vgpuscope backtest`."""

import argparse

from vgpuscope.commands.arguments import add_json, add_language, add_url, add_wide, url
from vgpuscope.commands.command import Command
from vgpuscope.model.service import ANALYZER_PORT


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--policy",
        metavar="FILE",
        help="YAML with the keys of the section reclaim that differ, or a whole settings file. Without it, only the "
        "policy in effect is replayed.",
    )
    parser.add_argument(
        "--since", default="7d", metavar="TIME", help="Span to replay: 24h, 7d, … [default: %(default)s]"
    )
    parser.add_argument(
        "--busy-within",
        default="1h",
        metavar="TIME",
        help="An action is a false alarm if the workload is busy again within this time. [default: %(default)s]",
    )
    add_url(parser, of="analyzer", port=ANALYZER_PORT)
    parser.add_argument(
        "--history",
        metavar="STORE",
        help="Replay in this process, without a time limit: the SQLite file or postgresql:// URL of analyzer.history. "
        "The current policy is that of --config.",
    )
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        help="Replay in this process from a Prometheus: every window is read and judged again.",
    )
    parser.add_argument("--config", metavar="FILE", help="Settings file, for --history and --prometheus.")
    parser.add_argument(
        "--limit", type=int, default=20, metavar="N", help="Actions in the table. [default: %(default)s]"
    )
    add_json(parser)
    add_language(parser)
    add_wide(parser)


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.actions import backtest

    return backtest.main(
        backtest.BacktestArguments(
            policy=args.policy,
            since=args.since,
            busy_within=args.busy_within,
            url=url(args, port=ANALYZER_PORT),
            history=args.history,
            prometheus=args.prometheus,
            config=args.config,
            limit=args.limit,
            as_json=args.json,
            language=args.lang,
            wide=args.wide,
        )
    )


COMMAND = Command(
    name="backtest",
    synopsis="backtest",
    help="what a reclaim policy would have done in the past",
    description="Replay the past with a reclaim policy, and print which GPUs would have been taken back, how many "
    "GPU-hours that would have freed, and the false alarms. A changed policy is compared with the current one. Nothing "
    "is changed.",
    examples=(
        ("vgpuscope backtest --since 7d", "the policy in effect, over the last week"),
        ("vgpuscope backtest --policy strict.yaml --since 7d", "a changed policy beside it"),
        ("vgpuscope backtest --policy strict.yaml --history history.db", "in this process, from a store"),
    ),
    arguments=_arguments,
    run=_run,
)
