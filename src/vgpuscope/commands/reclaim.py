"""`vgpuscope reclaim`."""

import argparse
from typing import Any

from vgpuscope.commands.arguments import add_forms, add_language, add_namespace, add_url, add_wide, form
from vgpuscope.commands.command import WATCH_EXITS, Command, Parser, epilog
from vgpuscope.model.service import ANALYZER_PORT, default_url

_CHANGES = (
    ("approve", "agree to the action", "vgpuscope reclaim approve ml/notebook-0"),
    ("snooze", "leave a workload alone for a while", "vgpuscope reclaim snooze ml/notebook-0 --for 7d"),
    ("exempt", "never take a workload's GPUs", "vgpuscope reclaim exempt 3f2a91c0"),
    ("resume", "end a snooze or an exemption", "vgpuscope reclaim resume ml/notebook-0"),
    ("restore", "undo the change that freed the GPUs", "vgpuscope reclaim restore ml/notebook-0"),
)
_SWITCHES = (
    ("stop", "stop: no action is taken until `start`"),
    ("start", "start again, with the circuit breaker reset"),
)
_LIST = (
    ("vgpuscope reclaim", "all cases, those with the shortest countdown first"),
    ("vgpuscope reclaim list --state grace --namespace ml", "those of one namespace in their grace period"),
)
_AUDIT = (
    ("vgpuscope reclaim audit", "the last steps"),
    ("vgpuscope reclaim audit --export csv > audit.csv", "the whole log"),
)
_ROWS = 50  # of the table
_ROLE = "It needs the role operate: set VGPUSCOPE_TOKEN to a token of that role."


class _Verb(Parser):
    """A command behind `reclaim`, whose options have no default of their own.

    A default would replace what was given before the command: `reclaim --url PRODUCTION stop` would stop another
    analyzer, the one of this machine.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(argument_default=argparse.SUPPRESS, **options)


def _arguments(parser: argparse.ArgumentParser) -> None:
    _list_arguments(parser)
    parser.set_defaults(verb="list", url=default_url(ANALYZER_PORT), limit=_ROWS)
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Verb)
    listed = verbs.add_parser(
        "list",
        help="list all cases",
        description="List all cases with their states.",
        epilog=epilog(_LIST, exits=WATCH_EXITS),
    )
    _list_arguments(listed)
    listed.set_defaults(verb="list", command=_run)
    for verb, text, example in _CHANGES:
        _add_change(verbs, verb, text, example)
    for verb, text in _SWITCHES:
        one = verbs.add_parser(
            verb,
            help=text,
            description=f"{_sentence(text)} {_ROLE}",
            epilog=epilog(((f"vgpuscope reclaim {verb}", text),)),
        )
        _common(one)
        one.set_defaults(verb=verb, command=_run)
    _add_audit(verbs)


def _add_change(verbs: "argparse._SubParsersAction[_Verb]", verb: str, text: str, example: str) -> None:
    one = verbs.add_parser(verb, help=text, description=f"{_sentence(text)} {_ROLE}", epilog=epilog(((example, text),)))
    one.add_argument("case", metavar="CASE", help="The case: NAMESPACE/POD, or the beginning of its UID.")
    if verb == "snooze":
        one.add_argument(
            "--for", dest="rest", default="24h", metavar="TIME", help="How long: 24h, 7d, … [default: %(default)s]"
        )
    _common(one)
    one.set_defaults(verb=verb, command=_run)


def _sentence(text: str) -> str:
    """The text with a capital letter and a full stop; other capitals, as in GPU, stay."""
    return f"{text[0].upper()}{text[1:]}."


def _add_audit(verbs: "argparse._SubParsersAction[_Verb]") -> None:
    one = verbs.add_parser(
        "audit",
        help="every step: who, why, before, after",
        description="Print the audit log, newest first. Entries are never changed.",
        epilog=epilog(_AUDIT),
    )
    one.add_argument(
        "--case", metavar="CASE", help="Only entries of this case: NAMESPACE/POD, or the beginning of its UID."
    )
    one.add_argument("--limit", type=int, metavar="N", help=f"Rows of the table. [default: {_ROWS}]")
    one.add_argument(
        "--export", choices=("jsonl", "csv"), help="Print the whole log: one JSON object on each line, or CSV."
    )
    _common(one)
    add_wide(one)
    one.set_defaults(verb="audit", command=_run)


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    from vgpuscope.model.reclaim import STATES

    parser.add_argument("--state", choices=STATES, metavar="STATE", help="Only cases in this state.")
    add_namespace(parser, "Only cases of this namespace.")
    parser.add_argument("--limit", type=int, metavar="N", help=f"Rows of the table. [default: {_ROWS}]")
    add_forms(parser, watch=True)
    _common(parser)
    add_wide(parser)


def _common(parser: argparse.ArgumentParser) -> None:
    add_url(parser, of="analyzer", port=ANALYZER_PORT, positional=False)
    add_language(parser)


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.actions import reclaim

    asked = reclaim.ReclaimArguments(
        verb=args.verb,
        url=args.url,
        language=args.lang,
        case=getattr(args, "case", None),
        rest=getattr(args, "rest", ""),
        state=getattr(args, "state", None),
        namespace=getattr(args, "namespace", None),
        limit=getattr(args, "limit", 0),
        form=form(args) if hasattr(args, "json") else "table",
        export=getattr(args, "export", None),
        wide=getattr(args, "wide", False),
        every=getattr(args, "watch", None),
    )
    return reclaim.main(asked)


COMMAND = Command(
    name="reclaim",
    synopsis="reclaim [COMMAND]",
    help="list idle workloads and what is done about them",
    description="List the cases of idle workloads with their states and countdowns. Further commands approve, snooze, "
    "exempt, resume and restore a case, stop and start reclaim, and print the audit log.",
    examples=(*_LIST, *((example, text) for _, text, example in _CHANGES), *_AUDIT),
    arguments=_arguments,
    run=_run,
    exits=WATCH_EXITS,
)
