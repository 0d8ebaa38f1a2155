"""A page of very many series, most of which did not change since it was last asked for.

The page is cut into shards (a node, a namespace); a shard into things (a device, a container). What a thing shows is
kept as bytes together with the values it was made from, so a change costs the lines of the thing that changed, and a
scrape costs joining what is there. Compressed, each name of each shard is a gzip member of its own: members may be
concatenated, so only what changed is compressed again.
"""

import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import groupby
from typing import Any

from vgpuscope.catalog.metric import Exposed, Metric
from vgpuscope.views import textline
from vgpuscope.views.exposition import Sample

_LEVEL = 1  # most of the gain, a fifth of the time
_WINDOW = 31  # zlib's word for: with the header and trailer of a gzip member
_MEMORY = 7  # of zlib's 9: members are small, and it sets up its tables for each


class _Thing:
    """What one row shows: the values and, for each name, the lines made from them."""

    __slots__ = ("lines", "values")

    def __init__(self, values: tuple[Any, ...], lines: dict[int, bytes]) -> None:
        self.values = values
        self.lines = lines


class _Shard:
    """One shard: its things, and for each name the lines of all of them, plain and compressed."""

    __slots__ = ("blocks", "packed", "series", "things")

    def __init__(self) -> None:
        self.things: dict[tuple[str, ...], _Thing] = {}
        self.blocks: dict[int, bytes] = {}
        self.packed: dict[int, bytes] = {}
        self.series = 0


class ShardedPage:
    """The page of a process that watches many things. One writer; a scrape sees a page that was whole at some time."""

    def __init__(self, metrics: Iterable[Metric], families: Iterable[str]) -> None:
        on = frozenset(families)
        self._names: dict[str, tuple[int, Exposed]] = {}
        self._plans: dict[str, tuple[tuple[int, Exposed], ...]] = {}
        for metric in metrics:
            self._plans[metric.name] = tuple((self._number(e), e) for e in metric.exposed(on))
        self._shards: dict[Hashable, _Shard] = {}
        self._heads = {
            False: self._make_heads(textline.text_head),
            True: self._make_heads(textline.openmetrics_head),
        }

    @property
    def series(self) -> int:
        """How many samples are on the page."""
        return sum(shard.series for shard in self._shards.values())

    def update(self, key: Hashable, samples: Iterable[Sample]) -> None:
        """Let a shard show these samples and no others. Those of one row must come together."""
        shard = self._shards.setdefault(key, _Shard())
        before, after = shard.things, dict[tuple[str, ...], _Thing]()
        for row, group in groupby(samples, key=_row_of):
            values = tuple((s.metric.name, s.value, s.extra) for s in group if s.value is not None)
            known = before.get(row)
            after[row] = known if known is not None and known.values == values else self._thing(row, values)
        if after.keys() == before.keys() and all(after[row] is before[row] for row in after):
            return
        shard.things = after
        self._join(shard)

    def drop(self, key: Hashable) -> None:
        """Forget a shard."""
        self._shards.pop(key, None)

    def text(self) -> bytes:
        """The page in text format 0.0.4."""
        return b"".join(self._pieces(openmetrics=False))

    def openmetrics(self) -> bytes:
        """The page in OpenMetrics 1.0."""
        return b"".join([*self._pieces(openmetrics=True), b"# EOF\n"])

    def gzipped(self, openmetrics: bool) -> bytes:
        """Either form, as concatenated gzip members."""
        shards = list(self._shards.values())
        pieces: list[bytes] = []
        for number, plain in enumerate(self._heads[openmetrics]):
            members = [_packed(shard, number) for shard in shards if number in shard.blocks]
            if members:
                pieces += (_pack(plain), *members)
        pieces.append(_pack(b"# EOF\n" if openmetrics else b""))
        return b"".join(pieces)

    def _pieces(self, *, openmetrics: bool) -> Iterator[bytes]:
        shards = list(self._shards.values())
        for number, plain in enumerate(self._heads[openmetrics]):
            blocks = [block for shard in shards if (block := shard.blocks.get(number))]
            if blocks:
                yield plain
                yield from blocks

    def _number(self, exposed: Exposed) -> int:
        """Samples of one name stand together, whichever metric they come from."""
        return self._names.setdefault(exposed.name, (len(self._names), exposed))[0]

    def _make_heads(self, make: Callable[[Exposed], str]) -> list[bytes]:
        return [f"{make(exposed)}\n".encode() for _, exposed in self._names.values()]

    def _thing(self, row: tuple[str, ...], values: tuple[Any, ...]) -> _Thing:
        made: dict[int, bytes] = {}
        for name, value, extra in values:
            for number, exposed in self._plans[name]:
                if textline.applies(exposed, row):
                    made[number] = made.get(number, b"") + textline.lines(exposed, row, extra, value).encode()
        return _Thing(values, made)

    def _join(self, shard: _Shard) -> None:
        """Put the things' lines together, and throw away compressed what is not the same any more."""
        parts: dict[int, list[bytes]] = {}
        for thing in shard.things.values():
            for number, text in thing.lines.items():
                parts.setdefault(number, []).append(text)
        blocks = {number: b"".join(texts) for number, texts in parts.items()}
        shard.packed = {n: p for n, p in shard.packed.items() if blocks.get(n) == shard.blocks.get(n)}
        shard.blocks = blocks
        shard.series = sum(block.count(b"\n") for block in blocks.values())


def _row_of(sample: Sample) -> tuple[str, ...]:
    return sample.row


def _packed(shard: _Shard, number: int) -> bytes:
    member = shard.packed.get(number)
    if member is None:
        member = shard.packed[number] = _pack(shard.blocks[number])
    return member


def _pack(data: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY)
    return packer.compress(data) + packer.flush()
