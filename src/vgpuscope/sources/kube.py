"""The Kubernetes API: objects of one kind, listed once and watched from there.

Three layers, each with one concern:
    Api              one request or one stream of lines; raises our errors, and every call has a time limit
    Watch            list, then watch for ever; resumes at its version, lists again when the server forgot the version
    KubePods.follow  all pods of a node after a change, at a limited rate

lightkube reads kubeconfigs and authenticates. The requests are our own, so that this code controls pages, bookmarks and
time limits.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar

from vgpuscope.formats.kube.api_groups import decode_group_versions
from vgpuscope.formats.kube.lists import ObjectFault, ObjectPage, WatchEvent, decode_status
from vgpuscope.formats.kube.pods import decode_event, decode_pods
from vgpuscope.model.errors import ConfigInvalid, KubeForbidden, KubeObjectUnreadable, KubeUnreadable
from vgpuscope.model.pod import Pod
from vgpuscope.model.quantity import Seconds
from vgpuscope.sources.bodies import BodyRefused, plain_body

if TYPE_CHECKING:
    import httpx2

    from vgpuscope.formats.hami.seal import Seals

T = TypeVar("T")
log = logging.getLogger(__name__)

_PAGE = "500"
_MOST_PAGES = 4000  # of one list: two million objects
_LARGEST = 512 * 1024 * 1024  # bytes of one answer
_LONGEST_LINE = 16 * 1024 * 1024  # bytes; longer than any object that the API server accepts
_GRACE: Seconds = 10.0  # that a server may take to end a watch after its time limit
_SHORTEST: Seconds = 1.0  # between the starts of two watches: some proxies end a stream as soon as it is open
_BREATH = 0.05  # seconds of pause after a chunk of a watch that was not available at once
_AT_ONCE = 0.001  # seconds: a chunk that takes longer was not available at once
_BURST = 0.2  # seconds between two yields

_FORBIDDEN = {401, 403}
_OF_THIS_OBJECT = {400, 413, 414, 422, 431}  # the server answers, and rejects what is asked for
_FORGOTTEN = {400, 410, 504}  # our version is malformed, too old, or too new (after a restored backup)


class KubePods:
    """The pods of one node, by a watch that selects only them."""

    def __init__(
        self,
        *,
        node: str,
        kubeconfig: str | None,
        timeout: Seconds = 10.0,
        hold: Seconds = 60.0,
        resync: Seconds = 300.0,
        grace: Seconds = _GRACE,
        shortest: Seconds = _SHORTEST,
        seals: "Seals | None" = None,
    ) -> None:
        """A given kubeconfig must be valid (ConfigInvalid); the default one may appear later."""
        check_kubeconfig(kubeconfig)
        self._kubeconfig = kubeconfig
        self._timeout = timeout
        self._watch = Watch(
            path="/api/v1/pods",
            params={"fieldSelector": f"spec.nodeName={node}"},
            decode_page=lambda data: decode_pods(data, origin="list of pods", seals=seals),
            decode_event=partial(decode_event, seals=seals),
            key=lambda pod: pod.uid,
            hold=hold,
            resync=resync,
            grace=grace,
            shortest=shortest,
        )

    @property
    def faults(self) -> tuple[ObjectFault, ...]:
        """The parts of the current pods that could not be read."""
        return self._watch.faults

    async def follow(self) -> AsyncIterator[tuple[Pod, ...]]:
        """All pods of the node after every change and sign of life; raises KubeForbidden or KubeUnreadable."""
        changed = asyncio.Event()
        async with self._client() as client:
            watching = asyncio.create_task(
                self._watch.run(KubeClient(client, timeout=self._timeout), changed.set), name="watch of pods"
            )
            watching.add_done_callback(lambda _: changed.set())
            try:
                while True:
                    await changed.wait()
                    if watching.done():
                        await watching  # raises: a watch ends by failing
                    changed.clear()
                    yield self._watch.objects
                    await asyncio.wait({watching}, timeout=_BURST)
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    def _client(self) -> "httpx2.AsyncClient":
        return open_client(self._kubeconfig)


def check_kubeconfig(kubeconfig: str | None) -> None:
    """Raises ConfigInvalid if the kubeconfig cannot be used; None: the default one, which may appear later."""
    if kubeconfig is not None:
        _connection(kubeconfig)


def open_client(kubeconfig: str | None) -> "httpx2.AsyncClient":
    """A client that authenticates at the API server; the caller closes it."""
    import httpx2  # noqa: PLC0415 - 6 MB that are needed only with the Kubernetes API

    from vgpuscope.sources.http_stream import WatchTransport, behind_proxy  # noqa: PLC0415

    try:
        found = _connection(kubeconfig)
    except ConfigInvalid as e:
        raise KubeUnreadable(str(e)) from e
    if not behind_proxy():
        found["transport"] = WatchTransport(found["verify"])
    return httpx2.AsyncClient(**found)


class RenewedClient:
    """A client for a long-lived process, opened again from time to time: tokens and certificates in files change."""

    def __init__(
        self,
        kubeconfig: str | None,
        *,
        every: Seconds = 600.0,
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        self._kubeconfig, self._every, self._clock = kubeconfig, every, clock
        self._opened = 0.0
        self._now: httpx2.AsyncClient | None = None
        self._before: httpx2.AsyncClient | None = None  # may still answer requests that began before the renewal
        self._closing: set[asyncio.Task[None]] = set()

    def __call__(self) -> "httpx2.AsyncClient":
        """The client to use now; raises KubeUnreadable if there is no kubeconfig or service account."""
        if self._now is None or self._clock() - self._opened > self._every:
            opened = open_client(self._kubeconfig)
            if self._before is not None:
                self._close(self._before)
            self._before, self._now, self._opened = self._now, opened, self._clock()
        return self._now

    async def close(self) -> None:
        for client in (self._before, self._now):
            if client is not None:
                await client.aclose()
        self._before = self._now = None
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _close(self, client: "httpx2.AsyncClient") -> None:
        task = asyncio.create_task(client.aclose(), name="close an old client")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def served_version(api: "KubeClient", group: str, wanted: tuple[str, ...]) -> str | None:
    """The first wanted version of an API group that the server serves; None if it serves no wanted version.

    Raises KubeForbidden or KubeUnreadable if the request fails.
    """
    found = await api.find(f"/apis/{group}")
    served = decode_group_versions(found) if found is not None else ()
    return next((version for version in wanted if version in served), None)


async def all_pages(page: Callable[[str], Awaitable[ObjectPage[T]]]) -> list[ObjectPage[T]]:
    """All pages of a list; `page` gets a continue token, "" for the first page.

    Raises KubeUnreadable if the list has no end: a token comes twice, or there are too many pages.
    """
    pages = [await page("")]
    tokens: set[str] = set()
    while token := pages[-1].more:
        if token in tokens or len(pages) >= _MOST_PAGES:
            raise KubeUnreadable(f"the list does not end: {len(pages)} pages, and the last one refers to another")
        tokens.add(token)
        pages.append(await page(token))
    return pages


class Watch(Generic[T]):
    """The objects of one list request, kept up to date by a watch."""

    def __init__(
        self,
        *,
        path: str,
        params: Mapping[str, str],
        decode_page: Callable[[bytes], ObjectPage[T]],
        decode_event: Callable[[bytes], WatchEvent[T]],
        key: Callable[[T], str],
        hold: Seconds = 60.0,
        resync: Seconds = 300.0,
        grace: Seconds = _GRACE,
        shortest: Seconds = _SHORTEST,
        paged: bool = False,
        keep: bool = True,
        on_list: Callable[[Mapping[str, T]], None] = lambda _: None,
        on_change: Callable[[str, T | None], None] = lambda _, __: None,
    ) -> None:
        self._on_list = on_list  # called with all objects after every list
        self._on_change = on_change  # called with an object's key and new state; None: it was deleted
        self._path = path
        self._params = dict(params)
        self._decode_page = decode_page
        self._decode_event = decode_event
        self._key = key
        self._hold = hold  # the server ends a watch after this time; silence for longer means that the server hangs
        self._resync = resync  # list again when a watch ends and the list is this old: repairs missed changes
        self._grace, self._shortest = grace, shortest
        self._listed = 0.0
        self._keep = keep  # False: the callbacks keep the objects, so they are not stored twice
        self._objects: dict[str, T] = {}
        self._version: str | None = None  # None: no list yet, or the list is no longer valid
        # True: do not list with version 0, which ignores page limits. Also set once the server rejected our version.
        self._exact = paged
        self._proven = False  # a watch has worked with the version since the last list
        self.faults: tuple[ObjectFault, ...] = ()

    @property
    def objects(self) -> tuple[T, ...]:
        return tuple(self._objects.values())

    def move(self, path: str) -> None:
        """Use this path from now on: the server serves the objects in another API version."""
        if path != self._path:
            self._path, self._version = path, None

    def restart(self) -> None:
        """List again at the next run."""
        self._version = None

    async def run(self, api: "KubeClient", changed: Callable[[], None]) -> NoReturn:
        """Keep the objects up to date until that fails, and call `changed` after every change and sign of life."""
        while True:
            if self._version is None:
                await self._list(api)
                changed()
            try:
                await self._watch(api, changed)
            except VersionForgotten as e:
                self._version = None
                if self._exact and not self._proven:  # it rejects its newest version: listing again would loop
                    raise KubeUnreadable(str(e)) from e
                self._exact = True

    def take(self, event: WatchEvent[T]) -> None:
        """Apply one event to the objects."""
        if event.type == "ERROR":
            _fail(event.status or 410, event.message)
        self._version, self._proven = event.resource_version or self._version, True
        if event.type == "BOOKMARK":
            return
        if self.faults or event.faults:
            self.faults = (*(fault for fault in self.faults if fault.uid != event.uid), *event.faults)
        if event.item is None:
            self._objects.pop(event.uid, None)
        elif self._keep:
            self._objects[event.uid] = event.item
        self._on_change(event.uid, event.item)

    async def _list(self, api: "KubeClient") -> None:
        try:
            pages = await self._pages(api)
        except VersionForgotten:  # the server forgot the version before the last page
            self._exact = True
            try:
                pages = await self._pages(api)
            except VersionForgotten as e:
                raise KubeUnreadable(str(e)) from e
        found = {self._key(item): item for page in pages for item in page.items}
        self._objects = found if self._keep else {}
        self.faults = tuple(fault for page in pages for fault in page.faults)
        self._version = pages[-1].resource_version
        self._listed = asyncio.get_running_loop().time()
        self._proven = False
        self._on_list(found)

    async def _pages(self, api: "KubeClient") -> list[ObjectPage[T]]:
        """All pages. Version 0 lets the server answer from its cache, as for kubelets; exact asks for the newest."""
        first = {} if self._exact else {"resourceVersion": "0"}

        async def page(token: str) -> ObjectPage[T]:
            params = {**self._params, "limit": _PAGE} | ({"continue": token} if token else first)
            return self._decode_page(await api.get(self._path, params))

        return await all_pages(page)

    async def _watch(self, api: "KubeClient", changed: Callable[[], None]) -> None:
        """One watch after the other, each from the last version, until it is time to list again."""
        clock = asyncio.get_running_loop().time
        while clock() - self._listed < self._resync:
            began = clock()
            await self._stream(api, changed)
            self._proven = True
            await asyncio.sleep(began + self._shortest - clock())
        self._version = None

    async def _stream(self, api: "KubeClient", changed: Callable[[], None]) -> None:
        params = {
            **self._params,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "",
            "timeoutSeconds": str(max(1, round(self._hold))),
        }
        async with aclosing(api.lines(self._path, params, silence=self._hold + self._grace)) as lines:
            async for line in lines:
                if line:
                    self.take(self._event(line))
                changed()

    def _event(self, line: bytes) -> WatchEvent[T]:
        try:
            return self._decode_event(_of_bearable_length(line))
        except KubeUnreadable:
            self._version = None  # resuming would bring the same line again
            raise


def _of_bearable_length(line: bytes) -> bytes:
    if len(line) > _LONGEST_LINE:
        raise KubeUnreadable(f"a line of more than {_LONGEST_LINE} bytes")
    return line


class VersionForgotten(Exception):
    """The server does not know the requested version."""


class KubeClient:
    """Authenticated requests to an API server that raise our errors and never hang."""

    def __init__(self, client: "httpx2.AsyncClient | Callable[[], httpx2.AsyncClient]", *, timeout: Seconds) -> None:
        """`client` may be a function that returns the client to use now."""
        self._given = client
        self._timeout = timeout

    @property
    def _client(self) -> "httpx2.AsyncClient":
        return self._given() if callable(self._given) else self._given

    async def get(self, path: str, params: Mapping[str, str]) -> bytes:
        """The body of the response."""
        return _body(await self._ask(path, params))

    async def find(self, path: str, params: Mapping[str, str] = {}, *, accept: str = "*/*") -> bytes | None:
        """The body of the response; None if the server has no such path."""
        answer = await self._ask(path, params, accept=accept)
        if answer.status_code in _OF_THIS_OBJECT:
            error = decode_status(answer.content)
            raise KubeObjectUnreadable(f"the API server answered {answer.status_code} {error}".rstrip())
        try:
            return None if answer.status_code == 404 else _body(answer)
        except VersionForgotten as e:  # no version of ours was asked for
            raise KubeUnreadable(f"the API server answered {e}") from e

    async def send(self, method: str, path: str, body: bytes, *, media: str) -> tuple[int, bytes]:
        """The status and body of the response to a request that changes something; never sent twice."""
        with self._our_errors():
            async with asyncio.timeout(self._timeout):
                headers = {"content-type": media, "accept": "application/json"}
                answer = await self._client.request(method, path, content=body, headers=headers, timeout=None)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("change", extra={"fields": {"method": method, "path": path, "status": answer.status_code}})
        return answer.status_code, answer.content

    async def _ask(self, path: str, params: Mapping[str, str], *, accept: str = "*/*") -> "_Answer":
        headers = {"accept": accept, "accept-encoding": "gzip"}
        clock = asyncio.get_running_loop().time
        began = clock()
        with self._our_errors():
            async with asyncio.timeout(self._timeout):
                # our own time limit covers the whole request
                asked = self._client.stream("GET", path, params=dict(params), headers=headers, timeout=None)
                async with asked as response:
                    answer = _Answer(response.status_code, await plain_body(response, most=_LARGEST))
        if log.isEnabledFor(logging.DEBUG):
            took = {"seconds": round(clock() - began, 6), "status": answer.status_code, "bytes": len(answer.content)}
            log.debug("query", extra={"fields": {"path": path, **took}})
        return answer

    async def lines(self, path: str, params: Mapping[str, str], *, silence: Seconds) -> AsyncGenerator[bytes, None]:
        """An empty line once the server accepts, then each of its lines, until the stream ends, breaks or is silent.

        A watch does not need to know how the stream ended: its next request fails if the server is down.
        """
        import httpx2  # noqa: PLC0415

        from vgpuscope.sources.http_stream import WATCH  # noqa: PLC0415

        timeout = httpx2.Timeout(self._timeout, read=silence)
        request = self._client.build_request(
            "GET", path, params=dict(params), timeout=timeout, extensions={WATCH: True}
        )
        with self._our_errors():
            async with asyncio.timeout(self._timeout):
                answer = await self._client.send(request, stream=True)
                if answer.status_code != 200:
                    _fail(answer.status_code, decode_status(await answer.aread()))
        if log.isEnabledFor(logging.DEBUG):
            log.debug("watch opened", extra={"fields": {"path": path, "version": params.get("resourceVersion")}})
        try:
            yield b""
            rest: list[bytes] = []
            length = 0
            async for chunk in _in_batches(answer.aiter_bytes()):
                first, *others = chunk.split(b"\n")
                rest.append(first)
                length += len(first)
                for other in others:
                    yield b"".join(rest)
                    rest, length = [other], len(other)
                if length > _LONGEST_LINE:  # the reader rejects it and lists again
                    yield b"".join(rest)
        except httpx2.HTTPError:
            return
        finally:
            await answer.aclose()

    @contextmanager
    def _our_errors(self) -> Iterator[None]:
        import httpx2  # noqa: PLC0415
        from lightkube.core.exceptions import ConfigError  # noqa: PLC0415

        server = str(self._client.base_url).rstrip("/")
        try:
            yield
        except (httpx2.TimeoutException, TimeoutError) as e:
            raise KubeUnreadable(f"{server}: no answer within {self._timeout:g} s") from e
        except (httpx2.HTTPError, httpx2.InvalidURL, BodyRefused) as e:  # a URL with a token may be too long
            raise KubeUnreadable(f"{server}: {str(e) or type(e).__name__}") from e
        except (ConfigError, OSError, KeyError, ValueError) as e:  # a token file or credential program
            raise KubeForbidden(f"{server}: no credentials: {str(e) or type(e).__name__}") from e


class _Answer(NamedTuple):
    status_code: int
    content: bytes


def _body(answer: _Answer) -> bytes:
    if answer.status_code != 200:
        _fail(answer.status_code, decode_status(answer.content))
    return answer.content


async def _in_batches(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The chunks; pauses after a chunk that was not available at once, so that more data is read in one go."""
    clock = asyncio.get_running_loop().time
    asked = clock()
    async for chunk in chunks:
        waited = clock() - asked > _AT_ONCE
        yield chunk
        if waited:
            await asyncio.sleep(_BREATH)
        asked = clock()


def _fail(status: int, message: str) -> NoReturn:
    text = f"{status} {message}".rstrip()
    if status in _FORGOTTEN:
        raise VersionForgotten(text)
    raise (KubeForbidden if status in _FORBIDDEN else KubeUnreadable)(f"the API server answered {text}")


def _connection(kubeconfig: str | None) -> dict[str, Any]:
    """Parameters of an HTTP client for the API server; raises ConfigInvalid if the kubeconfig lacks them."""
    import yaml  # noqa: PLC0415
    from lightkube.config.client_adapter import ConnectionParams  # noqa: PLC0415
    from lightkube.config.kubeconfig import KubeConfig  # noqa: PLC0415
    from lightkube.config.models import User  # noqa: PLC0415
    from lightkube.core.exceptions import ConfigError  # noqa: PLC0415

    name = f"kubeconfig {kubeconfig}" if kubeconfig else "service account or default kubeconfig"
    try:
        config = (KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()).get()
        assert config is not None  # without a default, get() raises instead
        params: dict[str, Any] = ConnectionParams().httpx_params(config._replace(user=config.user or User()))
    except KeyError as e:
        raise ConfigInvalid(f"{name}: {e} is missing") from e
    except (TypeError, AttributeError) as e:
        raise ConfigInvalid(f"{name}: not a valid kubeconfig") from e
    except (ConfigError, OSError, ValueError, yaml.YAMLError) as e:
        raise ConfigInvalid(f"{name}: {' '.join(str(e).split())}") from e
    if config.cluster.insecure:
        raise ConfigInvalid(f"{name}: insecure-skip-tls-verify would expose the token", hint=_INSECURE)
    if not config.cluster.server.startswith(("https://", "http://")):
        raise ConfigInvalid(f"{name}: the server {config.cluster.server!r} is not an http or https address")
    return params


_INSECURE = "Name the cluster's certificate-authority in the kubeconfig instead."
