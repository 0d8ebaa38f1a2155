"""Signed links: an owner without an account can keep, postpone or give back the GPUs of one workload.

token = base64url( action language expires . nonce . case ∥ HMAC-SHA256(key, all of that)[:16] )

A token says only what it allows. Whether it was used already is asked of the store.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping

from vgpuscope.model.errors import LinkExpired, LinkInvalid
from vgpuscope.model.notices import LinkAction, SignedLink
from vgpuscope.model.quantity import UnixTime
from vgpuscope.model.words import Language

_MAC = 16  # bytes
_LONGEST = 1024
_PURPOSE = b"vgpuscope owner link 1\n"
_ACTIONS: Mapping[str, LinkAction] = {"k": "keep", "s": "snooze", "r": "release"}
_LANGUAGES: Mapping[str, Language] = {"e": "en", "z": "zh"}
_SHAPE = re.compile(r"([ksr])([ez])([0-9a-f]{1,12})\.([\w-]{8,64})\.(.+)", re.DOTALL)


def signed(link: SignedLink, key: bytes) -> str:
    """The token of a link."""
    said = f"{link.action[0]}{link.language[0]}{link.expires:x}.{link.nonce}.{link.case_id}".encode()
    return base64.urlsafe_b64encode(said + _mac(said, key)).decode().rstrip("=")


def read(token: str, key: bytes, *, now: UnixTime) -> SignedLink:
    """The link of a token; LinkInvalid: its signature is wrong. LinkExpired: its time is over."""
    said = _said(token, key)
    shape = _SHAPE.fullmatch(said)
    if shape is None:
        raise LinkInvalid("this link is not valid")
    action, language, expires, nonce, case_id = shape.groups()
    link = SignedLink(
        case_id=case_id,
        action=_ACTIONS[action],
        expires=int(expires, 16),
        nonce=nonce,
        language=_LANGUAGES[language],
    )
    if now >= link.expires:
        raise LinkExpired("this link has expired")
    return link


def _said(token: str, key: bytes) -> str:
    """What the token says, if its signature is right; its language and all else are unknown before that."""
    try:
        content = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        said, mac = content[:-_MAC], content[-_MAC:]
        canonical = base64.urlsafe_b64encode(content).decode().rstrip("=") == token
        if len(token) > _LONGEST or not canonical or not hmac.compare_digest(_mac(said, key), mac):
            raise LinkInvalid("this link is not valid")
        return said.decode()
    except (binascii.Error, ValueError) as e:
        raise LinkInvalid("this link is not valid") from e


def _mac(said: bytes, key: bytes) -> bytes:
    return hmac.digest(key, _PURPOSE + said, hashlib.sha256)[:_MAC]
