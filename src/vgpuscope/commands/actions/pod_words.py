"""A pod and an address among the words of a command."""

from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.model.service import default_url, local


def pod_and_url(words: list[str], url: str | None, *, command: str, port: int) -> tuple[str, str]:
    """The pod and the address: names of namespaces and pods have no colon. The pod is "" if none is given."""
    pods = [word for word in words if "/" in word and ":" not in word]
    urls = [word for word in words if word not in pods]
    wrong = [word for word in pods if word.count("/") != 1 or not all(word.split("/"))]
    wrong += [word for word in urls if not (":" in word or "." in word or word == "localhost")]
    urls += [url] if url else []
    if wrong or len(pods) > 1 or len(urls) > 1:
        reason = (
            f"{wrong[0]!r} is neither NAMESPACE/POD nor an address" if wrong else "more than one pod or one address"
        )
        raise ConfigInvalid(reason, hint=f"For example: `vgpuscope {command} ml/train-0 --url {local(port)}`.")
    return pods[0] if pods else "", urls[0] if urls else default_url(port)
