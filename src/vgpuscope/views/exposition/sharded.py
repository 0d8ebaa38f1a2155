"""A page of very many series, most of which have not changed since the last scrape.

The page is divided into shards (a node, a namespace), and a shard into things (a device, a container). A name is a
column. In a column, each shard has one block of bytes: the lines of all its things. An update rewrites only the lines
whose values changed, and puts them into their blocks. A scrape only concatenates blocks, and reads none of them.

When compressed, each block is a gzip member of its own. Members may be concatenated, so only changed blocks are
compressed again. Blocks of a line or two would grow by that, so they share a member with the name's head; it is made
for each scrape.

Lines are kept only in the blocks, because text takes most of the memory of a large cluster. The position of a line
shows which thing it belongs to: a block has the lines of its things in order, and a thing's shape gives their number.
"""

import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import groupby, islice
from operator import attrgetter

from vgpuscope.catalog.metric import ExposedName, Metric
from vgpuscope.views.exposition import textline
from vgpuscope.views.exposition.page import Sample

Row = tuple[str, ...]
Lines = dict[int, list[bytes]]  # the number of a name → its lines, without line breaks

_LEVEL = 1  # most of the gain, a fifth of the time
_WINDOW = 29  # zlib's value for an 8 kB window with the header and trailer of a gzip member
_MEMORY = 6  # of zlib's 9: members are small, and zlib sets up its tables for each
_SMALL = 200  # bytes: a smaller block gets no member of its own
_CHUNK = 256 * 1024  # bytes of text per chunk: a few milliseconds if all of it must be compressed
_ROW = attrgetter("row")


class _Shape:
    """The number of lines of a thing under each name. Nearly all things have one of a few shapes, and share it."""

    __slots__ = ("counts", "single")

    def __init__(self, counts: dict[int, int]) -> None:
        self.counts = counts
        self.single = all(count == 1 for count in counts.values())


class _Thing:
    """The samples of one row."""

    __slots__ = ("samples", "shape")

    def __init__(self, samples: list[Sample], shape: _Shape) -> None:
        self.samples = samples
        self.shape = shape


class _Shard:
    """One shard: its things, and the number of all their lines."""

    __slots__ = ("series", "things")

    def __init__(self) -> None:
        self.things: dict[Row, _Thing] = {}
        self.series = 0


class _Column:
    """Everything under one name: the block of each shard, plain and (once requested) compressed."""

    __slots__ = ("blocks", "packed", "short", "size")

    def __init__(self) -> None:
        self.short: dict[_Shard, bytes] = {}  # blocks too small for a member of their own
        self.blocks: dict[_Shard, bytes] = {}  # the others
        self.packed: dict[_Shard, bytes] = {}  # the current gzip members of `blocks`
        self.size = 0  # bytes of all blocks

    def lines(self, shard: _Shard) -> list[bytes]:
        """The lines of a shard, and the empty rest after the last line break."""
        return self.get(shard).split(b"\n")

    def get(self, shard: _Shard) -> bytes:
        """The block of a shard; empty if it has none."""
        return self.blocks.get(shard) or self.short.get(shard, b"")

    def put(self, shard: _Shard, lines: list[bytes]) -> None:
        """Set the lines of a shard, with an empty rest; an unchanged block stays compressed."""
        block, before = b"\n".join(lines), self.get(shard)
        if block == before:
            return
        self.size += len(block) - len(before)
        self.packed.pop(shard, None)
        into, other = (self.short, self.blocks) if len(block) < _SMALL else (self.blocks, self.short)
        other.pop(shard, None)
        into[shard] = block

    def drop(self, shard: _Shard) -> None:
        """Remove the lines of a shard."""
        self.size -= len(self.blocks.pop(shard, b"")) + len(self.short.pop(shard, b""))
        self.packed.pop(shard, None)


class ShardedPage:
    """The page of a process that watches many things. One writer; a scrape sees a page that was once complete."""

    def __init__(self, metrics: Iterable[Metric], families: Iterable[str]) -> None:
        on = frozenset(families)
        self._names: dict[str, tuple[int, ExposedName]] = {}
        self._plans: dict[str, tuple[tuple[int, ExposedName], ...]] = {}
        for metric in metrics:
            self._plans[metric.name] = tuple((self._number(e), e) for e in metric.exposed(on))
        self._columns = [_Column() for _ in self._names]
        self._shards: dict[Hashable, _Shard] = {}
        self.series = 0  # samples on the page
        self._shapes: dict[tuple[tuple[int, int], ...], _Shape] = {}
        self._heads = {
            False: self._make_heads(textline.text_head),
            True: self._make_heads(textline.openmetrics_head),
        }

    def __contains__(self, key: Hashable) -> bool:
        return key in self._shards

    def update(self, key: Hashable, samples: Iterable[Sample]) -> None:
        """Replace the samples of a shard. The samples of one row must come together."""
        self.update_rows(key, {row: list(group) for row, group in groupby(samples, key=_ROW)})

    def update_rows(self, key: Hashable, now: dict[Row, list[Sample]]) -> None:
        """Replace the samples of a shard, given by row; a list object that was given before costs nothing."""
        shard = self._shards.setdefault(key, _Shard())
        changed = [
            row
            for row, found in now.items()
            if (t := shard.things.get(row)) is None or (t.samples is not found and t.samples != found)
        ]
        if not changed and len(now) == len(shard.things):
            return
        if list(now) == list(shard.things) and all(_alike(shard.things[row].samples, now[row]) for row in changed):
            self._amend(shard, {row: now[row] for row in changed})
        else:
            self._rebuild(shard, now)

    def drop(self, key: Hashable) -> None:
        """Forget a shard."""
        shard = self._shards.pop(key, None)
        if shard:
            self.series -= shard.series
            for column in self._columns:
                column.drop(shard)

    def text(self) -> bytes:
        """The page in text format 0.0.4."""
        return b"".join(self.chunks(openmetrics=False, gzipped=False)[1])

    def openmetrics(self) -> bytes:
        """The page in OpenMetrics 1.0."""
        return b"".join(self.chunks(openmetrics=True, gzipped=False)[1])

    def gzipped(self, openmetrics: bool) -> bytes:
        """Either form, as concatenated gzip members."""
        return b"".join(self.chunks(openmetrics=openmetrics, gzipped=True)[1])

    def chunks(self, *, openmetrics: bool, gzipped: bool) -> tuple[int | None, Iterator[bytes]]:
        """The page of this moment in chunks that each take little time to make, and its size if that is known.

        If the page changes between two chunks, the remaining chunks are still those of this moment.
        """
        end = b"# EOF\n" if openmetrics else b""
        if gzipped:
            return None, _packed_chunks(self._members(openmetrics=openmetrics), end)
        pieces = [*self._pieces(openmetrics=openmetrics), ([end], len(end))]
        return sum(size for _, size in pieces), _plain_chunks(pieces)

    def _pieces(self, *, openmetrics: bool) -> list[tuple[list[bytes], int]]:
        """The head and blocks of each name, and their size; looking at each block would mean waiting for memory."""
        return [
            ([head, *column.short.values(), *column.blocks.values()], len(head) + column.size)
            for head, column in zip(self._heads[openmetrics], self._columns, strict=True)
            if column.size
        ]

    def _members(self, *, openmetrics: bool) -> "list[bytes | _Unpacked]":
        """The existing members, and the text for the missing ones; decompressed they are the same page."""
        members: list[bytes | _Unpacked] = []
        for head, column in zip(self._heads[openmetrics], self._columns, strict=True):
            if column.size:
                packed = column.packed
                members.append(_Unpacked(b"".join([head, *column.short.values()])))
                members += [
                    packed.get(shard) or _Unpacked(block, column, shard) for shard, block in column.blocks.items()
                ]
        return members

    def _number(self, exposed: ExposedName) -> int:
        """The number of a name: samples of one name are placed together, even from different metrics."""
        return self._names.setdefault(exposed.name, (len(self._names), exposed))[0]

    def _make_heads(self, make: Callable[[ExposedName], str]) -> list[bytes]:
        return [f"{make(exposed)}\n".encode() for _, exposed in self._names.values()]

    def _amend(self, shard: _Shard, changed: dict[Row, list[Sample]]) -> None:
        """Rewrite the lines whose samples changed, if every line keeps its position."""
        opened: Lines = {}
        ahead: dict[_Shape, int] = {}  # the number of things of each shape before this one
        for row, thing in shard.things.items():
            if row in changed:
                for number, exposed, at, old, new in self._differing(row, thing, changed[row]):
                    lines = opened.get(number)
                    if lines is None:
                        lines = opened[number] = self._columns[number].lines(shard)
                    place = at
                    for shape, times in ahead.items():
                        place += times * shape.counts.get(number, 0)
                    lines[place] = _again(lines[place], exposed, old, new)
                thing.samples = changed[row]
            ahead[thing.shape] = ahead.get(thing.shape, 0) + 1
        for number, lines in opened.items():
            self._columns[number].put(shard, lines)

    def _differing(
        self, row: Row, thing: _Thing, after: list[Sample]
    ) -> Iterator[tuple[int, ExposedName, int, Sample, Sample]]:
        """Each changed line of a thing: its name, and its position among the thing's lines of that name."""
        seen: dict[int, int] = {}
        for old, new in zip(thing.samples, after, strict=True):
            same = old == new
            if new.value is None or (same and thing.shape.single):  # one line per name: positions need no counting
                continue
            for number, exposed in self._plans[new.metric.name]:
                if textline.applies(exposed, row):
                    at = seen.get(number, 0)
                    seen[number] = at + 1
                    if not same:
                        yield number, exposed, at, old, new

    def _rebuild(self, shard: _Shard, now: dict[Row, list[Sample]]) -> None:
        """Build the blocks from the lines of unchanged things and of new ones."""
        kept = self._kept(shard, {row for row, t in shard.things.items() if now.get(row) == t.samples})
        things: dict[Row, _Thing] = {}
        blocks: Lines = {}
        for row, samples in now.items():
            lines = kept.get(row)
            if lines is None:
                lines = self._lines(row, samples)
                things[row] = _Thing(samples, self._shape(lines))
            else:
                things[row] = shard.things[row]
            for number, found in lines.items():
                blocks.setdefault(number, []).extend(found)
        shard.things = things
        for number, column in enumerate(self._columns):
            if number in blocks:
                column.put(shard, [*blocks[number], b""])
            else:
                column.drop(shard)
        before, shard.series = shard.series, sum(map(len, blocks.values()))
        self.series += shard.series - before

    def _kept(self, shard: _Shard, rows: set[Row]) -> dict[Row, Lines]:
        """The lines of these things, taken from the blocks."""
        blocks = [iter(column.lines(shard)) for column in self._columns]
        taken = {
            row: {number: list(islice(blocks[number], count)) for number, count in thing.shape.counts.items()}
            for row, thing in shard.things.items()
        }
        return {row: lines for row, lines in taken.items() if row in rows}

    def _lines(self, row: Row, samples: list[Sample]) -> Lines:
        made: Lines = {}
        for sample in samples:
            if sample.value is None:
                continue
            for number, exposed in self._plans[sample.metric.name]:
                if textline.applies(exposed, row):
                    text = textline.lines(exposed, row, sample.extra, sample.value).encode()
                    made.setdefault(number, []).extend(text.split(b"\n")[:-1])
        return made

    def _shape(self, lines: Lines) -> _Shape:
        counts = tuple((number, len(found)) for number, found in lines.items())
        return self._shapes.setdefault(counts, _Shape(dict(counts)))


def _alike(old: list[Sample], new: list[Sample]) -> bool:
    """Whether both have the same number of lines under the same names."""
    return len(old) == len(new) and all(
        one.metric is other.metric
        and (one.value is None) == (other.value is None)
        and (one == other or one.metric.type != "histogram")
        for one, other in zip(old, new, strict=True)
    )


def _again(line: bytes, exposed: ExposedName, old: Sample, new: Sample) -> bytes:
    """The line of a changed sample: in most cases only the value, the last word, differs."""
    assert isinstance(new.value, int | float)
    if old.extra != new.extra:
        return textline.lines(exposed, new.row, new.extra, new.value).encode()[:-1]
    return b"%b %r" % (line[: line.rindex(b" ")], textline.scaled(new.value, exposed.scale))


class _Unpacked:
    """Text that is not compressed yet: a shard's block in a column, or text that is put together for one scrape."""

    __slots__ = ("column", "shard", "text")

    def __init__(self, text: bytes, column: _Column | None = None, shard: _Shard | None = None) -> None:
        self.text, self.column, self.shard = text, column, shard

    def pack(self) -> bytes:
        """Compress the text; a block's member is kept as long as the block is current."""
        member = _pack(self.text)
        if self.column and self.shard and self.column.blocks.get(self.shard) is self.text:
            self.column.packed[self.shard] = member
        return member


def _plain_chunks(columns: list[tuple[list[bytes], int]]) -> Iterator[bytes]:
    """Chunks of about the same size; each column is divided by the average size of its pieces."""
    pieces: list[bytes] = []
    size = 0
    for more, its_size in columns:
        pieces += more
        size += its_size
        if size >= _CHUNK:
            step = -(-len(pieces) * _CHUNK // size)
            for at in range(0, len(pieces), step):
                yield b"".join(pieces[at : at + step])
            pieces, size = [], 0
    yield b"".join(pieces)


def _packed_chunks(members: "list[bytes | _Unpacked]", end: bytes) -> Iterator[bytes]:
    chunk: list[bytes] = []
    size = 0
    for member in members:
        if isinstance(member, _Unpacked):
            size += len(member.text)
            chunk.append(member.pack())
        else:
            size += len(member)
            chunk.append(member)
        if size > _CHUNK:
            yield b"".join(chunk)
            chunk, size = [], 0
    yield b"".join([*chunk, _pack(end)])


def _pack(data: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY)
    return packer.compress(data) + packer.flush()
