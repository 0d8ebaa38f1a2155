"""The command line: collects the commands, runs one, and turns an error into two lines and an exit code."""

import argparse
import os
import sys
from collections.abc import Sequence

from vgpuscope.commands import (
    agent,
    alive,
    analyze,
    analyzer,
    backtest,
    cluster,
    completion,
    config,
    demo,
    doctor,
    extender,
    fit,
    gpus,
    nodes,
    notify,
    pending,
    plugin,
    reclaim,
    results,
    standalone,
    top,
    waste,
    why,
)
from vgpuscope.commands import help as help_command
from vgpuscope.commands.command import Command, Parser
from vgpuscope.model.errors import ScopeError
from vgpuscope.version import __version__

COMMANDS: tuple[Command, ...] = (  # in the order of the help text
    agent.COMMAND,
    cluster.COMMAND,
    analyzer.COMMAND,
    extender.COMMAND,
    plugin.COMMAND,
    standalone.COMMAND,
    top.COMMAND,
    nodes.COMMAND,
    gpus.COMMAND,
    pending.COMMAND,
    why.COMMAND,
    fit.COMMAND,
    analyze.COMMAND,
    results.COMMAND,
    waste.COMMAND,
    notify.COMMAND,
    reclaim.COMMAND,
    backtest.COMMAND,
    doctor.COMMAND,
    demo.COMMAND,
    config.COMMAND,
    alive.COMMAND,
    completion.COMMAND,
    help_command.COMMAND,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. 2: wrong arguments or settings, 1: failed, 130: interrupted."""
    words = sys.argv[1:] if argv is None else argv
    try:
        args, unknown = parser(words).parse_known_args(words)
        if unknown:
            raise args.parser.unknown_argument(unknown[0])
        code = int(args.command(args)) if args.command else _overview()
        sys.stdout.flush()  # here, where a reader that has left is handled, and not at the exit of the interpreter
        return code
    except ScopeError as e:
        print(e.lines, file=sys.stderr)
        return e.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `| head` is not an error, nor at exit
        return 0


def parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The parser of all commands. Given the words to parse, only the command among them has its arguments: the others
    would import the settings."""
    root = Parser(prog="vgpuscope", description="Observability for GPUs that are shared in Kubernetes.")
    root.add_argument("--version", action="version", version=f"vgpuscope {__version__}")
    root.set_defaults(command=None, whole=parser, overview=_overview)
    commands = root.add_subparsers(title="commands", metavar="COMMAND")
    chosen = None if words is None else next((word for word in words if not word.startswith("-")), "")
    for command in COMMANDS:
        own = command.add_to(commands)
        if chosen in {None, command.name}:
            command.arguments(own)
    return root


def _overview() -> int:
    print(f"vgpuscope {__version__} - observability for GPUs that are shared in Kubernetes\n")
    for command in COMMANDS:
        print(f"  vgpuscope {command.synopsis:<17} {command.help}")
    print("\n`vgpuscope help COMMAND` shows the arguments of a command, with examples.")
    return 0
