"""What a stranger may send in place of a recorded document: each prefix, each single-byte change, random changes.

Without ATTACK_SECONDS a fixed number of them is tried. With it, all of them, and then random changes of several bytes
for as long as it says. A failure shows the bytes and the seed; ATTACK_SEED repeats a run.
"""

import os
import random
import time
from collections.abc import Callable, Iterator

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
    every = seconds > 0
    ends = range(len(data) + 1)
    for end in ends if every else ends[:: thin * max(1, len(data) // _USUAL)]:
        yield data[:end], f"a cut at byte {end}"
    if every:
        yield from _one_byte(data, 255, 1)
    else:
        yield from _one_byte(data, max(1, min(255, _USUAL // max(1, len(data)))), thin)
    if every:
        yield from _several_bytes(data, seconds)


def _one_byte(data: bytes, each: int, step: int) -> Iterator[tuple[bytes, str]]:
    """Every place with `each` other bytes; if few, another part of all bytes at each place."""
    for at in range(0, len(data), step):
        for number in range(each):
            byte = (at * 7 + number) % 256 if number % 2 else _BYTES[(at + number) % len(_BYTES)]
            if each == 255:
                byte = number + (number >= data[at])
            yield data[:at] + bytes((byte,)) + data[at + 1 :], f"byte {at} set to {byte}"


def _several_bytes(data: bytes, seconds: float) -> Iterator[tuple[bytes, str]]:
    seed = int(os.environ.get("ATTACK_SEED") or random.SystemRandom().randrange(2**32))
    chance, until = random.Random(seed), time.monotonic() + seconds
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
