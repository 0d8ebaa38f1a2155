"""PromQL and the answers of Prometheus' HTTP API: selectors from matchers, rows from bytes.

An answer is {"status", "data": {"resultType", "result"}, "warnings", "isPartial"}; a row of a vector is {"metric":
{label: value}, "value": [time, "number"]}, one of a matrix has "values". Across dozens of
answers with tens of thousands of rows, nearly all labels repeat, so those of a vector stay bytes until needed.
"""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from vgpuscope.formats.prom import re2
from vgpuscope.model.errors import AnswerUnreadable, ConfigInvalid, QueryFailed
from vgpuscope.model.quantity import Seconds

T = TypeVar("T")


# ── queries ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Matcher(NamedTuple):
    """One condition on a label; the value is the text itself, without quotes and escapes."""

    label: str
    op: str  # = != =~ !~
    value: str

    def __str__(self) -> str:
        return f"{self.label}{self.op}{_quoted(self.value)}"


_SPACE = r"(?:[ \t\r\n]|#[^\r\n]*[\r\n])*"  # a comment counts as space
_STRING = r'"(?:[^"\\\n\ufffd]|\\.)*"|' + r"'(?:[^'\\\n\ufffd]|\\.)*'|`[^`\ufffd]*`"
_BODY = re.compile(rf"[ \t\r\n]*\{{{_SPACE}(.*)\}}[ \t\r\n]*", re.DOTALL)
_MATCHER = re.compile(rf"([a-zA-Z_][a-zA-Z0-9_]*){_SPACE}(=~|!~|!=|=){_SPACE}({_STRING}){_SPACE}(?:,{_SPACE}|$)")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
_SHORT = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")  # characters with a meaning in a regular expression of RE2
EXAMPLE = '{pod!="",cluster="a"}'


def parse_condition(text: str) -> tuple[Matcher, ...]:
    """The matchers of {label="value", …}; ConfigInvalid when it is anything else."""
    try:
        return read_condition(text)
    except ValueError as e:
        raise _wrong(text, str(e)) from e


def read_condition(text: str) -> tuple[Matcher, ...]:
    """The same; ValueError says why not. All conditions are parsed here, in the same way as in Prometheus."""
    body = _BODY.fullmatch(text)
    if body is None:
        raise ValueError(f"expected matchers in braces, such as {EXAMPLE}")
    at, found = 0, []
    while at < len(body[1]):
        matched = _MATCHER.match(body[1], at)
        if matched is None:
            raise ValueError(f"expected matchers in braces, such as {EXAMPLE}; {body[1][at : at + 40]!r} is not one")
        at = matched.end()
        found.append(_checked(Matcher(matched[1], matched[2], _unquoted(matched[3]))))
    return tuple(found)


def _checked(matcher: Matcher) -> Matcher:
    if matcher.label == "__name__":
        raise ValueError("__name__ cannot be a condition: the analyzer asks for metrics by name")
    if "~" in matcher.op:
        try:
            re2.read(matcher.value)
        except ValueError as e:
            raise ValueError(f"{matcher.value!r} is not a regular expression of RE2: {e}") from e
    return matcher


def chosen_by(matchers: Iterable[Matcher]) -> Callable[[Mapping[str, str]], bool]:
    """A test whether labels fulfil all matchers, as in an engine: a missing label is empty. ConfigInvalid."""
    tests = [(matcher.label, matcher.op[0] == "=", _pattern(matcher)) for matcher in matchers]
    return lambda labels: all((p.fullmatch(labels.get(label, "")) is not None) == wanted for label, wanted, p in tests)


def _pattern(matcher: Matcher) -> re.Pattern[str]:
    if "~" not in matcher.op:
        return re.compile(re.escape(matcher.value))
    found = re2.read(matcher.value)
    if not found.exact:
        raise _wrong(f"{{{matcher}}}", "Unicode classes (\\p) are supported only with Prometheus")
    try:
        return re.compile(found.python)
    except (re.error, RecursionError, OverflowError) as e:
        raise _wrong(f"{{{matcher}}}", f"Python cannot compile it ({e}); use Prometheus instead") from e


def selector(name: str, matchers: Iterable[Matcher]) -> str:
    """The series of a metric that fulfil all matchers."""
    return f"{name}{{{','.join(map(str, matchers))}}}"


def one_of(label: str, values: Iterable[str]) -> Matcher:
    """The label is one of these texts."""
    return Matcher(label, "=~", "|".join(_SPECIAL.sub(r"\\\g<0>", value) for value in values))


def window(seconds: Seconds) -> str:
    """A range that holds the same number of samples in every engine.

    Prometheus 2 includes a sample that is exactly as old as the range, others do not. With a millisecond less, none
    does.
    """
    return f"{max(1, round(seconds * 1000) - 1)}ms"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\ufffd", "\\ufffd")
    bytewise = _NO_TEXT.sub(lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02x}", escaped)
    return f'"{bytewise}"'


_NO_TEXT = re.compile("[\udc80-\udcff]")  # a byte that is not UTF-8, as Python keeps it


def _unquoted(literal: str) -> str:
    if literal[0] == "`":
        return literal[1:-1]
    quote, body = literal[0], literal[1:-1]
    try:
        parts = _ESCAPE.split(body)  # text, escape, text, …
        data = b"".join(_bytes(part, quote) if at % 2 else part.encode() for at, part in enumerate(parts))
    except (ValueError, OverflowError) as e:
        raise ValueError(f"{literal} is not a string of PromQL") from e
    return data.decode("utf-8", "surrogateescape")


def _bytes(code: str, quote: str) -> bytes:
    """The bytes of an escape; \\x and octal escapes are one byte, which need not be a character."""
    if code[0] == "x" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    if code[0] in "uU" and len(code) > 1:
        return chr(int(code[1:], 16)).encode()
    if len(code) == 3:
        return bytes([int(code, 8)])
    if code == quote:
        return code.encode()
    if code in _SHORT:
        return _SHORT[code].encode()
    raise ValueError(code)


def _wrong(text: str, why: str) -> ConfigInvalid:
    return ConfigInvalid(
        f"the query condition {text!r} is not valid: {why}", hint=f"Write matchers in braces: {EXAMPLE}."
    )


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────


Sample: TypeAlias = tuple[float, float]  # time and value
Steps: TypeAlias = Generator[None, None, T]  # decoding in steps of some milliseconds; returns the result

_STEP = 2 * 1024 * 1024  # bytes decoded at a time
_LARGEST_STEP = 32 * 1024 * 1024  # bytes that cannot be split: one series, or JSON of another form
_MOST_ROWS = 1_000_000  # series of one answer
_LONGEST_LINE = 8 * 1024 * 1024  # bytes of the samples of one series: some 300,000 samples
_MOST_WARNINGS = 64 * 1024  # bytes
_SHOWN = 300  # characters of a server's text
_FIRST_ROW, _NEXT_ROW = b'{"metric":', b',{"metric":'  # quotes are escaped in text, so this is never inside of a text


class VectorRow(Struct, gc=False):
    """One series of a vector; its labels are still JSON."""

    metric: msgspec.Raw
    value: Sample


class MatrixRow(Struct, gc=False):
    """One series of a matrix; its labels and its samples are still JSON."""

    metric: msgspec.Raw
    values: msgspec.Raw = msgspec.Raw(b"[]")

    def samples(self) -> list[Sample]:
        """The samples in order of time; AnswerUnreadable if one is not a number, or if there are too many."""
        if memoryview(self.values).nbytes > _LONGEST_LINE:
            raise AnswerUnreadable(f"a series whose samples take more than {_LONGEST_LINE >> 20} MiB")
        try:
            return _decoded(_SAMPLES, self.values)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
            raise AnswerUnreadable(f"samples that are not numbers: {e}") from e


class PromAnswer(Struct, Generic[T], frozen=True):
    """The rows of an answer; `missing`: what is missing, if the server reported that."""

    rows: list[T]
    missing: str = ""


class _Data(Struct, Generic[T]):
    type: str = msgspec.field(name="resultType")
    result: list[T]


class _Envelope(Struct, Generic[T]):
    status: str
    data: T | None = None
    error: str = ""
    kind: str = msgspec.field(name="errorType", default="")
    warnings: msgspec.Raw = msgspec.Raw(b"[]")
    partial: bool | None = msgspec.field(name="isPartial", default=False)


# not strict, because numbers are written as text
_VECTOR = msgspec.json.Decoder(_Envelope[_Data[VectorRow]], strict=False)
_VECTOR_ROWS = msgspec.json.Decoder(list[VectorRow], strict=False)
_MATRIX = msgspec.json.Decoder(_Envelope[_Data[MatrixRow]])
_LINES = msgspec.json.Decoder(list[MatrixRow])
_WARNINGS = msgspec.json.Decoder(tuple[str, ...] | None)
_SAMPLES = msgspec.json.Decoder(list[Sample], strict=False)
_INFINITE = re.compile(rb'"\+Inf"(?=\s*\])')  # as a value, not as a label's
_NAMES = msgspec.json.Decoder(_Envelope[list[str]])
_ANY = msgspec.json.Decoder(_Envelope[msgspec.Raw])
_LABELS = msgspec.json.Decoder(dict[str, str])
_NAME_FIRST = b'{"__name__":"'  # as engines write it, unless a label begins with a capital letter


def decode_vector(data: bytes) -> PromAnswer[VectorRow]:
    """The rows of an instant query; AnswerUnreadable or QueryFailed."""
    return finished(vector_steps(data))


def decode_matrix(data: bytes) -> PromAnswer[MatrixRow]:
    """The lines of a query for a range of samples; AnswerUnreadable or QueryFailed."""
    return finished(matrix_steps(data))


def vector_steps(data: bytes) -> Steps[PromAnswer[VectorRow]]:
    """The same as decode_vector, in steps."""
    return _table(data, "vector", _VECTOR, _VECTOR_ROWS)


def matrix_steps(data: bytes) -> Steps[PromAnswer[MatrixRow]]:
    """The same as decode_matrix, in steps."""
    return _table(data, "matrix", _MATRIX, _LINES)


class Decoding(Generic[T]):
    """Goes through some steps in a `for` loop; then `result` is set."""

    result: T

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps

    def __iter__(self) -> Iterator[None]:
        self.result = yield from self._steps


def finished(steps: Steps[T]) -> T:
    """The result, without a pause between the steps."""
    decoding = Decoding(steps)
    for _ in decoding:
        pass
    return decoding.result


def decode_names(data: bytes) -> PromAnswer[str]:
    """The values of a label; AnswerUnreadable or QueryFailed."""
    envelope = _opened(_NAMES, data)
    return PromAnswer(envelope.data or [], _missing(envelope))


def decode_labels(raw: bytes | msgspec.Raw) -> dict[str, str]:
    """The labels of a row, without the metric's name, which some engines keep; AnswerUnreadable."""
    return decode_named(raw)[1]


def decode_named(raw: bytes | msgspec.Raw) -> tuple[str, dict[str, str]]:
    """The metric's name, if it is there, and the other labels; AnswerUnreadable."""
    try:
        labels = _LABELS.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise AnswerUnreadable(f"labels that are not text: {e}") from e
    return labels.pop("__name__", ""), labels


def by_labels(rows: Iterable[VectorRow]) -> list[tuple[dict[str, str], dict[str, float]]]:
    """Labels without the metric's name, and the values by metric; AnswerUnreadable.

    Series of several metrics of one thing have the same labels, which are decoded once.
    """
    names: dict[bytes, str] = {}  # by the bytes before the other labels
    known: dict[bytes, dict[str, float]] = {}
    others: list[tuple[dict[str, str], dict[str, float]]] = []
    for row in rows:
        text = bytes(row.metric)
        head, _, rest = text.partition(b'",')
        name = names.get(head)
        if name is None:
            if not rest or not _leads(head):
                own, labels = decode_named(text)
                others.append((labels, {own: row.value[1]}))
                continue
            name = names[head] = head[len(_NAME_FIRST) :].decode()
        values = known.get(rest)
        if values is None:
            values = known[rest] = {}
        values[name] = row.value[1]
    return [*((decode_labels(b"{" + rest), values) for rest, values in known.items()), *others]


def _leads(head: bytes) -> bool:
    """Whether these bytes are a metric's name as engines write it first, up to its closing quote."""
    name = head[len(_NAME_FIRST) :]
    return head.startswith(_NAME_FIRST) and b"\\" not in name and b'"' not in name


def without_name(raws: Iterable[bytes], name: str) -> list[bytes]:
    """Labels of series without the metric's name, so that they are equal for all metrics of one thing."""
    given = f'"__name__":"{name}"'.encode()
    lead, first, later = b"{" + given + b",", given + b",", b"," + given
    skipped = len(lead)
    return [
        b"{" + raw[skipped:] if raw.startswith(lead) else raw.replace(first, b"", 1).replace(later, b"", 1)
        for raw in raws
    ]


def in_order(raw: bytes) -> bytes:
    """Labels without the metric's name, in the order that engines keep in vectors; AnswerUnreadable."""
    return msgspec.json.encode(dict(sorted(decode_labels(raw).items())))


def decode_error(status: int, data: bytes) -> str:
    """The server's error message, in one line."""
    try:
        envelope = _ANY.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return f"{status} {_looks_like(data)}".strip()
    return f"{status} {_line(envelope.kind)}: {_line(envelope.error)}" if envelope.error else str(status)


def _decoded(decoder: "msgspec.json.Decoder[T]", data: bytes | msgspec.Raw) -> T:
    """Decode, with +Inf rewritten if that fails: the decoder knows only Inf and -Inf, and +Inf is rare."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        changed, number = _INFINITE.subn(b'"Inf"', data)
        if not number:
            raise
        return decoder.decode(changed)


def _table(
    data: bytes,
    kind: str,
    whole: "msgspec.json.Decoder[_Envelope[_Data[T]]]",
    some: "msgspec.json.Decoder[list[T]]",
) -> Steps[PromAnswer[T]]:
    """Decodes the rows some at a time; the last of them together with all that is around the rows."""
    rows: list[T] = []
    begin = at = max(0, data.find(_FIRST_ROW))
    while (end := data.find(_NEXT_ROW, at + _STEP)) >= 0:
        rows += _rows(some, memoryview(data)[at:end])
        _check_number(rows)
        at = end + 1
        yield
    envelope = _opened(whole, data[:begin] + _bearable(memoryview(data)[at:]) if at > begin else _bearable(data))
    content = envelope.data
    if content is None or content.type != kind:
        raise AnswerUnreadable(f"the answer is {content.type[:80] if content else 'nothing'}, not a {kind}")
    rows += content.result
    _check_number(rows)
    return PromAnswer(rows, _missing(envelope))


def _rows(decoder: "msgspec.json.Decoder[list[T]]", piece: memoryview) -> list[T]:
    try:
        return _decoded(decoder, b"".join((b"[", _bearable(piece), b"]")))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise AnswerUnreadable(f"the answer is not Prometheus' JSON: {e}") from e


B = TypeVar("B", bytes, memoryview)


def _bearable(piece: B) -> B:
    if len(piece) > _LARGEST_STEP:
        raise AnswerUnreadable(f"the answer has a part of more than {_LARGEST_STEP >> 20} MiB that is not series")
    return piece


def _check_number(rows: list[T]) -> None:
    if len(rows) > _MOST_ROWS:
        raise AnswerUnreadable(f"the answer has more than {_MOST_ROWS:,} series")


def _opened(decoder: "msgspec.json.Decoder[_Envelope[T]]", data: bytes) -> _Envelope[T]:
    try:
        envelope = _decoded(decoder, data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        what = _looks_like(data) or "cut off or of another shape"
        raise AnswerUnreadable(f"the answer is not Prometheus' JSON ({what}): {e}") from e
    if envelope.status != "success":
        said = f"{_line(envelope.status)}: {_line(envelope.kind)} {_line(envelope.error)}"
        raise QueryFailed(f"the server says {said}".rstrip())
    return envelope


def _looks_like(data: bytes) -> str:
    start = data[:200].lstrip().lower()
    if not start:
        return "empty"
    if start.startswith(b"<"):
        return "HTML"
    return "" if start.startswith((b"{", b"[")) else _line(data[:80].decode("utf-8", "replace"))


def _missing(envelope: _Envelope[T]) -> str:
    """Why the answer is incomplete. Warnings about the PromQL expression are not about missing data."""
    said = [text for text in _warnings(envelope.warnings) if not text.startswith("PromQL ")]
    if said:
        return "; ".join(map(_line, said[:3]))
    return "the server calls its answer partial" if envelope.partial else ""


def _warnings(raw: msgspec.Raw) -> tuple[str, ...]:
    text = bytes(raw)
    if len(text) > _MOST_WARNINGS:
        return (text[:_SHOWN].decode("utf-8", "replace"),)
    try:
        return _WARNINGS.decode(text) or ()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise AnswerUnreadable(f"warnings that are not text: {e}") from e


def _line(text: str) -> str:
    return " ".join(text[: 10 * _SHOWN].split())[:_SHOWN]
