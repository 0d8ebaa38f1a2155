"""A real Prometheus decides what a query condition is, and which series it selects; ours must say the same.

Three readers of conditions are held against it: the configuration, the source that asks an engine, and own scrapes.
"""

import http.client
import json
import random
import time
import urllib.parse

import pytest

from tests.contract.promworld import prometheus, write
from vgpuscope.config import load
from vgpuscope.formats.prom.promql import chosen_by, parse_condition, selector
from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.services.analyzer.sources.prometheus.reading import PrometheusSource

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("promql")]

PODS = (
    "",
    "a",
    "b",
    "A",
    "ab",
    "a.b",
    "a|b",
    "é",
    "it's",
    'say "x"',
    "back\\slash",
    "x\ty",
    "{}",
    "$",
    "]",
    "-",
    "_",
    "7",
)
NOW = int(time.time()) - 30

GOOD = [
    *("{}", "{ }", '{pod!=""}', '{pod!="",}', '{ pod = "a" , zone="z" , }', "{pod='a'}", "{pod=`a`}"),
    *('{pod="a",pod="b"}', "{pod=`back\\slash`}", '{pod="back\\\\slash"}', "{pod='it\\'s'}", '{pod="it\'s"}'),
    *('{pod="say \\"x\\""}', '{pod="\\x61"}', '{pod="\\141"}', '{pod="\\u00e9"}', '{pod="\\xc3\\xa9"}'),
    *('{pod="\\U000000e9"}', '{pod="x\\ty"}', '{pod="\\xff"}', '{pod!="\\xff"}', '{by="x"}', '{sum="",on=""}'),
    *('{pod="{}"}', "{pod=`\n`}", '{pod=~"a{2,01}"}', '{pod="a" # a comment\n}', '{\r\n\tpod="a"\r\n}'),
    *('{pod=~"a|b"}', '{pod=~""}', '{pod!~".+"}', '{pod=~"[a-b]"}', '{pod=~"a\\\\.b"}', '{pod=~"(?i)a"}'),
    *('{pod=~"x|(?i:A)"}', '{pod=~"a(?i)B|A"}', '{pod=~"[[:alpha:]]"}', '{pod=~"[^[:alpha:]]+"}', '{pod=~"\\\\w+"}'),
    *('{pod=~"\\\\W+"}', '{pod=~"\\\\d"}', '{pod=~"\\\\pL"}', '{pod=~"\\\\p{Greek}"}', '{pod=~"^a$"}'),
    *('{pod=~"^*a"}', '{pod=~"\\\\Aa\\\\z"}', '{pod=~"\\\\Qa.b\\\\E"}', '{pod=~"a{,5}"}', '{pod=~"{}"}'),
    *('{pod=~"a{1,2}b?"}', '{pod=~"[]]"}', '{pod=~"[-]"}', '{pod=~"[a-]"}', '{pod=~"\\\\x61|\\\\x{e9}"}'),
    *('{pod=~"(?P<x>a)(?P<x>b)?"}', '{pod=~"a*?"}', '{pod=~"(?U)a+"}', '{pod=~"(a|)b"}', '{pod=~"()"}'),
    *('{pod=~"\\\\ba\\\\b"}', '{pod=~"."}', '{pod=~"[\\\\w.]+"}', '{pod=~"[\\\\d\\\\-_]"}', '{pod=~"\\\\141"}'),
    *('{pod=~"\\\\_"}', '{pod=~"a]"}', '{pod=~"(?)a"}', '{pod=~"\\\\$"}', '{pod=~"(?m)^a$"}', '{pod=~"(?s).(?-s)."}'),
    *('{pod=~"(a{30}){30}|a"}', '{pod=~"[\\\\Wa]+"}'),
]
BAD = [
    *("", "pod", 'pod!=""', "{pod}", '{pod!=""', '{pod!=""}}', '{pod=="x"}', "{pod=x}", '{a="b" c="d"}'),
    *('{a="b"} or x', '{,a="b"}', "{,}", '{a="b",,}', '{1a="b"}', '{a:b="c"}', '{é="c"}', '{a.b="c"}', '{a="b"}[5m]'),
    *('{a="b\n"}', '{a="\\q"}', '{a="\\\'"}', "{a='\\\"'}", '{a="\\U99999999"}', '{a="\\ud800"}', '{a="\\400"}'),
    *('{a="\\8"}', '{a="\\x4"}', '{a="\\"}', '{a="b}', "{a=`b}", '{a=\xa0"b"}', '{a=\x0b"b"}', '{__name__="x"}'),
    *('{a=~"("}', '{a=~")"}', '{a=~"[a"}', '{a=~"[b-a]"}', '{a=~"*"}', '{a=~"a**"}', '{a=~"a*+"}', '{a=~"a??+"}'),
    *('{a=~"a{2}{3}"}', '{a=~"a{1001}"}', '{a=~"a{2,1}"}', '{a=~"(a{40}){40}"}', '{a=~"(?=a)"}', '{a=~"(?!a)"}'),
    *('{a=~"(?<=a)b"}', '{a=~"(a)\\\\1"}', '{a=~"\\\\y"}', '{a=~"\\\\Z"}', '{a=~"\\\\C"}', '{a=~"(?>a)"}'),
    *('{a=~"(?x)a"}', '{a=~"(?i-)a"}', '{a=~"\\\\Qa|b"}', '{a=~"(?P<é>b)"}', '{a=~"(?P=a)"}', '{a=~"[[:nope:]]"}'),
    *('{a=~"\\\\"}', '{a=~"\\\\xg"}', '{a=~"\\\\x{110000}"}', '{a!~"(|*)"}', '{a=~"(?#x)"}', '{a=~"[a-\\\\d]"}'),
    *('{a=~"\\xff"}', '{a=~"\\\\8"}', '{a=~"(?i"}', '{a=~"\\\\p{"}', '{a=~"\\\\p"}', '{a=~"[\\\\p{]"}'),
    *('{a=~"\\ufffd"}x',),
]


class Engine:
    """The real one, on one connection."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)

    def close(self) -> None:
        self._connection.close()

    def selects(self, condition: str) -> list[str] | None:
        """The pods of the series that it selects; None: it is not PromQL."""
        form = urllib.parse.urlencode({"query": f"probe{condition}", "time": NOW})
        self._connection.request("POST", "/api/v1/query", form, {"Content-Type": "application/x-www-form-urlencoded"})
        answer = self._connection.getresponse()
        body = json.loads(answer.read())
        assert answer.status in {200, 400}, body
        if answer.status == 400:
            assert body["errorType"] == "bad_data", body
            return None
        return sorted(row["metric"].get("pod", "") for row in body["data"]["result"])


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    with prometheus(tmp_path_factory.mktemp("prometheus")) as url:
        write(url, [({"__name__": "probe", "zone": "z", "pod": pod}, [(float(NOW), 1.0)]) for pod in PODS])
        engine = Engine(url)
        yield engine
        engine.close()


def accepted(condition: str) -> bool:
    """What the configuration and the source say, who must agree."""
    said = set()
    for read in (_configured, lambda text: PrometheusSource(url="http://p", condition=text)):
        try:
            read(condition)
            said.add(True)
        except ConfigInvalid:
            said.add(False)
    assert len(said) == 1, f"configuration and source differ about {condition!r}"
    return said.pop()


def _configured(condition: str) -> None:
    load(flags={"prometheus.query_condition": condition}, environ={})


@pytest.mark.parametrize("condition", GOOD)
def test_a_condition_that_prometheus_takes_is_taken_and_selects_the_same(engine, condition):
    selected = engine.selects(condition)
    assert selected is not None
    assert accepted(condition)
    assert engine.selects(selector("", parse_condition(condition))) == selected
    if "\\p" not in condition:  # classes by name need Unicode's tables: only an engine has them
        assert _own(condition) == selected


@pytest.mark.parametrize("condition", BAD)
def test_a_condition_that_prometheus_refuses_is_refused_at_the_start(engine, condition):
    if condition.startswith("{"):  # a bare word beside our metric's name would be another metric
        assert engine.selects(condition) is None or condition == '{a="b"} or x' or condition.endswith("[5m]")
    assert not accepted(condition)


PARTS = [
    "a",
    "b",
    "é",
    "pod",
    "zone",
    "=",
    "!=",
    "=~",
    "!~",
    '"',
    "'",
    "`",
    "\\",
    ",",
    " ",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
]
PARTS += [
    "|",
    "*",
    "+",
    "?",
    "^",
    "$",
    ".",
    "-",
    ":",
    "2",
    "7",
    "x",
    "Q",
    "E",
    "d",
    "W",
    "i",
    "(?",
    "{2}",
    "[:alpha:]",
    "\\\\",
]


def test_any_text_is_taken_or_refused_as_prometheus_does(engine):
    dice, taken = random.Random(23), 0
    for _ in range(3000):
        condition = _mutated(dice, dice.choice(GOOD + [c for c in BAD if c.startswith("{") and c.endswith("}")]))
        if "\\p" in condition or "(?<" in condition:  # Unicode's tables; names of groups, which a newer Go takes
            continue
        if not (condition.startswith("{") and condition.endswith("}")):
            continue
        selected = engine.selects(condition)
        assert accepted(condition) == (selected is not None), condition
        if selected is not None:
            taken += 1
            assert _own(condition) == selected, condition
    assert taken > 300


def _mutated(dice: random.Random, text: str) -> str:
    for _ in range(dice.choice((1, 1, 2, 3))):
        at = dice.randint(0, len(text))
        text = text[:at] + dice.choice(["", *PARTS]) + text[at + dice.choice((0, 0, 1)) :]
    return text


def _own(condition: str) -> list[str]:
    fulfilled = chosen_by(parse_condition(condition))
    return sorted(pod for pod in PODS if fulfilled({"zone": "z"} | ({"pod": pod} if pod else {})))
