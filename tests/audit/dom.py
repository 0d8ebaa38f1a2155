"""Reads the numbers of a page of the console by its attributes (docs/console-api.md), and knows no code of the console.

A shown number is rounded, so it comes with how far the number behind it can be away.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

_READ = """() => {
  const key = (one) => one.closest('[data-key]')?.getAttribute('data-key') ?? null;
  const shown = (one) => one.getClientRects().length > 0;
  const text = (one) => (one.innerText ?? one.textContent).trim();
  const numbers = [...document.querySelectorAll('[data-figure]')]
    .filter((one) => !one.matches('th, figure, [data-series]') && !one.querySelector('[data-figure]') && shown(one))
    .map((one) => ({
      figure: one.getAttribute('data-figure'),
      key: key(one),
      keys: [...ancestors(one)].map((up) => up.getAttribute('data-key')).filter((found) => found !== null),
      table: one.closest('[data-table]')?.getAttribute('data-table') ?? null,
      row: one.closest('tr[data-key]')?.getAttribute('data-key') ?? null,
      value: one.getAttribute('data-value'),
      text: text(one),
      beside: one.closest('section, .panel')?.querySelector('[data-table]')?.getAttribute('data-rows') ?? null,
      where: one.closest('section, .panel, table, header')?.querySelector('h1, h2, h3, caption, .figure-title')
        ?.textContent?.trim() ?? '',
    }));
  function* ancestors(one) { for (let up = one; up; up = up.parentElement) yield up; }
  const main = document.querySelector('main');
  return {
    page: main?.getAttribute('data-page') ?? null,
    subject: main?.getAttribute('data-subject') ?? null,
    numbers,
    tables: [...document.querySelectorAll('[data-table]')].map((one) => ({
      name: one.getAttribute('data-table'),
      rows: Number(one.getAttribute('data-rows')),
      drawn: [...one.querySelectorAll('tbody tr[data-key]')].map((row) => row.getAttribute('data-key')),
    })),
    charts: [...document.querySelectorAll('figure[data-chart]')].map((one) => ({
      name: one.getAttribute('data-chart'),
      times: one.getAttribute('data-times'),
      step: Number(one.getAttribute('data-step')),
      stacked: one.hasAttribute('data-stacked'),
      series: [...one.querySelectorAll('[data-series]')].map((line) => ({
        key: line.getAttribute('data-series'),
        figure: line.getAttribute('data-figure'),
        values: line.getAttribute('data-values'),
        at: line.getAttribute('data-at'),
        text: line.querySelector('b') ? text(line.querySelector('b')) : '',
      })),
    })),
    nameless: [...document.querySelectorAll('main td.num, main .figure-value, main .count')]
      .filter((one) => shown(one) && /[0-9]/.test(text(one)) && !one.closest('[data-figure], [data-names]')
        && !one.querySelector('[data-figure]') && !named(one))
      .map((one) => `${one.tagName.toLowerCase()}.${one.className}: ${text(one).slice(0, 60)}`),
  };
  function named(one) {
    const cell = one.closest('td');
    const head = cell && one.closest('table')?.querySelectorAll('thead th')[cell.cellIndex];
    return Boolean(head?.hasAttribute('data-names'));
  }
}"""


@dataclass(frozen=True)
class Shown:
    """A number as it is shown: between `value - margin` and `value + margin`; None: not known."""

    figure: str
    keys: tuple[str, ...]  # of what, the nearest first
    table: str | None
    row: str | None
    text: str
    value: float | None
    margin: float
    where: str
    beside: int | None  # rows of the table in the same panel

    def shows(self, value: float | None, *, unit: str = "", slack: float = 0.0) -> bool:
        """Whether it is this number, in the unit of its definition."""
        if value is None or self.value is None:
            return value is self.value
        scale = 1.0
        if unit == "percent" and "%" in self.text:
            scale = 100.0
        elif unit == "gpu_hours" and re.search(r"h|小时|时", self.text):
            scale = 1 / 3600
        return abs(self.value * scale - value) <= self.margin * scale + slack + 1e-9 * abs(value)

    def __str__(self) -> str:
        of = f" of {self.keys[0]}" if self.keys else ""
        return f"{self.figure}{of} is shown as {self.text!r} ({self.where or 'no heading'})"


@dataclass(frozen=True)
class Line:
    key: str
    figure: str
    values: tuple[float | None, ...]
    at: float | None
    text: str


@dataclass(frozen=True)
class Chart:
    name: str
    times: tuple[float, ...]
    step: float
    stacked: bool
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Page:
    page: str
    subject: str
    numbers: tuple[Shown, ...]
    tables: dict[str, tuple[int, tuple[str, ...]]]  # rows, and the keys of those that are drawn
    charts: tuple[Chart, ...]
    nameless: tuple[str, ...]  # numbers without a code
    unread: tuple[str, ...]  # numbers whose text could not be read


async def read(page: Any) -> Page:
    """What a page of Playwright shows now."""
    found = await page.evaluate(_READ)
    numbers, unread = [], []
    for one in found["numbers"]:
        try:
            value, margin = (float(one["value"]), 0.0) if one["value"] is not None else parsed(one["text"])
        except ValueError as e:
            unread.append(f"{one['figure']} ({one['where']}): {e}")
            continue
        keys = tuple(dict.fromkeys(one["keys"]))
        numbers.append(
            Shown(
                one["figure"],
                keys,
                one["table"],
                one["row"],
                one["text"],
                value,
                margin,
                one["where"],
                int(one["beside"]) if one["beside"] else None,
            )
        )
    return Page(
        page=found["page"] or "",
        subject=found["subject"] or "",
        numbers=tuple(numbers),
        tables={one["name"]: (one["rows"], tuple(one["drawn"])) for one in found["tables"]},
        charts=tuple(_chart(one) for one in found["charts"]),
        nameless=tuple(found["nameless"]),
        unread=tuple(unread),
    )


def _chart(found: dict[str, Any]) -> Chart:
    return Chart(
        name=found["name"],
        times=tuple(json.loads(found["times"] or "[]")),
        step=found["step"],
        stacked=found["stacked"],
        lines=tuple(
            Line(
                key=one["key"],
                figure=one["figure"],
                values=tuple(json.loads(one["values"] or "[]")),
                at=float(one["at"]) if one["at"] else None,
                text=one["text"],
            )
            for one in found["series"]
        ),
    )


_KIB = 1024.0
UNITS: dict[str, float] = {
    "": 1.0, "%": 0.01, "°C": 1.0, "W": 1.0, "kW": 1e3, "MW": 1e6,
    "B": 1.0, "KiB": _KIB, "MiB": _KIB**2, "GiB": _KIB**3, "TiB": _KIB**4, "PiB": _KIB**5,
    "B/s": 1.0, "KiB/s": _KIB, "MiB/s": _KIB**2, "GiB/s": _KIB**3,
    "Wh": 3600.0, "kWh": 3.6e6, "MWh": 3.6e9, "J": 1.0,
    "h": 3600.0, "min": 60.0, "s": 1.0, "d": 86400.0, "ms": 1e-3,
    "小时": 3600.0, "时": 3600.0, "分": 60.0, "分钟": 60.0, "秒": 1.0, "天": 86400.0,
    "GPU-h": 1.0, "GPU h": 1.0, "GPU·h": 1.0, "GPU 小时": 1.0, "GPU·小时": 1.0, "MHz": 1e6, "GHz": 1e9,
}  # fmt: skip
_DURATION = {"h", "min", "s", "d", "小时", "时", "分", "分钟", "秒", "天"}
_PART = re.compile(r"([−-]?\d[\d,\u00a0\u202f]*(?:\.\d+)?)\s*([^\d\s,.−-][^\d,−]*)?")


def parsed(text: str) -> tuple[float | None, float]:
    """The number in base units, and how far rounding can have moved it; ValueError if it cannot be read."""
    if not re.search(r"\d", text):
        return None, 0.0  # a dash, or words such as "no limit"
    text = re.sub(r"^[^\d−-]*(?=[\d−-])", "", text)  # words in front of it: "waits 3 h"
    text = re.sub(r" ?(ago|前)$", "", text)
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip():
        raise ValueError(f"no number: {text!r}")
    total, margin = 0.0, 0.0
    for digits, unit_text in parts:
        unit = unit_text.strip()
        if unit not in UNITS:
            raise ValueError(f"unknown unit {unit!r}: {text!r}")
        plain = re.sub(r"[,\u00a0\u202f]", "", digits).replace("−", "-")
        scale = UNITS[unit]
        total += float(plain) * scale
        decimals = len(plain.partition(".")[2])
        # a duration is cut off, not rounded; a count has no fraction, but the number behind it may have
        margin = scale * 10.0**-decimals * (1.0 if unit in _DURATION else 0.5)
    if len(parts) > 1 and not all(unit.strip() in _DURATION for _, unit in parts):
        raise ValueError(f"several numbers: {text!r}")
    return total, margin
