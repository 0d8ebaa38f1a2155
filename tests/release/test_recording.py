"""The recording: a real terminal, asciinema's format, and a picture that shows what the terminal showed."""

import itertools
import json
import re
from xml.etree import ElementTree

import pytest

from tests.paths import REPOSITORY
from tools import recording

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def events():
    recorder = recording.Recorder()
    terminal = recording.Terminal(recorder)
    try:
        terminal.wait(r"\$ $")
        terminal.type("printf '\\033[32mgr\\303\\274n\\033[0m <&> \\033[7mback\\033[0m\\n'")
        terminal.wait(r"back.*\n.*\$ $")
        terminal.type("clear; echo over")
        terminal.wait(r"\nover|over\r")  # as it was typed, or as it was printed
        terminal.type("echo the end")
        terminal.wait(r"[\r\n]the end\r\n")  # so the shell has done everything before
    finally:
        terminal.close()
    return recorder.events


def test_the_recording_is_in_asciinemas_format(events):
    head, *rest = map(json.loads, recording.cast(events, title="t").splitlines())
    assert (head["version"], head["width"], head["height"]) == (2, recording.WIDTH, recording.HEIGHT)
    times = [at for at, _, _ in rest]
    assert times == sorted(times)
    assert {kind for _, kind, _ in rest} == {"o"}
    assert max(b - a for a, b in itertools.pairwise(times)) <= recording.LONGEST_REST
    assert "\x1b[32mgrün\x1b[0m" in "".join(data for _, _, data in rest)


def test_the_picture_shows_each_screen_for_its_time(events):
    shown = recording.frames(events)
    picture = ElementTree.fromstring(recording.picture(shown, title="t"))
    style = picture.find(f"{SVG}style").text
    film = picture.find(f".//{SVG}g[@class='film']")
    assert len(film) == len(shown) == style.count("%{transform") - 1
    rows = {f"#{row.get('id')}": "".join(row.itertext()) for row in picture.find(f"{SVG}defs")}
    screens = ["\n".join(rows[use.get("href")] for use in frame) for frame in film]
    assert any("grün" in screen and "<&>" in screen and "back" in screen for screen in screens)
    assert "over" in screens[-1]
    assert "grün" not in screens[-1]  # the screen was cleared
    green = [text for text in picture.iter(f"{SVG}text") if text.text == "grün"]
    assert green[0].get("fill") == recording._COLOURS["green"]
    assert "prefers-reduced-motion" in style


def test_the_picture_of_the_documentation_is_small_and_loads_nothing():
    text = (REPOSITORY / "docs/img/demo.svg").read_text()
    assert len(text) < 400_000
    assert set(re.findall(r"\w+://[^\s\"'<)]+", text)) <= {
        "http://www.w3.org/2000/svg",
        *re.findall(r"http://127\.0\.0\.1[^\s\"'<)]*", text),
    }
    ElementTree.fromstring(text)
