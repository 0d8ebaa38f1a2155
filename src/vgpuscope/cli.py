"""The command line: reads the configuration, calls one service, and turns errors into one line and an exit code."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from vgpuscope import config
from vgpuscope.model.errors import ConfigInvalid, ScopeError
from vgpuscope.model.waste import GROUPINGS
from vgpuscope.model.wording import instead, nearest, sentences
from vgpuscope.version import __version__

_OVERVIEW = """\
vgpuscope {version} - true numbers for every GPU, container and pod of a node

  vgpuscope agent                 watch this node and serve /metrics on :9394
  vgpuscope agent --once          print one sample and exit
  vgpuscope top [URL]             look at a node in the terminal
  vgpuscope cluster               watch the cluster and serve /metrics on :31993
  vgpuscope nodes [URL]           the cluster's nodes: what is given away, what still fits
  vgpuscope gpus [URL]            the cluster's GPUs: who holds how much of each
  vgpuscope pending [NS/POD]      the pods that wait for a GPU, and why
  vgpuscope analyzer              judge the fleet and serve scores and verdicts on :8080
  vgpuscope analyze --once        judge the fleet once and print the results
  vgpuscope results [URL]         the last results of an analyzer
  vgpuscope waste [URL]           who let how many GPU-hours pass idle
  vgpuscope demo                  simulated GPU nodes with real agents; needs no GPU
  vgpuscope config print          every setting, its value, and where it came from

`vgpuscope COMMAND --help` tells more.
"""

Command = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. 2: asked wrongly, 1: could not be done, 130: interrupted."""
    try:
        args, unknown = parser().parse_known_args(argv)
        if unknown:
            raise args.parser.unknown_argument(unknown[0])
        command: Command | None = args.command
        if command is None:
            return _overview()
        return command(args)
    except ScopeError as e:
        print(e.lines, file=sys.stderr)
        return e.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `| head` is no error, also not at exit
        return 0


def parser() -> argparse.ArgumentParser:
    """The parser of all commands; flags of services come from the table of settings."""
    root = _Parser(prog="vgpuscope", description="Observability for GPUs that are shared in Kubernetes.")
    root.add_argument("--version", action="version", version=f"vgpuscope {__version__}")
    root.set_defaults(command=None)
    commands = root.add_subparsers(title="commands", metavar="COMMAND")
    for add in _COMMANDS:
        add(commands)
    return root


class _Parser(argparse.ArgumentParser):
    """Raises our own error for a bad flag, so that it looks like every other one."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, **kwargs)
        self.set_defaults(parser=self)  # of the command that was chosen

    def error(self, message: str) -> NoReturn:
        raise ConfigInvalid(message, hint=self._look)

    def unknown_argument(self, word: str) -> ConfigInvalid:
        """The error for an argument that this command does not have."""
        name = word.partition("=")[0]
        near = nearest(name, self._option_string_actions) if name.startswith("-") else ""
        return ConfigInvalid(f"unknown argument {name[:80]!r}", hint=sentences(near, self._look))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what = "command" if action.metavar == "COMMAND" else "value"
            raise ConfigInvalid(
                f"unknown {what} {str(value)[:80]!r}", hint=instead(value, action.choices, look=self._look)
            )

    @property
    def _look(self) -> str:
        return f"`{self.prog} --help` lists what is possible."


# --- agent -----------------------------------------------------------------------------------------------------------


def _add_agent(commands: Any) -> None:
    agent = commands.add_parser(
        "agent",
        help="watch this node and serve its metrics",
        description="Sample the GPUs, containers and pods of this node and serve them on /metrics.",
        epilog="Each setting can also be given by environment or in the file; flags take precedence over "
        "the environment, and the environment over the file.",
    )
    _add_file_flag(agent)
    _add_setting_flags(agent, sections=("agent", "log"))
    agent.add_argument("--once", action="store_true", help="Print one sample in the text format and exit.")
    agent.set_defaults(command=_agent)


def _agent(args: argparse.Namespace) -> int:
    file = _file(args)
    loaded = config.load(flags=_given(args), environ=os.environ, file=file.path, sections=("agent", "log", "logging"))
    from vgpuscope.services.agent import process as agent

    return agent.main(loaded.config, once=args.once, file=file)


# --- cluster ---------------------------------------------------------------------------------------------------------


def _add_cluster(commands: Any) -> None:
    cluster = commands.add_parser(
        "cluster",
        help="watch the cluster and serve what was given to whom",
        description="Watch nodes, pods and quotas of the cluster and serve on /metrics who was given which device.",
        epilog="Each setting can also be given by environment or in the file; flags take precedence over "
        "the environment, and the environment over the file.",
    )
    _add_file_flag(cluster)
    _add_setting_flags(cluster, sections=("cluster", "log"))
    cluster.set_defaults(command=_cluster)


def _cluster(args: argparse.Namespace) -> int:
    file = _file(args)
    loaded = config.load(flags=_given(args), environ=os.environ, file=file.path, sections=("cluster", "log", "logging"))
    from vgpuscope.services.cluster import process as cluster

    return cluster.main(loaded.config, file=file)


# --- top -------------------------------------------------------------------------------------------------------------


def _add_top(commands: Any) -> None:
    top = commands.add_parser(
        "top",
        help="look at a node in the terminal",
        description="Show the GPUs of a node and the containers on them, live. Asks the agent of any node.",
    )
    _add_url(top, of="an agent", port=9394)
    top.add_argument("--once", action="store_true", help="Print one table and exit.")
    top.add_argument(
        "--json", action="store_true", help="Print the data as JSON: a line each interval, or one document with --once."
    )
    top.add_argument(
        "--interval",
        type=_interval,
        default=1.0,
        metavar="SECONDS",
        help="Time between two looks (default: 1; at least 0.1).",
    )
    top.add_argument("--sort", default="gpu", metavar="KEY", help="Sort by gpu (default), memory, sm, power or name.")
    top.add_argument("--filter", default="", metavar="TEXT", help="Show only rows that contain this text.")
    top.add_argument("--no-color", action="store_true", help="No colours; NO_COLOR in the environment does the same.")
    top.set_defaults(command=_top)


def _top(args: argparse.Namespace) -> int:
    from vgpuscope.commands import top

    return top.main(
        url=args.url,
        once=args.once,
        as_json=args.json,
        interval=args.interval,
        sort=args.sort,
        pattern=args.filter,
        color=not args.no_color and not os.environ.get("NO_COLOR"),
    )


def _interval(text: str) -> float:
    from vgpuscope.runtime import duration

    try:
        value = duration.seconds(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(f"{text!r}: {e}") from None
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 0.1 to 3600 seconds")
    return value


# --- nodes and gpus --------------------------------------------------------------------------------------------------


_INVENTORIES = (  # name, what it is in a line, what it prints
    (
        "nodes",
        "the cluster's nodes: what is given away, what still fits",
        "a row for each node of the cluster: cards, memory given away, the largest request that still fits, findings",
    ),
    (
        "gpus",
        "the cluster's GPUs: who holds how much of each",
        "a row for each device of the cluster: what it is, how much of it is given away, and to whom",
    ),
)


def _add_inventories(commands: Any) -> None:
    for name, line, what in _INVENTORIES:
        command = commands.add_parser(name, help=line, description=f"Print {what}. Asks the cluster exporter.")
        _add_url(command, of="a cluster exporter", port=31993)
        command.add_argument("--json", action="store_true", help="Print JSON.")
        command.set_defaults(command=_inventory, what=name)


def _inventory(args: argparse.Namespace) -> int:
    from vgpuscope.commands import inventory

    return inventory.main(args.what, url=args.url, as_json=args.json)


# --- pending ---------------------------------------------------------------------------------------------------------


def _add_pending(commands: Any) -> None:
    pending = commands.add_parser(
        "pending",
        help="the pods that wait for a GPU, and why",
        description="Print a row for each pod that waits for devices, or everything that is known of one pod: what it "
        "asks for, why no node was found, who said so, and what to do. Asks the cluster exporter.",
        usage="%(prog)s [NS/POD] [--all] [--json] [URL]",
    )
    pending.add_argument(
        "words",
        metavar="NS/POD or URL",
        nargs="*",
        help="A pod by namespace and name; address of a cluster exporter (default: http://127.0.0.1:31993).",
    )
    pending.add_argument(
        "--all", action="store_true", help="Also pods that no longer wait, as long as they are remembered: a day."
    )
    pending.add_argument("--json", action="store_true", help="Print JSON.")
    pending.set_defaults(command=_pending)


def _pending(args: argparse.Namespace) -> int:
    from vgpuscope.commands import pending

    return pending.main(args.words, everything=args.all, as_json=args.json)


# --- analyzer, analyze and results -----------------------------------------------------------------------------------


_ANALYZER_SECTIONS = ("analyzer", "prometheus", "thresholds", "scheduler", "log")


def _add_analyzer(commands: Any) -> None:
    analyzer = commands.add_parser(
        "analyzer",
        help="judge the fleet and serve scores and verdicts",
        description="Read Prometheus, or scrape by itself, judge every GPU, and serve scores, verdicts and evidence.",
        epilog="The settings and variables of gpu-oour are understood. Flags weigh more than the environment, and the "
        "environment more than the file; the file is read again when it changes.",
    )
    _add_file_flag(analyzer)
    _add_setting_flags(analyzer, sections=_ANALYZER_SECTIONS)
    analyzer.set_defaults(command=_analyzer)


def _analyzer(args: argparse.Namespace) -> int:
    from vgpuscope.services.analyzer import process as analyzer

    return analyzer.main(flags=_given(args), environ=os.environ, file=_file(args))


def _add_analyze(commands: Any) -> None:
    analyze = commands.add_parser(
        "analyze",
        help="judge the fleet once and print the results",
        description="Analyse once and print the results. Without a Prometheus it scrapes for one window first.",
    )
    _add_file_flag(analyze)
    _add_setting_flags(analyze, sections=_ANALYZER_SECTIONS)
    analyze.add_argument("--once", action="store_true", help="Exit after the analysis; it is the only way there is.")
    _add_forms(analyze)
    analyze.set_defaults(command=_analyze)


def _analyze(args: argparse.Namespace) -> int:
    from vgpuscope.commands import results

    return results.analyze_once(flags=_given(args), environ=os.environ, file=_file(args), form=_form(args))


def _add_results(commands: Any) -> None:
    found = commands.add_parser(
        "results",
        help="the last results of an analyzer",
        description="Print each GPU and its tenants: score, memory, verdict, class, idle time. Asks an analyzer.",
    )
    _add_url(found, of="an analyzer", port=8080)
    found.add_argument("--low", action="store_true", help="Only GPUs and tenants that are idle or below the threshold.")
    _add_forms(found)
    found.set_defaults(command=_results)


def _results(args: argparse.Namespace) -> int:
    from vgpuscope.commands import results

    return results.results(url=args.url, only_low=args.low, form=_form(args))


def _add_waste(commands: Any) -> None:
    found = commands.add_parser(
        "waste",
        help="who let how many GPU-hours pass idle",
        description="Rank tenants by idle GPU-hours. Asks an analyzer, which needs a store of results.",
    )
    _add_url(found, of="an analyzer", port=8080)
    found.add_argument("--since", default="24h", metavar="TIME", help="How far back: 24h, 7d, … (%(default)s).")
    found.add_argument(
        "--group-by",
        choices=GROUPINGS,
        default="tenant",
        help="Rank tenants, or what they have in common (%(default)s).",
    )
    found.add_argument("--limit", type=int, default=20, metavar="N", help="Most lines of the table (%(default)s).")
    _add_forms(found)
    found.set_defaults(command=_waste)


def _waste(args: argparse.Namespace) -> int:
    from vgpuscope.commands import waste

    return waste.main(url=args.url, since=args.since, group_by=args.group_by, limit=args.limit, form=_form(args))


def _add_forms(command: argparse.ArgumentParser) -> None:
    forms = command.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="Print JSON.")
    forms.add_argument("--csv", action="store_true", help="Print CSV.")


def _form(args: argparse.Namespace) -> Any:
    return "json" if args.json else "csv" if args.csv else "table"


# --- demo ------------------------------------------------------------------------------------------------------------


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser(
        "demo",
        help="simulated GPU nodes with real agents; needs no GPU",
        description="Start simulated nodes of different kinds, with a real agent on each, a real cluster exporter and "
        "a real analyzer, until Ctrl-C. DEMO_PROMETHEUS=1 puts a real Prometheus between them.",
    )
    demo.add_argument(
        "--port",
        type=_port,
        default=9394,
        metavar="PORT",
        help="Port of the first agent; others follow (%(default)s).",
    )
    demo.add_argument("--seed", type=int, default=1, metavar="N", help="The same seed gives the same workloads.")
    demo.add_argument(
        "--window-minutes",
        type=_minutes,
        default=1.0,
        metavar="MINUTES",
        help="What the analyzer judges (%(default)s); until it has seen that long, everything is unknown.",
    )
    demo.add_argument("--directory", metavar="DIR", help="Keep the simulated nodes here (default: a temporary one).")
    demo.set_defaults(command=_demo)


def _demo(args: argparse.Namespace) -> int:
    from vgpuscope.sim import demo

    return demo.main(base_port=args.port, seed=args.seed, directory=args.directory, window=args.window_minutes)


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


# --- config ----------------------------------------------------------------------------------------------------------


def _add_config(commands: Any) -> None:
    group = commands.add_parser("config", help="settings and where they came from", description="Look at the settings.")
    group.set_defaults(command=lambda _: _show_help(group))
    actions = group.add_subparsers(title="commands", metavar="COMMAND")
    show = actions.add_parser(
        "print",
        help="every setting, its value, and where it came from",
        description="Print the settings in effect, each with where it came from. Secrets are hidden.",
        epilog="Takes the flags of the agent too, to see what they would do.",
    )
    _add_file_flag(show)
    _add_setting_flags(show, sections=("agent", "log"))
    show.add_argument("--json", action="store_true", help="Print JSON.")
    show.set_defaults(command=_config_print)


def _config_print(args: argparse.Namespace) -> int:
    loaded = config.load(flags=_given(args), environ=os.environ, file=_file(args).path)
    print(_as_json(loaded) if args.json else _as_table(loaded))
    return 0


def _as_table(loaded: config.Loaded) -> str:
    rows = [(s.path, s.shown(loaded.value(s.path)), loaded.origins[s.path]) for s in config.SETTINGS]
    rows.insert(0, ("SETTING", "VALUE", "FROM"))
    widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
    return "\n".join(f"{path:<{widths[0]}}  {value:<{widths[1]}}  {origin}" for path, value, origin in rows)


def _as_json(loaded: config.Loaded) -> str:
    content = {
        s.path: {
            "value": s.shown(loaded.value(s.path)) if s.secret else loaded.value(s.path),
            "from": loaded.origins[s.path],
        }
        for s in config.SETTINGS
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


# --- shared ----------------------------------------------------------------------------------------------------------


def _add_file_flag(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config",
        metavar="FILE",
        help=f"File of settings in YAML, or {config.NO_FILE} [default: config.yaml of the working directory, if there "
        f"is one; env {config.FILE_VARIABLE}]",
    )


def _file(args: argparse.Namespace) -> config.SettingsFile:
    return config.settings_file(args.config, os.environ, sections=config.Config.__struct_fields__)


def _add_url(command: argparse.ArgumentParser, *, of: str, port: int) -> None:
    default = f"http://127.0.0.1:{port}"
    command.add_argument(
        "url", metavar="URL", nargs="?", default=default, help=f"Address of {of} (default: %(default)s)."
    )


def _add_setting_flags(command: argparse.ArgumentParser, *, sections: tuple[str, ...]) -> None:
    for setting in config.SETTINGS:
        if setting.flag and setting.section in sections:
            command.add_argument(
                *filter(None, (setting.flag, setting.short)),
                dest=setting.path,
                metavar=setting.placeholder or "|".join(setting.choices) or "VALUE",
                help=_help(setting),
            )


def _help(setting: config.Setting) -> str:
    names = ", ".join((setting.env, *setting.aliases))
    return f"{setting.description} [default: {setting.default_text}; env {names}]".replace("%", "%%")


_COMMANDS = (
    _add_agent,
    _add_cluster,
    _add_analyzer,
    _add_top,
    _add_inventories,
    _add_pending,
    _add_analyze,
    _add_results,
    _add_waste,
    _add_demo,
    _add_config,
)


def _given(args: argparse.Namespace) -> Mapping[str, object]:
    """The settings that were given as flags, by path."""
    return {s.path: value for s in config.SETTINGS if (value := getattr(args, s.path, None)) is not None}


def _overview() -> int:
    print(_OVERVIEW.format(version=__version__), end="")
    return 0


def _show_help(command: argparse.ArgumentParser) -> int:
    command.print_help()
    return 0
