"""`vgpuscope completion`."""

import argparse

from vgpuscope.commands.command import Command

SHELLS = ("bash", "zsh", "fish")


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish.")


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.actions import completion_script

    print(completion_script.of(args.whole(), args.shell))
    return 0


COMMAND = Command(
    name="completion",
    synopsis="completion SHELL",
    help="print a completion script for bash, zsh or fish",
    description="Print a script that completes commands, flags, their values and file names in your shell.",
    examples=(
        ('eval "$(vgpuscope completion bash)"', "bash: in ~/.bashrc"),
        ("vgpuscope completion zsh > ~/.zfunc/_vgpuscope", "zsh: with fpath+=~/.zfunc before compinit in ~/.zshrc"),
        ("vgpuscope completion fish > ~/.config/fish/completions/vgpuscope.fish", "fish"),
    ),
    note="A new shell loads the script. Print it again after an upgrade of vgpuscope.",
    arguments=_arguments,
    run=_run,
)
