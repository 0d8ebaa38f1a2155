"""What service accounts asked the API server for, by its own audit log."""

import json
from pathlib import Path
from typing import Any, NamedTuple

POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}


class Right(NamedTuple):
    """A verb on a kind, in one namespace or in all ("")."""

    group: str
    resource: str
    verb: str
    namespace: str = ""


class Request(NamedTuple):
    """One request: the right that it needs, and how it was answered."""

    right: Right
    code: int
    path: str


def requests(log: Path, account: str, namespace: str) -> list[Request]:
    """Requests of a service account for objects of the API; discovery is open to every account."""
    user = f"system:serviceaccount:{namespace}:{account}"
    found = []
    whole, _, _ = log.read_text().rpartition("\n")  # the last line may be half written
    for line in whole.splitlines():
        event = json.loads(line)
        if event["user"]["username"] == user and "objectRef" in event:
            of = event["objectRef"]
            resource = "/".join(filter(None, (of.get("resource"), of.get("subresource"))))
            right = Right(of.get("apiGroup", ""), resource, event["verb"], of.get("namespace", ""))
            found.append(Request(right, event.get("responseStatus", {}).get("code", 0), event["requestURI"]))
    return found


def granted(objects: list[dict[str, Any]], account: str) -> set[Right]:
    """The rights that roles and their bindings give to a service account."""
    roles = {(o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]): o for o in objects}
    rights = set()
    for binding in objects:
        if binding["kind"] in {"ClusterRoleBinding", "RoleBinding"} and account in {
            subject["name"] for subject in binding["subjects"]
        }:
            namespace = binding["metadata"].get("namespace", "")
            of = binding["roleRef"]
            if of["name"].startswith("system:"):  # a role of Kubernetes itself, for kube-scheduler
                continue
            role = roles[of["kind"], namespace if of["kind"] == "Role" else "", of["name"]]
            rights |= {
                Right(group, resource, verb, namespace)
                for rule in role["rules"]
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return rights


def used(right: Right, asked: list[Request]) -> bool:
    """Whether a right was needed: a right for all namespaces also covers requests in one.

    What does not exist (404) was looked for, and that needs the right, too.
    """
    return any(
        one.right[:3] == right[:3]
        and right.namespace in {"", one.right.namespace}
        and (one.code < 400 or one.code == 404)
        for one in asked
    )
