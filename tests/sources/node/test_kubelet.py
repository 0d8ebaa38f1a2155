import asyncio
import json
import ssl
from contextlib import aclosing, asynccontextmanager

import pytest
import trustme

from vgpuscope.model.errors import KubeForbidden, KubeUnreadable
from vgpuscope.sources.node.kubelet import KubeletPods


def listed(*names):
    items = [{"metadata": {"name": name, "uid": f"uid-{name}"}} for name in names]
    return 200, json.dumps({"kind": "PodList", "items": items})


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def ca_file(authority, tmp_path):
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    return str(tmp_path / "ca.crt")


@pytest.fixture
def token_file(tmp_path):
    (tmp_path / "token").write_text("secret\n")
    return str(tmp_path / "token")


class Kubelet:
    """A kubelet that answers every request with what `reply(token)` says, or never, when that says None."""

    def __init__(self, reply):
        self.reply = reply
        self.requests = []
        self.trickles = False  # a byte now and then: never silent for long, never done
        self.url = ""

    async def talk(self, reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                self.requests.append(lines[0])
                headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
                answer = self.reply(headers.get("authorization", "").removeprefix("bearer "))
                if answer is None:
                    continue
                status, body = answer
                writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n\r\n".encode())
                for part in [body] if not self.trickles else body:
                    writer.write(part.encode())
                    await writer.drain()
                    await asyncio.sleep(0.05 if self.trickles else 0)  # the pace of a slow kubelet
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def kubelet(reply, authority=None):
    served, talks = Kubelet(reply), set()

    async def talk(reader, writer):
        talks.add(asyncio.current_task())
        await served.talk(reader, writer)

    context = None
    if authority is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(context)
    async with await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        served.url = f"http{'s' if context else ''}://127.0.0.1:{port}"
        yield served
        server.close()
        await asyncio.gather(*talks)


async def first(source):
    async with aclosing(source.follow()) as pods:
        return await anext(pods)


async def test_the_pods_are_read_over_verified_tls_with_our_token(authority, ca_file, token_file):
    async with kubelet(listed, authority) as served:
        pods = await first(KubeletPods(url=served.url, ca_file=ca_file, token_file=token_file))
    assert [pod.name for pod in pods] == ["secret"]
    assert served.requests == ["GET /pods HTTP/1.1"]


async def test_a_certificate_of_another_authority_is_refused_and_gets_no_token(authority, token_file, tmp_path):
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.crt")
    async with kubelet(lambda _: listed(), authority) as served:
        with pytest.raises(KubeUnreadable, match="certificate verify failed"):
            await first(KubeletPods(url=served.url, ca_file=str(tmp_path / "other.crt"), token_file=token_file))
    assert served.requests == []


async def test_only_who_asks_for_it_goes_without_verification(authority, token_file):
    async with kubelet(lambda _: listed("p"), authority) as served:
        pods = await first(KubeletPods(url=served.url, insecure=True, token_file=token_file))
    assert [pod.name for pod in pods] == ["p"]


async def test_without_tls_no_token_is_sent(token_file):
    async with kubelet(lambda token: listed(token or "none")) as served:
        pods = await first(KubeletPods(url=served.url, token_file=token_file))
    assert [pod.name for pod in pods] == ["none"]


async def test_a_new_token_is_used_at_the_next_poll(authority, ca_file, token_file, tmp_path):
    async with kubelet(listed, authority) as served:
        source = KubeletPods(url=served.url, ca_file=ca_file, token_file=token_file, poll=0.001)
        async with aclosing(source.follow()) as pods:
            assert [pod.name for pod in await anext(pods)] == ["secret"]
            (tmp_path / "token").write_text("renewed")
            assert [pod.name for pod in await anext(pods)] == ["renewed"]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_token_is_forbidden_in_the_kubelets_words(authority, ca_file, token_file, status):
    async with kubelet(lambda _: (status, "Forbidden (user=x, verb=get)"), authority) as served:
        with pytest.raises(KubeForbidden, match=rf"{status} Forbidden \(user=x"):
            await first(KubeletPods(url=served.url, ca_file=ca_file, token_file=token_file))


@pytest.mark.parametrize("answer", [(500, "broken"), (200, "not JSON"), (200, "{}"), (302, "")])
async def test_an_answer_that_is_no_list_of_pods_is_unreadable(authority, ca_file, token_file, answer):
    async with kubelet(lambda _: answer, authority) as served:
        with pytest.raises(KubeUnreadable, match="/pods: "):
            await first(KubeletPods(url=served.url, ca_file=ca_file, token_file=token_file))


async def test_a_kubelet_that_hangs_is_unreadable_after_the_timeout(authority, ca_file, token_file):
    async with kubelet(lambda _: None, authority) as served:
        with pytest.raises(KubeUnreadable, match=r"no answer within 0\.2 s"):
            await first(KubeletPods(url=served.url, ca_file=ca_file, token_file=token_file, timeout=0.2))


async def test_an_answer_that_trickles_is_unreadable_after_the_timeout(authority, ca_file, token_file):
    async with kubelet(lambda _: listed("p"), authority) as served:
        served.trickles = True
        with pytest.raises(KubeUnreadable, match=r"no answer within 0\.3 s"):
            await first(KubeletPods(url=served.url, ca_file=ca_file, token_file=token_file, timeout=0.3))


async def test_nobody_there_is_unreadable(ca_file, token_file):
    async with kubelet(lambda _: listed()) as served:
        pass
    url = served.url.replace("http:", "https:")
    with pytest.raises(KubeUnreadable, match=r"127\.0\.0\.1"):
        await first(KubeletPods(url=url, ca_file=ca_file, token_file=token_file))


async def test_a_missing_authority_or_token_is_named(ca_file, token_file, tmp_path):
    missing = str(tmp_path / "missing")
    with pytest.raises(KubeUnreadable, match=f"authority {missing}: No such file"):
        await first(KubeletPods(ca_file=missing, token_file=token_file))
    with pytest.raises(KubeForbidden, match=f"token {missing}: No such file"):
        await first(KubeletPods(ca_file=ca_file, token_file=missing))
