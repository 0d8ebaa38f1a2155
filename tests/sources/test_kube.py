import asyncio
import json
import ssl
import time
from contextlib import aclosing, asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from tests import waiting
from tests.loopclock import forward
from tests.ports import free_port
from vgpuscope.formats.kube.pods import decode_event, decode_pods
from vgpuscope.model.errors import ConfigInvalid, KubeForbidden, KubeUnreadable
from vgpuscope.sources.kube import KubePods, Watch, check_kubeconfig

DEADLINE = 60.0


def pods_by(kubeconfig, **settings):
    """The pods of node-a, by watches that follow each other quickly."""
    return KubePods(node="node-a", kubeconfig=kubeconfig, **{"grace": 0.2, "shortest": 0.01, **settings})


class ApiServer:
    """The part of an API server that a watch of pods meets: versions, pages, chunked streams, and its bad days."""

    def __init__(self):
        self.version = 100
        self.oldest = 0  # older versions are forgotten
        self.pods = {}
        self.events = []  # (version, line)
        self.moved = asyncio.Event()
        self.requests = []
        self.tokens = None  # those accepted; None: all
        self.page_size = 500
        self.hangs = False
        self.status = None  # answers everything with it
        self.gone_by_event = True
        self.ends = False  # every watch, at once
        self.silent = False  # a watch opens, and then there is nothing, not even its end
        self.kubeconfig = ""

    def put(self, name, **status):
        meta = {"name": name, "namespace": "ml", "uid": f"uid-{name}"}
        kind = "MODIFIED" if name in self.pods else "ADDED"
        self.pods[name] = {"metadata": meta, "spec": {"nodeName": "node-a"}, "status": {"phase": "Running", **status}}
        self._tell(kind, self.pods[name])

    def delete(self, name):
        self._tell("DELETED", self.pods.pop(name))

    def bookmark(self):
        self._tell("BOOKMARK", {"kind": "Pod", "metadata": {}})

    def forget(self):
        """As if compacted: to everyone who was not here just now, all versions so far are too old."""
        self.version += 1
        self.oldest = self.version
        self.events.clear()

    def say(self, line):
        self.version += 1
        self.events.append((self.version, line))
        self._wake()

    def end_watches(self):
        self.ends = True
        self._wake()

    def _tell(self, kind, item):
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        self.events.append((self.version, json.dumps({"type": kind, "object": item}).encode() + b"\n"))
        self._wake()

    def _wake(self):
        self.moved.set()
        self.moved = asyncio.Event()

    def asked(self, *, watch):
        return [query for query in self.requests if ("watch" in query) is watch]

    async def talk(self, reader, writer):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            url = urlsplit(head[0].split()[1])
            query = {key: values[0] for key, values in parse_qs(url.query, keep_blank_values=True).items()}
            self.requests.append(query)
            headers = dict(line.split(": ", 1) for line in head[1:] if line)
            token = next((v for k, v in headers.items() if k.lower() == "authorization"), "").removeprefix("Bearer ")
            if self.hangs:
                await asyncio.Event().wait()
            elif self.tokens is not None and token not in self.tokens:
                _answer(writer, 401, {"kind": "Status", "message": "Unauthorized", "code": 401})
            elif self.status is not None:
                _answer(writer, *self.status)
            elif "watch" in query:
                await self._watch(writer, query)
            else:
                self._list(writer, query)

    def _list(self, writer, query):
        assert query["fieldSelector"] == "spec.nodeName=node-a"
        start = 0
        if "continue" in query:
            assert "resourceVersion" not in query
            version, start = map(int, query["continue"].split("/"))
            if version < self.oldest:
                return _answer(writer, 410, {"kind": "Status", "message": "continue token is too old", "code": 410})
        size = min(int(query["limit"]), self.page_size)
        meta = {"resourceVersion": str(self.version)}
        if start + size < len(self.pods):
            meta["continue"] = f"{self.version}/{start + size}"
        items = list(self.pods.values())[start : start + size]
        return _answer(writer, 200, {"kind": "PodList", "metadata": meta, "items": items})

    async def _watch(self, writer, query):
        seen, moved = int(query["resourceVersion"]), self.moved
        gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": f"too old resource version: {seen}"}
        if seen < self.oldest and not self.gone_by_event:
            return _answer(writer, 410, gone)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        if seen < self.oldest:
            _chunk(writer, json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
        elif self.silent:
            await asyncio.Event().wait()
        else:
            while not self.ends:
                moved = self.moved
                for version, line in list(self.events):
                    if version > seen:
                        seen = version
                        _chunk(writer, line[: len(line) // 2])  # a line may come in any number of pieces
                        _chunk(writer, line[len(line) // 2 :])
                await moved.wait()
        return writer.write(b"0\r\n\r\n")


def _answer(writer, status, body):
    text = json.dumps(body).encode()
    writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(text)}\r\n\r\n".encode() + text)


def _chunk(writer, data):
    if data:
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


@asynccontextmanager
async def listening(server, port=0, context=None):
    """The server on a port; at the end all its connections are cut."""
    talks = {}

    async def talk(reader, writer):
        talks[asyncio.current_task()] = writer
        try:
            await server.talk(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    async with await asyncio.start_server(talk, "127.0.0.1", port, ssl=context) as listener:
        yield listener.sockets[0].getsockname()[1]
        listener.close()
        for task in talks:
            task.cancel()
        await asyncio.gather(*talks)


def kubeconfig(path, *, port, scheme="http", user=None, **cluster):
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"{scheme}://127.0.0.1:{port}", **cluster}}],
        "users": [{"name": "u", "user": user or {"token": "t"}}],
    }
    path.write_text(json.dumps(config))
    return str(path)


@pytest.fixture
async def server(tmp_path):
    served = ApiServer()
    async with listening(served) as port:
        served.kubeconfig = kubeconfig(tmp_path / "kubeconfig", port=port)
        yield served


def pods_of(served, **settings):
    return pods_by(served.kubeconfig, **settings)


@asynccontextmanager
async def following(source):
    async with asyncio.timeout(DEADLINE), aclosing(source.follow()) as pods:
        yield pods


async def until(pods, *names):
    """Follow until these and no other pods are there."""
    async for found in pods:
        if {pod.name for pod in found} == set(names):
            return found
    raise AssertionError("the pods ended")


async def turns():
    """As many of the loop as what is due may need, and no time."""
    for _ in range(100):
        await asyncio.sleep(0)


# --- list and watch ---------------------------------------------------------------------------------------------------


async def test_pods_come_and_change_and_go(server):
    server.put("p")
    async with following(pods_of(server)) as pods:
        await until(pods, "p")
        server.put("q")
        await until(pods, "p", "q")
        server.put("p", phase="Succeeded")
        async for found in pods:
            if any(pod.ended for pod in found):
                break
        server.delete("p")
        await until(pods, "q")
    assert len(server.asked(watch=False)) == 1


async def test_a_long_list_is_read_page_by_page(server):
    server.page_size = 2
    for name in "abcde":
        server.put(name)
    async with following(pods_of(server)) as pods:
        await until(pods, *"abcde")
    assert len(server.asked(watch=False)) == 3


async def test_a_list_whose_pages_expire_is_begun_anew(server):
    server.page_size = 1
    server.put("p")
    server.put("q")
    answer, times = server._list, []

    def forgetful(writer, query):
        times.append(query)
        if len(times) == 2:
            server.forget()
        return answer(writer, query)

    server._list = forgetful
    async with following(pods_of(server)) as pods:
        await until(pods, "p", "q")
    assert len(times) == 4


async def test_a_burst_is_told_in_few_words_and_its_end_is_never_lost(server):
    source, told = pods_of(server), []

    async def listen(pods):
        async for found in pods:
            told.append(len(found))
            if len(found) == 20:
                return

    async with following(source) as pods:
        await anext(pods)
        listener, began = asyncio.create_task(listen(pods)), time.monotonic()
        for number in range(20):
            server.put(f"p{number}")
            await waiting.until(lambda number=number: len(source._watch.objects) > number)
        await listener
    assert len(told) <= 2 + (time.monotonic() - began) / 0.2


async def test_a_bookmark_is_a_sign_of_life_and_moves_the_version(server):
    server.put("p")
    async with following(pods_of(server)) as pods:
        first = await until(pods, "p")
        await waiting.until(lambda: server.asked(watch=True))
        server.bookmark()
        assert await anext(pods) == first
        server.end_watches()
        await waiting.until(lambda: len(server.asked(watch=True)) > 1)
    assert server.asked(watch=True)[1]["resourceVersion"] == str(server.version)


async def test_a_watch_that_ends_is_followed_by_one_from_where_it_was(server):
    server.put("p")
    async with following(pods_of(server)) as pods:
        await until(pods, "p")
        server.end_watches()
        await waiting.until(lambda: len(server.asked(watch=True)) > 1)
        server.ends = False
        server.put("q")
        await until(pods, "p", "q")
    assert len(server.asked(watch=False)) == 1


async def test_a_list_that_is_old_is_taken_anew_when_a_watch_ends(server):
    server.put("p")
    async with following(pods_of(server, resync=0.0)) as pods:
        await until(pods, "p")
        await waiting.until(lambda: len(server.asked(watch=False)) > 2)


@pytest.mark.parametrize("by_event", [True, False])
async def test_a_forgotten_version_means_a_new_list(server, by_event):
    server.gone_by_event = by_event
    server.put("p")
    server.put("q")
    async with following(pods_of(server)) as pods:
        await until(pods, "p", "q")
        server.pods.pop("p")  # unseen: its event is forgotten with the rest
        server.forget()
        server.end_watches()
        await until(pods, "q")
    first, second = server.asked(watch=False)
    assert first["resourceVersion"] == "0"
    assert "resourceVersion" not in second, "from memory the server could give us the past again"


async def test_a_version_that_is_forgotten_as_soon_as_it_is_listed_ends_the_following(server):
    server.oldest = 10**9
    with pytest.raises(KubeUnreadable, match="too old"):
        async with following(pods_of(server)) as pods:
            await until(pods, "never")
    assert len(server.asked(watch=False)) == 2


async def test_a_line_that_cannot_be_read_ends_the_following_and_means_a_new_list(server):
    source = pods_of(server)
    async with following(source) as pods:
        await anext(pods)
        server.say(b"<html>\n")
        with pytest.raises(KubeUnreadable, match="watch of Pods: "):
            await until(pods, "never")
    server.events.clear()
    server.put("p")
    async with following(source) as pods:
        await until(pods, "p")
    assert len(server.asked(watch=False)) == 2


async def test_a_bad_pod_is_named_until_it_is_good(server):
    source = pods_of(server)
    async with following(source) as pods:
        await anext(pods)
        server.put("p", phase=3)
        await waiting.until(lambda: source.faults)
        assert [fault.object for fault in source.faults] == ["Pod/ml/p"]
        server.put("p")
        await until(pods, "p")
        assert source.faults == ()


# --- a server that fails ----------------------------------------------------------------------------------------------


async def test_a_server_that_restarts_is_resumed_from_where_we_were(tmp_path):
    served = ApiServer()
    served.put("p")
    async with listening(served, free_port()) as port:  # one that nobody gets by itself while the server is away
        served.kubeconfig = kubeconfig(tmp_path / "kubeconfig", port=port)
        source = pods_of(served)
        async with following(source) as pods:
            await until(pods, "p")
    with pytest.raises(KubeUnreadable, match=r"127\.0\.0\.1"):
        async with following(source) as pods:
            await anext(pods)
    served.put("q")
    async with listening(served, port), following(source) as pods:
        await until(pods, "p", "q")
    assert len(served.asked(watch=False)) == 1


async def test_a_server_that_goes_away_ends_the_following(tmp_path):
    served = ApiServer()
    async with listening(served) as port:
        served.kubeconfig = kubeconfig(tmp_path / "kubeconfig", port=port)
        source = pods_of(served)
        pods = source.follow()
        await anext(pods)
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(KubeUnreadable):
            await until(pods, "never")


async def test_a_server_that_hangs_is_noticed_and_holds_nobody(server):
    server.hangs = True
    async with following(pods_of(server, timeout=4.0)) as pods:
        asking = asyncio.ensure_future(anext(pods))
        await waiting.until(lambda: server.requests or asking.done())  # this loop goes on meanwhile
        forward(4.0)
        await turns()
        assert asking.done()
        with pytest.raises(KubeUnreadable, match=r"no answer within 4 s"):
            await asking


async def test_a_watch_that_falls_silent_is_noticed(server):
    server.silent = True
    async with following(pods_of(server, timeout=30.0, hold=0.1)) as pods:
        await anext(pods)
        await anext(pods)  # the watch is open
        server.hangs = True
        await waiting.until(lambda: len(server.asked(watch=True)) > 1)
        forward(30.0)
        with pytest.raises(KubeUnreadable, match="no answer"):
            await until(pods, "never")


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_server_in_trouble_is_unreadable_in_its_own_words(server, status):
    server.status = (status, {"kind": "Status", "message": "etcdserver: leader changed"})
    with pytest.raises(KubeUnreadable, match=f"{status} etcdserver: leader changed"):
        async with following(pods_of(server)) as pods:
            await anext(pods)


async def test_an_answer_that_is_no_list_is_unreadable(server):
    server.status = (200, {"kind": "Status"})
    with pytest.raises(KubeUnreadable, match="expected a PodList, got Status"):
        async with following(pods_of(server)) as pods:
            await anext(pods)


# --- who we are -------------------------------------------------------------------------------------------------------


async def test_without_the_right_we_are_told_why(server):
    server.status = (403, {"kind": "Status", "message": 'pods is forbidden: User "x" cannot list resource "pods"'})
    with pytest.raises(KubeForbidden, match='pods is forbidden: User "x"'):
        async with following(pods_of(server)) as pods:
            await anext(pods)


async def test_a_renewed_token_is_read_when_the_old_one_is_refused(tmp_path):
    served, token = ApiServer(), tmp_path / "token"
    token.write_text("old")
    served.tokens = {"old"}
    async with listening(served) as port:
        served.kubeconfig = kubeconfig(tmp_path / "kubeconfig", port=port, user={"tokenFile": str(token)})
        async with following(pods_of(served)) as pods:
            await anext(pods)
            token.write_text("new\n")
            served.tokens = {"new"}
            served.put("p")
            served.end_watches()
            await waiting.until(lambda: len(served.asked(watch=True)) > 2)
            served.ends = False
            served.put("q")
            await until(pods, "p", "q")


async def test_a_token_that_stays_bad_is_forbidden_until_it_is_renewed(tmp_path):
    served, token = ApiServer(), tmp_path / "token"
    token.write_text("old")
    served.tokens = {"new"}
    async with listening(served) as port:
        served.kubeconfig = kubeconfig(tmp_path / "kubeconfig", port=port, user={"tokenFile": str(token)})
        source = pods_of(served)
        with pytest.raises(KubeForbidden, match="401 Unauthorized"):
            async with following(source) as pods:
                await anext(pods)
        token.unlink()
        with pytest.raises(KubeForbidden, match=f"no credentials: Token file {token}"):
            async with following(source) as pods:
                await anext(pods)
        token.write_text("new")
        async with following(source) as pods:
            assert await anext(pods) == ()


async def test_tls_is_verified(tmp_path):
    right, wrong = trustme.CA(), trustme.CA()
    right.cert_pem.write_to_path(tmp_path / "right.crt")
    wrong.cert_pem.write_to_path(tmp_path / "wrong.crt")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    right.issue_cert("127.0.0.1").configure_cert(context)
    served = ApiServer()
    async with listening(served, context=context) as port:
        for name in ("wrong", "right"):
            authority = {"certificate-authority": str(tmp_path / f"{name}.crt")}
            kubeconfig(tmp_path / name, port=port, scheme="https", **authority)
        with pytest.raises(KubeUnreadable, match="certificate verify failed"):
            async with following(pods_by(str(tmp_path / "wrong"))) as pods:
                await anext(pods)
        assert served.requests == []
        async with following(pods_by(str(tmp_path / "right"))) as pods:
            assert await anext(pods) == ()


async def test_in_a_cluster_the_service_account_is_used(tmp_path, monkeypatch):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("in-cluster")
    (tmp_path / "namespace").write_text("gpu")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    served = ApiServer()
    served.tokens = {"in-cluster"}
    async with listening(served, context=context) as port:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
        monkeypatch.setattr(
            "lightkube.config.kubeconfig.KubeConfig.from_service_account.__func__.__defaults__", (tmp_path,)
        )
        where = "lightkube.config.kubeconfig.KubeConfig"
        monkeypatch.setattr(f"{where}.from_env.__func__.__defaults__", (tmp_path, "none"))
        async with following(pods_by(None)) as pods:
            assert await anext(pods) == ()


async def test_no_configuration_at_all_is_no_reason_to_stop(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    with pytest.raises(KubeUnreadable, match="missing not found"):
        async with following(pods_by(None)) as pods:
            await anext(pods)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "not found"),
        ("", "not a valid kubeconfig"),
        ("- a list", "not a valid kubeconfig"),
        ("a: [", "expected"),
        ("\x00", "special characters"),
        ("current-context: x", "'clusters' is missing"),
        ("{clusters: [], contexts: []}", "No current context"),
        ("{clusters: [], contexts: [], current-context: x}", "Context 'x' not found"),
        ("{clusters: [{name: c, cluster: {server: 3}}], contexts: []}", r"Expected `str`"),
    ],
)
def test_a_bad_kubeconfig_is_refused_by_its_name(tmp_path, text, reason):
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigInvalid, match=f"kubeconfig {path}: .*{reason}"):
        pods_by(str(path))


@pytest.mark.parametrize(
    ("cluster", "reason"),
    [
        ({"insecure-skip-tls-verify": True}, "insecure-skip-tls-verify"),
        ({"certificate-authority": "/does/not/exist"}, "No such file"),
        ({"certificate-authority-data": "bm90IGEgY2VydA=="}, "."),
        ({"server": "127.0.0.1:6443"}, "is not an http or https address"),
    ],
)
def test_a_cluster_that_cannot_be_trusted_is_refused(tmp_path, cluster, reason):
    path = kubeconfig(tmp_path / "config", port=1, scheme="https", **cluster)
    with pytest.raises(ConfigInvalid, match=f"kubeconfig {path}: .*{reason}"):
        pods_by(path)


def test_a_kubeconfig_that_is_not_given_is_not_checked(tmp_path):
    check_kubeconfig(None)
    with pytest.raises(ConfigInvalid):
        check_kubeconfig(str(tmp_path / "none"))


async def test_a_kubeconfig_that_turns_bad_ends_the_following_only(server):
    source = pods_of(server)
    with open(server.kubeconfig, "w") as file:  # noqa: ASYNC230
        file.write("{")
    with pytest.raises(KubeUnreadable, match="kubeconfig"):
        async with following(source) as pods:
            await anext(pods)


# --- the fold ---------------------------------------------------------------------------------------------------------


def _event(kind, name, version):
    item = {"metadata": {"name": name, "uid": name, "resourceVersion": str(version)}}
    return decode_event(json.dumps({"type": kind, "object": item}).encode())


def _watch():
    return Watch(path="/", params={}, decode_page=decode_pods, decode_event=decode_event, key=lambda pod: pod.uid)


events = st.builds(
    _event, st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]), st.sampled_from("abc"), st.integers(1, 99)
)


@given(st.lists(events))
def test_what_is_there_is_what_was_last_said_of_each(history):
    watch, last = _watch(), {}
    for event in history:
        watch.take(event)
        if event.type != "BOOKMARK":
            last[event.uid] = event.item
    assert {pod.uid for pod in watch.objects} == {uid for uid, pod in last.items() if pod is not None}


@given(st.lists(events), events)
def test_seeing_an_event_twice_changes_nothing(history, last):
    watch = _watch()
    for event in (*history, last):
        watch.take(event)
    once = set(watch.objects)
    watch.take(last)
    assert set(watch.objects) == once
