"""The extender's answers → decisions as the console shows them."""

from collections.abc import Mapping, Sequence
from typing import Any

from vgpuscope.knowledge.vendors import NVIDIA
from vgpuscope.logic.console.moments import iso
from vgpuscope.logic.console.scheduling import Say
from vgpuscope.model.console.decisions import CodeRow, DecisionRow, PodDecisions, RankedNode, RefusedNode, WhatIf
from vgpuscope.model.console.parts import Part
from vgpuscope.model.decision_answers import CodeVerdicts, DecisionBody, fitting_nodes, verdicts_by_code
from vgpuscope.model.scheduling_codes import CODES, Stage

_USE_TYPE = "nvidia.com/use-gputype"
_NODES = 20  # of one code, and of those that fit
_STAGES: Mapping[str, Stage] = {code.code: code.stage for code in CODES}


def decision_row(one: DecisionBody) -> DecisionRow:
    """One decision, without the verdicts on single nodes."""
    return DecisionRow(
        id=one.id,
        at=iso(one.at),
        verb=one.verb,
        namespace=one.namespace,
        pod=one.pod,
        pod_uid=one.pod_uid,
        outcome=one.outcome,
        node=one.node or None,
        gpus=one.devices,
        score=one.score,
        policy=one.policy or None,
        terms=one.terms,
        codes=one.codes,
        fitting=one.fitting,
        asks=one.asks,
        constraints=one.constraints,
        seconds=one.seconds,
    )


def pod_decisions(found: Sequence[DecisionBody], *, say: Say, parts: tuple[Part, ...]) -> PodDecisions:
    """The decisions about one pod, with the verdicts of the last time that a node was looked for."""
    sought = next((one for one in found if one.verb == "filter"), None)
    nodes = sought.nodes if sought else ()
    ranked = fitting_nodes(sought) if sought else []
    return PodDecisions(
        rows=tuple(map(decision_row, found)),
        sought=decision_row(sought) if sought else None,
        codes=tuple(_code(one, sought, say) for one in verdicts_by_code(nodes)) if sought else (),
        ranked=tuple(RankedNode(node=one.node, score=one.score) for one in ranked[:_NODES] if one.score is not None),
        parts=parts,
    )


def _code(found: CodeVerdicts, of: DecisionBody, say: Say) -> CodeRow:
    words = say(found.code)
    return CodeRow(
        code=found.code,
        stage=_STAGES.get(found.code),
        meaning=words[0] if words else None,
        advice=words[1] if words else None,
        count=of.codes.get(found.code, len(found.nodes)),
        nodes=tuple(
            RefusedNode(
                node=one.node,
                message=one.message,
                message_zh=one.message_zh,
                requested=one.requested,
                available=one.available,
            )
            for one in found.nodes[:_NODES]
        ),
    )


def manifest_of(asked: WhatIf) -> dict[str, Any]:
    """A pod's manifest that asks for the same."""
    amounts = {NVIDIA.count: asked.gpus, NVIDIA.memory: asked.memory, NVIDIA.core: asked.cores}
    limits = {str(name): str(amount) for name, amount in amounts.items() if amount}
    return {
        "kind": "Pod",
        "metadata": {
            "name": "what-if",
            "namespace": asked.namespace,
            "annotations": {_USE_TYPE: asked.type} if asked.type else {},
        },
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }
