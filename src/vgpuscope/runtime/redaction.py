"""Text without secrets: values that are known to be secret, and what looks like one."""

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote, unquote

MASK: Final = "[redacted]"
_SHORTEST = 4  # characters; a shorter text would be masked everywhere
_NAMED = re.compile(r"TOKEN|PASSWORD|PASSWD|SECRET|API_?KEY|CREDENTIAL|PRIVATE", re.IGNORECASE)
# Strangers write what is searched: each pattern begins only where a word begins, and never reads a word twice, so that
# the time grows with the length of the text.
_PATTERNS: Final = (
    (re.compile(r"(?<=://)[^\s/@\"'<>]++(?=@)"), MASK),  # user and password of an address
    (re.compile(r"(?i)\b(bearer|basic)\s++[A-Za-z0-9._~+/=-]{6,}+"), rf"\1 {MASK}"),
    (  # a JSON web token; what follows the word is looked at once, before the word is searched
        re.compile(
            r"(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]++\.[A-Za-z0-9_-]{4})([A-Za-z0-9_-]*?)\b"
            r"eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]++(?:\.[A-Za-z0-9_-]*+)?"
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"\b(?:sk|ghp|gho|glpat|xox[abp])[-_][A-Za-z0-9_-]{12,}+"), MASK),  # keys with a known beginning
    (  # a key whose end was cut off is secret, too
        re.compile(
            r"-----BEGIN [A-Z ]{0,64}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,64}PRIVATE KEY-----|\Z)", re.DOTALL
        ),
        MASK,
    ),
    (
        re.compile(
            r"(?i)(?<![a-z0-9_-])"
            r"([a-z0-9_-]*(?:password|passwd|secret|api_?key|access_?key|private_?key|token)[\"']?\s*+[:=]\s*+)"
            r"(\"[^\"\n]+\"|'[^'\n]+'|[^\s,;&}\"']+)"
        ),
        rf"\1{MASK}",
    ),
)


def secrets_of(environ: Mapping[str, str], more: Iterable[str | None] = ()) -> tuple[str, ...]:
    """Values that must not be shown: those of variables that are named like secrets, and `more`."""
    found = {value for name, value in environ.items() if _NAMED.search(name)}
    found |= {value for value in more if value}
    found |= {form for value in found for form in (quote(value, safe=""), unquote(value))}
    return tuple(sorted((value for value in found if len(value) >= _SHORTEST), key=len, reverse=True))


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with every secret masked."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    for pattern, mask in _PATTERNS:
        text = pattern.sub(mask, text)
    return text
