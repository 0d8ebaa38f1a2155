"""Answers that many clients ask for are made and compressed once."""

import asyncio
import threading

import httpx2
import pytest

from tests.http.serving import SOON, served
from vgpuscope.http.answers import Content, HttpAnswer, KeptAnswers
from vgpuscope.http.operations import HttpCall, Operation, routes
from vgpuscope.http.parameters import NoQuery


class Large:
    """A list that takes long to make; says how often it was made, and on which threads."""

    def __init__(self, kept: KeptAnswers) -> None:
        self.kept, self.version, self.made = kept, 1, 0
        self.threads: set[int] = set()
        self.fails = False

    def make(self) -> Content:
        self.made += 1
        self.threads.add(threading.get_ident())
        if self.fails:
            raise RuntimeError("no")
        return Content(body=b'"' + b"x" * 9999 + str(self.version).encode() + b'"', headers={"x-total-count": "1"})

    async def handler(self, call: HttpCall[NoQuery, None]) -> HttpAnswer:
        return HttpAnswer(make=self.make, version=self.version, kept=self.kept)


@pytest.fixture
async def serving():
    large = Large(KeptAnswers(most=25_000))
    table = [Operation(method="GET", path=path, summary="", handler=large.handler) for path in ("/a", "/b")]
    async with served(routes=routes(table)) as server, httpx2.AsyncClient(base_url=server.url, timeout=SOON) as client:
        yield large, client


async def test_fifty_clients_cost_one_answer_off_the_loop(serving):
    large, client = serving
    answers = await asyncio.gather(*(client.get("/a") for _ in range(50)))
    assert large.made == 1
    assert threading.get_ident() not in large.threads
    assert {answer.content for answer in answers} == {answers[0].content}
    assert {
        (answer.status_code, answer.headers["x-total-count"], answer.headers["content-encoding"]) for answer in answers
    } == {(200, "1", "gzip")}


async def test_each_path_form_and_version_is_an_answer_of_its_own(serving):
    large, client = serving
    first = await client.get("/a")
    await client.get("/b")
    plain = await client.get("/a", headers={"accept-encoding": "identity"})
    assert (large.made, plain.content) == (3, first.content)
    assert "content-encoding" not in plain.headers
    assert plain.headers["etag"] != first.headers["etag"]
    large.version = 2
    assert (await client.get("/a")).content != first.content
    assert large.made == 4


async def test_a_client_that_has_the_answer_gets_304_and_nothing_is_made(serving):
    large, client = serving
    tag = (await client.get("/a")).headers["etag"]
    again = await client.get("/a", headers={"if-none-match": tag})
    assert (again.status_code, again.content, large.made) == (304, b"", 1)


async def test_an_answer_that_could_not_be_made_is_tried_again(serving):
    large, client = serving
    large.fails = True
    assert (await client.get("/a")).status_code == 500
    large.fails = False
    assert (await client.get("/a")).status_code == 200


async def test_old_answers_are_dropped_when_there_are_too_many():
    kept = KeptAnswers(most=100)
    made: list[str] = []

    def make(name: str):
        return lambda: made.append(name) or Content(body=b"x" * 40)

    for name in ("a", "b", "a", "c", "a", "b"):  # the third one takes the place of b, which was asked for less recently
        await kept.content("/", name, make(name))
    assert made == ["a", "b", "c", "b"]
