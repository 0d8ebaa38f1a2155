"""What a stranger may send in place of a recorded document: each prefix, each single-byte change, random changes.

Without ATTACK_SECONDS a fixed number of them is tried: all prefixes of a short document, and each byte changed at least
once. With it, other bytes at each place for half of that time, and random changes of several bytes for the rest. A
failure shows the bytes and the seed; ATTACK_SEED repeats a run.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from math import gcd

SECONDS = float(os.environ.get("ATTACK_SECONDS") or 0)
_USUAL = 1500  # examples of each kind, if no time is given
_BYTES = b"\x00\xff\n\r\t \"'{}[](),:;=\\/_-+.eE0189aGNnx%\x80\xc3"  # those with a meaning in some format
_MOST_CHANGES = 8


def survives(
    parse: Callable[[bytes], object], data: bytes, *refusals: type[Exception], cases: int = 1, thin: int = 1
) -> int:
    """Nothing but `refusals` is raised, whatever `data` was changed to; returns how many examples were parsed.

    `cases`: how many calls share ATTACK_SECONDS. `thin`: without that time, only each so manyth byte is changed.
    """
    refused = parsed = 0
    for example, how in _attacks(data, SECONDS / cases, thin):
        try:
            parse(example)
            parsed += 1
        except refusals:
            refused += 1
        except Exception as e:
            raise AssertionError(f"{e!r} after {how}: {_shown(example)}") from e
    assert parsed + refused
    return parsed


def _attacks(data: bytes, seconds: float, thin: int) -> Iterator[tuple[bytes, str]]:
    if seconds > 0:
        yield from _for(seconds, data)
        return
    for end in range(0, len(data) + 1, thin * max(1, len(data) // _USUAL)):
        yield _cut(data, end)
    for at in range(0, len(data), thin):
        for number in range(max(1, min(255, _USUAL // len(data)))):
            byte = (at * 7 + number) % 256 if number % 2 else _BYTES[(at + number) % len(_BYTES)]
            yield _one_byte(data, at, byte)


def _for(seconds: float, data: bytes) -> Iterator[tuple[bytes, str]]:
    """Each cut; each other byte at each place, in a scattered order, for half of the time; then random changes."""
    begun = time.monotonic()
    for end in range(len(data) + 1):
        yield _cut(data, end)
    number = 255 * len(data)
    stride = next(step for step in range(number * 5 // 8, 2 * number + 2) if gcd(step, number) == 1) if number else 1
    for turn in range(number):
        if time.monotonic() > begun + seconds / 2:
            break
        at, other = divmod(turn * stride % number, 255)
        yield _one_byte(data, at, other + (other >= data[at]))
    yield from _several_bytes(data, begun + seconds)


def _cut(data: bytes, end: int) -> tuple[bytes, str]:
    return data[:end], f"a cut at byte {end}"


def _one_byte(data: bytes, at: int, byte: int) -> tuple[bytes, str]:
    return data[:at] + bytes((byte,)) + data[at + 1 :], f"byte {at} set to {byte}"


def _several_bytes(data: bytes, until: float) -> Iterator[tuple[bytes, str]]:
    seed = int(os.environ.get("ATTACK_SEED") or random.SystemRandom().randrange(2**32))
    chance = random.Random(seed)
    while time.monotonic() < until:
        changed = bytearray(data)
        for _ in range(chance.randint(1, _MOST_CHANGES)):
            _change(changed, chance)
        yield bytes(changed), f"random changes with ATTACK_SEED={seed}"


def _change(data: bytearray, chance: random.Random) -> None:
    """Set, delete, insert or repeat some bytes."""
    at, size = chance.randint(0, len(data)), chance.choice((1, 1, 2, 3, 8, 64))
    match chance.randrange(4):
        case 0:
            data[at : at + size] = chance.randbytes(size)
        case 1:
            del data[at : at + size]
        case 2:
            data[at:at] = bytes(chance.choices(_BYTES, k=size))
        case _:
            data[at:at] = data[at : at + size] * chance.choice((1, 2, 50))


def _shown(example: bytes) -> str:
    return repr(example) if len(example) < 4000 else f"{example[:4000]!r}… ({len(example)} bytes)"
