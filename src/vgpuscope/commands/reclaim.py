"""`vgpuscope reclaim`."""

import argparse

from vgpuscope.commands.arguments import add_forms, form
from vgpuscope.commands.command import Command, epilog
from vgpuscope.model.service import ANALYZER_PORT, default_url

_CHANGES = (
    ("approve", "agree to the action", "vgpuscope reclaim approve ml/notebook-0"),
    ("snooze", "leave a workload alone for a while", "vgpuscope reclaim snooze ml/notebook-0 --for 7d"),
    ("exempt", "never take a workload's GPUs", "vgpuscope reclaim exempt 3f2a91c0"),
    ("restore", "put back what was there", "vgpuscope reclaim restore ml/notebook-0"),
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
_ROLE = "It needs the role operate: set VGPUSCOPE_TOKEN to a token of that role."


def _arguments(parser: argparse.ArgumentParser) -> None:
    _list_arguments(parser)
    parser.set_defaults(verb="list")
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND")
    listed = verbs.add_parser(
        "list", help="list all cases", description="List all cases with their states.", epilog=epilog(_LIST)
    )
    _list_arguments(listed)
    listed.set_defaults(verb="list", command=_run)
    for verb, text, example in _CHANGES:
        _add_change(verbs, verb, text, example)
    for verb, text in _SWITCHES:
        one = verbs.add_parser(
            verb,
            help=text,
            description=f"{text.capitalize()}. {_ROLE}",
            epilog=epilog(((f"vgpuscope reclaim {verb}", text),)),
        )
        _common(one)
        one.set_defaults(verb=verb, command=_run)
    _add_audit(verbs)


def _add_change(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", verb: str, text: str, example: str
) -> None:
    one = verbs.add_parser(
        verb, help=text, description=f"{text.capitalize()}. {_ROLE}", epilog=epilog(((example, text),))
    )
    one.add_argument("case", metavar="CASE", help="The case: NAMESPACE/POD, or the begin of its UID.")
    if verb == "snooze":
        one.add_argument(
            "--for", dest="rest", default="24h", metavar="TIME", help="How long: 24h, 7d, … (%(default)s)."
        )
    _common(one)
    one.set_defaults(verb=verb, command=_run)


def _add_audit(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    one = verbs.add_parser(
        "audit",
        help="every step: who, why, before, after",
        description="Print the audit log, newest first. Entries are never changed.",
        epilog=epilog(_AUDIT),
    )
    one.add_argument(
        "--case", metavar="CASE", help="Only entries of this case: NAMESPACE/POD, or the begin of its UID."
    )
    one.add_argument("--limit", type=int, default=50, metavar="N", help="Rows of the table (%(default)s).")
    one.add_argument(
        "--export", choices=("jsonl", "csv"), help="Print the whole log: one JSON object on each line, or CSV."
    )
    _common(one)
    one.set_defaults(verb="audit", command=_run)


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    from vgpuscope.model.reclaim import STATES

    parser.add_argument("--state", choices=STATES, metavar="STATE", help="Only cases in this state.")
    parser.add_argument("--namespace", "-n", metavar="NAME", help="Only cases of this namespace.")
    parser.add_argument("--limit", type=int, default=50, metavar="N", help="Rows of the table (%(default)s).")
    add_forms(parser)
    _common(parser)


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url",
        default=default_url(ANALYZER_PORT),
        metavar="URL",
        help="Address of an analyzer (default: %(default)s).",
    )
    parser.add_argument("--lang", choices=("en", "zh"), help="Language (default: that of LANG).")


def _run(args: argparse.Namespace) -> int:
    from vgpuscope.commands.clients import reclaim

    asked = reclaim.Asked(
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
    )
    return reclaim.main(asked)


COMMAND = Command(
    name="reclaim",
    synopsis="reclaim [COMMAND]",
    help="list idle workloads and what is done about them",
    description="List the cases of idle workloads with their states and countdowns. Further commands approve, snooze, "
    "exempt and restore a case, stop and start the machine, and print the audit log.",
    examples=(*_LIST, *((example, text) for _, text, example in _CHANGES), *_AUDIT),
    arguments=_arguments,
    run=_run,
)
