"""The media type of a request's body: JSON in UTF-8, not compressed."""

from collections.abc import Mapping
from email.message import Message

from vgpuscope.http.answers import JSON
from vgpuscope.model.errors import MediaUnsupported

_FORM = "application/x-www-form-urlencoded"  # `curl -d` names this type whatever it sends
_UTF8 = frozenset({"utf-8", "utf8"})


def check_json(headers: Mapping[str, str]) -> None:
    """MediaUnsupported for a body that its headers call anything else. Without headers it is JSON."""
    encoding = headers.get("content-encoding", "").strip().lower() or "identity"
    if encoding != "identity":
        raise MediaUnsupported(f"the body has the Content-Encoding {encoding[:80]!r}")
    given = headers.get("content-type", "").strip()
    if not given:
        return
    found = Message()
    found["content-type"] = given
    kind, charset = found.get_content_type(), str(found.get_param("charset", "utf-8")).lower()
    if kind not in {JSON, _FORM} or charset not in _UTF8:
        raise MediaUnsupported(f"the body has the Content-Type {given[:80]!r}")
