"""Regular expressions of RE2, as Go's regexp and so every PromQL engine reads them, written for Python's `re`.

The two languages differ in what they accept ((?=a) is only Python's, \\z and [[:alpha:]] are only RE2's) and in what
the same text means (\\w, a{,5}). So an expression is parsed by RE2's grammar and rewritten. Only whether a whole text
matches is preserved: groups do not capture, and whether an operator is greedy makes no difference.
"""

import re
from typing import NoReturn

from msgspec import Struct

_MOST = 1000  # repetitions, also of nested ones together; and levels of groups
_DIGITS, _SPACES, _WORDS = "0-9", r"\t\n\f\r ", "0-9A-Za-z_"
_PERL = {"d": _DIGITS, "s": _SPACES, "w": _WORDS}
_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": _DIGITS,
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": _WORDS,
    "xdigit": "0-9A-Fa-f",
}
_CONTROL = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_REPEAT = re.compile(r"\{(0|[1-9][0-9]*)(?:,(0|[1-9][0-9]*)?)?\}")
_NAMED = re.compile(r"\(\?P?<([^>]*)>")
_FLAGS = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_HEX = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]+)\})")
_OCTAL = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")
_UNICODE = re.compile(r"[pP](?:([A-Za-z])|\{\^?([A-Za-z_0-9]+)\})")
_SOME_UNICODE = "\x00-\U0010ffff"  # placeholder for a class that is known only by its name


class Pattern(Struct, frozen=True):
    """An expression that RE2 accepts."""

    python: str  # the same expression for fullmatch
    exact: bool  # False: it names Unicode classes that Python does not know


def read(text: str) -> Pattern:
    """The expression; ValueError says why RE2 does not accept it."""
    reader = _Reader(text)
    return Pattern("".join(reader.read()), reader.exact)


class _Group:
    """An open group: its content so far, and the flags after it."""

    def __init__(self, flags: frozenset[str]) -> None:
        self.flags = flags  # in effect after the group
        self.pieces: list[str] = []
        self.repeats: list[int] = []  # of each piece: the most repetitions within it
        self.bar = True  # nothing since the beginning or the last |
        self.repeated = False  # the last piece has its operator
        self.most = 1


class _Reader:
    def __init__(self, text: str) -> None:
        if any("\ud800" <= c <= "\udfff" for c in text):
            raise ValueError("it is not UTF-8")
        self._text, self._at = text, 0
        self._flags = frozenset("s")  # as Prometheus 3: . is any character
        self._open = [_Group(self._flags)]
        self.exact = True

    def read(self) -> list[str]:
        while self._at < len(self._text):
            self._piece(self._text[self._at])
        if len(self._open) > 1:
            raise ValueError("a ) is missing")
        return self._open[0].pieces

    def _piece(self, c: str) -> None:
        if c == "(":
            self._begin()
        elif c == ")":
            self._end()
        elif c == "|":
            self._add("|", bar=True)
            self._at += 1
        elif c in "*+?":
            self._repeat(c, 1)
        elif c == "{" and (found := _REPEAT.match(self._text, self._at)):
            self._repeat(found[0], _count(found))
        elif c == "[":
            self._class()
        elif c == "\\":
            self._escape()
        else:
            self._plain(c)

    def _plain(self, c: str) -> None:
        self._at += 1
        multiline, any_character = "m" in self._flags, "s" in self._flags
        special = {
            "^": "(?m:^)" if multiline else r"\A",
            "$": "(?m:$)" if multiline else r"\Z",
            ".": "(?s:.)" if any_character else r"[^\n]",
        }
        self._add(special[c] if c in special else self._folded(re.escape(c)))

    def _add(self, piece: str, *, repeats: int = 1, bar: bool = False) -> None:
        group = self._open[-1]
        group.pieces.append(piece)
        group.repeats.append(repeats)
        group.bar, group.repeated = bar, False
        group.most = max(group.most, repeats)

    def _folded(self, piece: str) -> str:
        return f"(?i:{piece})" if "i" in self._flags else piece

    # ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self) -> None:
        after, flags = self._flags, self._flags
        if named := _NAMED.match(self._text, self._at):
            if not re.fullmatch("[0-9A-Za-z_]+", named[1]):
                raise ValueError(f"{named[1]!r} is not a name for a group")
            self._at = named.end()
        elif self._text.startswith("(?", self._at):
            found = _FLAGS.match(self._text, self._at)
            if found is None:
                raise ValueError(f"{self._text[self._at : self._at + 4]!r} is not an operator of RE2")
            self._at = found.end()
            flags = (flags | set(found[1])) - set(found[2] or "")
            if found[3] == ")":  # for the rest of the enclosing group
                self._flags = flags
                return
        else:
            self._at += 1
        self._flags = flags
        self._open.append(_Group(after))
        if len(self._open) > _MOST:
            raise ValueError("groups are nested too deeply")

    def _end(self) -> None:
        if len(self._open) == 1:
            raise ValueError("a ( is missing")
        group = self._open.pop()
        self._at += 1
        self._flags = group.flags
        self._add(f"(?:{''.join(group.pieces)})", repeats=group.most)

    # ── operators ────────────────────────────────────────────────────────────────────────────────────────────────

    def _repeat(self, operator: str, times: int) -> None:
        group = self._open[-1]
        if group.bar:
            raise ValueError(f"there is nothing for {operator} to repeat")
        if group.repeated:
            raise ValueError(f"{operator} follows another operator")
        repeats = group.repeats.pop() * times
        if repeats > _MOST:
            raise ValueError(f"{operator}: at most {_MOST} repetitions are allowed")
        piece = group.pieces.pop()
        self._add(f"(?:{piece}){operator}", repeats=repeats)
        self._open[-1].repeated = True
        self._at += len(operator)
        if self._text.startswith("?", self._at):
            self._at += 1

    # ── characters ───────────────────────────────────────────────────────────────────────────────────────────────

    def _escape(self) -> None:
        rest = self._text[self._at + 1 : self._at + 2]
        anchors = {"A": r"\A", "z": r"\Z", "b": r"(?a:\b)", "B": r"(?a:\B)"}
        if rest in anchors:
            self._at += 2
            self._add(anchors[rest])
        elif rest == "Q":
            quoted, end, _ = self._text[self._at + 2 :].partition(r"\E")
            if not end:  # RE2 accepts it, but engines put the expression into a group, whose end it would quote
                raise ValueError(r"the \E of \Q is missing")
            self._at += 2 + len(quoted) + 2
            for c in quoted:
                self._add(self._folded(re.escape(c)))
        elif (members := self._shared()) is not None:
            inside, negated = members
            self._add(self._folded(f"[{'^' if negated else ''}{inside}]"))
        else:
            self._add(self._folded(re.escape(self._character())))

    def _shared(self) -> tuple[str, bool] | None:
        """A class, inside or outside of brackets: \\d, \\PL. Its members, and whether it is negated."""
        rest = self._text[self._at + 1 : self._at + 2]
        if rest.lower() in _PERL:
            self._at += 2
            return _PERL[rest.lower()], rest.isupper()
        if rest in {"p", "P"}:
            found = _UNICODE.match(self._text, self._at + 1)
            if found is None:
                raise ValueError(f"\\{rest} must name a class of Unicode")
            self._at = found.end()
            self.exact = False
            return _SOME_UNICODE, False
        return None

    def _character(self) -> str:
        """The character that an escape means."""
        at = self._at + 1
        c = self._text[at : at + 1]
        if found := _OCTAL.match(self._text, at):
            code = int(found[0], 8)
        elif found := _HEX.match(self._text, at):
            code = int(found[1] or found[2], 16)
        elif c in _CONTROL or (c.isascii() and c and not c.isalnum()):
            self._at = at + 1
            return _CONTROL.get(c, c)
        else:
            raise ValueError(f"\\{c} is not an escape of RE2" if c else "it ends with a \\")
        if code > 0x10FFFF:
            raise ValueError(f"\\{found[0]} is not a character")
        self._at = found.end()
        return chr(code)

    def _class(self) -> None:
        start = self._at
        self._at += 1
        negated = self._text.startswith("^", self._at)
        self._at += negated
        members: list[str] = []
        others: list[str] = []
        first = True
        while first or not self._text.startswith("]", self._at):
            first = False
            member, all_but = self._member(start)
            (others if all_but else members).append(member)
        self._at += 1
        self._add(self._folded(_one_of(members, others, negated=negated)))

    def _member(self, start: int) -> tuple[str, bool]:
        """One range or class in brackets, and whether it is negated."""
        if self._text.startswith("[:", self._at) and (end := self._text.find(":]", self._at + 2)) >= 0:
            name = self._text[self._at + 2 : end]
            negated, name = name.startswith("^"), name.removeprefix("^")
            if name not in _POSIX:
                raise ValueError(f"[:{name}:] is not a class")
            self._at = end + 2
            return _POSIX[name], negated
        if self._text.startswith("\\", self._at) and (found := self._shared()):
            return found
        low = high = self._one(start)
        if self._text.startswith("-", self._at) and self._text[self._at + 1 : self._at + 2] not in {"]", ""}:
            self._at += 1
            high = self._one(start)
        if high < low:
            raise ValueError(f"the range {low}-{high} has its ends swapped")
        return f"{re.escape(low)}-{re.escape(high)}", False

    def _one(self, start: int) -> str:
        if self._at >= len(self._text):
            _unclosed(self._text[start:])
        if self._text[self._at] == "\\":
            return self._character()
        self._at += 1
        return self._text[self._at - 1]


def _unclosed(text: str) -> NoReturn:
    raise ValueError(f"the ] of {text[:20]!r} is missing")


def _count(found: re.Match[str]) -> int:
    low = int(found[1])
    high = int(found[2]) if found[2] else low
    if max(low, high) > _MOST or high < low:
        raise ValueError(f"{found[0]}: at most {_MOST} repetitions are allowed, the smaller number first")
    return max(1, high)


def _one_of(members: list[str], others: list[str], *, negated: bool) -> str:
    """A character that is in `members` or outside one of `others`; if `negated`, any other character."""
    either = [f"[{''.join(members)}]"] if members else []
    either += [f"[^{other}]" for other in others]
    joined = "|".join(either)
    return f"(?!{joined})(?s:.)" if negated else f"(?:{joined})"
