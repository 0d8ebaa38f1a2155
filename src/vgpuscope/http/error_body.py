"""The body of every error: the same three texts in all services."""

import msgspec
from msgspec import Struct


class ErrorText(Struct, frozen=True):
    """The error: code, message and hint."""

    code: str
    message: str
    hint: str


class ErrorBody(Struct, frozen=True):
    """The shape of every error."""

    error: ErrorText


def error_body(code: str, message: str, hint: str) -> bytes:
    """The body as JSON. No other place builds one."""
    return msgspec.json.encode(ErrorBody(ErrorText(code, message, hint)))
