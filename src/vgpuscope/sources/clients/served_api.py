"""A client for the JSON API of a vgpuscope process."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Generic, Literal, NamedTuple, Self, TypeVar
from urllib.parse import SplitResult, urlsplit

import httpx2
import msgspec

from vgpuscope.model import service
from vgpuscope.model.errors import ConfigInvalid, Forbidden, LoginFailed, ScopeError, SourceDown, error_of
from vgpuscope.sources.authorities import authorities
from vgpuscope.sources.bodies import BodyRefused, plain_body

T = TypeVar("T")
V = TypeVar("V")
log = logging.getLogger(__name__)

_SHOWN = 200  # characters of an address
_LARGEST = 256 * 1024 * 1024  # bytes of an answer; the ledger of 5,000 nodes has a fifth of that
_DIRECT = ("all://127.0.0.1", "all://localhost", "all://[::1]")  # a proxy cannot reach this machine's loopback


class ServiceKind(NamedTuple):
    """One kind of process, and the words for it in messages."""

    name: str  # agent
    an: str  # an agent
    path: str  # the path of its JSON
    port: int  # the default port
    gives: str  # what it provides: sample
    content: str  # what its JSON is: the sample of a node
    start: str  # the command that starts it
    ask: str  # the command that queries it at a given address


class TokenSource(NamedTuple):
    """Where a token comes from, and what is done if a service has nothing to compare it with."""

    name: str  # of a variable or setting
    unchecked: Callable[[str], None]  # called with a sentence


UNNAMED = TokenSource("", unchecked=lambda _: None)


class _Fault(msgspec.Struct):
    message: str = ""
    code: str = ""
    hint: str = ""


class _FaultBody(msgspec.Struct):
    error: _Fault


class ServedAnswer(NamedTuple):
    """The answer to one request."""

    status_code: int
    headers: httpx2.Headers
    content: bytes


class ServedApi(Generic[T]):
    """A client of one process; keeps its connection between requests."""

    def __init__(
        self,
        kind: ServiceKind,
        url: str,
        *,
        content: type[T],
        timeout: float,
        token: str | None,
        source: TokenSource = UNNAMED,
    ) -> None:
        """`source`: where the token comes from, for messages."""
        self.url, self._base = addresses(kind, url)
        self._sends = _credentials(self._base, token, source.name)
        self._unchecked = source.unchecked
        self._kind, self._content, self._timeout = kind, content, timeout
        try:
            self._client = httpx2.AsyncClient(
                headers={"Accept-Encoding": "gzip"} | ({"Authorization": f"Bearer {token}"} if token else {}),
                mounts=dict.fromkeys(_DIRECT),
                timeout=timeout,
                follow_redirects=False,  # whoever answers for a service must not choose whom we ask next
                verify=authorities(),
            )
        except OSError as e:  # SSL_CERT_FILE and VGPUSCOPE_CA_FILE are read here
            raise ConfigInvalid(
                f"the CA file cannot be used: {e}", hint="Check SSL_CERT_FILE and VGPUSCOPE_CA_FILE."
            ) from e

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def fetch(self) -> tuple[T, httpx2.Headers]:
        """The current content and the headers of the response; raises SourceDown if there is no content."""
        answer = await self.get(self._kind.path)
        if answer.status_code != httpx2.codes.OK:
            raise self._refused(answer)
        return self._decoded(answer), answer.headers

    async def get(self, path: str, *, headers: Mapping[str, str] | None = None) -> ServedAnswer:
        """The response, of any status; raises SourceDown if there is none or another vgpuscope service answers."""
        return await self._send("GET", path, headers=headers)

    async def ask(self, method: Literal["GET", "POST"], path: str, content: type[V], body: object = None) -> V:
        """The decoded answer; an error of the service is raised as it was there, with its code and hint."""
        sent = None if body is None else msgspec.json.encode(body)
        headers = {} if sent is None else {"Content-Type": "application/json"}
        answer = await self._send(method, path, headers=headers, body=sent)
        if answer.status_code != httpx2.codes.OK:
            raise self._said(answer, changes=method == "POST")
        return self._read(answer, content)

    async def _send(
        self, method: str, path: str, *, headers: Mapping[str, str] | None, body: bytes | None = None
    ) -> ServedAnswer:
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(self._timeout):  # httpx2 limits each read, not the whole body
                async with self._client.stream(method, self._base + path, headers=headers, content=body) as sent:
                    answer = ServedAnswer(sent.status_code, sent.headers, await plain_body(sent, most=_LARGEST))
        except (TimeoutError, httpx2.TimeoutException) as e:
            raise self._nobody(f"no answer within {self._timeout:g} s") from e
        except BodyRefused as e:
            raise SourceDown(f"{self.url}{path}: {e}") from e
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as e:
            raise self._nobody(str(e) or type(e).__name__) from e
        if log.isEnabledFor(logging.DEBUG):
            took = {"seconds": round(clock() - began, 6), "status": answer.status_code, "bytes": len(answer.content)}
            log.debug("query", extra={"fields": {"url": self.url + path, **took}})
        there = answer.headers.get(service.HEADER, self._kind.name)
        if there != self._kind.name:
            raise self._another(there)
        if answer.headers.get(service.CREDENTIALS_HEADER) == service.UNCHECKED:
            self._unchecked(f"the {self._kind.name} at {self.url} has no credentials: {self._sends} was not checked")
        return answer

    def _decoded(self, answer: ServedAnswer) -> T:
        """The content of a response; raises SourceDown if it has another shape."""
        return self._read(answer, self._content)

    def _read(self, answer: ServedAnswer, content: type[V]) -> V:
        try:
            return msgspec.json.decode(answer.content, type=content)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
            raise SourceDown(
                f"{self.url} answers, but not with {self._kind.content}: {e}",
                hint=f"Is it a vgpuscope {self._kind.name}, and of this version? "
                "Compare `vgpuscope --version` on both sides.",
            ) from e

    def _nobody(self, why: str) -> SourceDown:
        return SourceDown(
            f"no {self._kind.name} answers at {self.url}: {why}",
            hint=f"Start one with `{self._kind.start}`, or give the URL: `{self._kind.ask} HOST:PORT`.",
        )

    def _another(self, there: str) -> SourceDown:
        kind = self._kind
        wanted = f"Give the address of {kind.an}; its default port is {kind.port}."
        return SourceDown(
            f"{self.url} is {service.with_article(there)}, not {kind.an}",
            hint=service.how_to_ask(there, self.url, instead=wanted),
        )

    def _said(self, answer: ServedAnswer, *, changes: bool) -> ScopeError:
        """The error that the service answered with."""
        if answer.status_code == httpx2.codes.UNAUTHORIZED:
            if self._sends:
                return self._wrong()
            needs = "the role operate" if changes else "credentials"
            return Forbidden(
                f"the {self._kind.name} at {self.url} asks for {needs} (401)",
                hint="Set VGPUSCOPE_TOKEN to a bearer token of that role, or put user name and password into the URL.",
            )
        try:
            said = msgspec.json.decode(answer.content, type=_FaultBody).error
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._refused(answer)
        kind = error_of(said.code)
        return kind(said.message, hint=said.hint) if kind is not None else self._refused(answer)

    def _wrong(self) -> LoginFailed:
        """The service knows credentials, and not those that were sent."""
        return LoginFailed(
            f"the {self._kind.name} at {self.url} rejected {self._sends} (401)",
            hint=f"It is wrong, was replaced, or is for another service. {LoginFailed.hint}",
        )

    def _refused(self, answer: ServedAnswer) -> ScopeError:
        status, kind = answer.status_code, self._kind
        if "location" in answer.headers:
            return SourceDown(
                f"{self.url} redirects ({status}) to {answer.headers['location'][:_SHOWN]!r}",
                hint=f"Redirects are not followed. If that is the address of {kind.an}, give it.",
            )
        if status == httpx2.codes.UNAUTHORIZED and self._sends:
            return self._wrong()
        if status in {httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN}:
            return SourceDown(
                f"the {kind.name} at {self.url} rejects the request ({status})",
                hint="Set VGPUSCOPE_TOKEN to its bearer token, or put user name and password into the URL.",
            )
        if status == httpx2.codes.NOT_FOUND:
            return SourceDown(
                f"{self.url} is not {kind.an} of vgpuscope: it does not serve {kind.path}",
                hint=f"Give the address of {kind.an}; its default port is {kind.port}.",
            )
        nothing = f"the {kind.name} at {self.url} has no {kind.gives} ({status})"
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            said = msgspec.json.decode(answer.content, type=_FaultBody).error.message
            return SourceDown(f"{nothing}: {said}", hint="Retry in a few seconds if it has just started.")
        return SourceDown(nothing, hint=f"See the log of the {kind.name}.")


def _credentials(base: str, token: str | None, name: str) -> str:
    """What is sent, and where it came from; empty: nothing. User and password of a URL replace a token."""
    if "@" in urlsplit(base).netloc:
        return "the user and password of the URL"
    return f"the token{name and f' of {name}'}" if token else ""


def addresses(kind: ServiceKind, url: str) -> tuple[str, str]:
    """The URL to display (without a password) and the base URL of requests, from any form that users type."""
    parts = _split(kind, url.strip())
    path = parts.path.rstrip("/").removesuffix(kind.path.partition("?")[0]).removesuffix("/metrics")
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{path}", f"{parts.scheme}://{parts.netloc}{path}"


def _split(kind: ServiceKind, url: str) -> SplitResult:
    bare = "://" not in url
    wrong = ConfigInvalid(
        f"{_without_password(url)!r} is not the address of {kind.an}",
        hint="Use HOST, HOST:PORT or http(s)://HOST:PORT.",
    )
    if bare and url.count(":") > 1 and not url.startswith("[") and "@" not in url:
        url = f"[{url}]"  # an IPv6 address as `ip addr` shows it
    try:
        parts = urlsplit(f"http://{url}" if bare else url)
        port = parts.port
    except ValueError as e:
        raise wrong from e
    if parts.scheme not in {"http", "https"} or not parts.hostname or any(c.isspace() for c in parts.netloc):
        raise wrong
    return parts._replace(netloc=f"{parts.netloc.rstrip(':')}:{kind.port}") if bare and port is None else parts


def _without_password(url: str) -> str:
    before, at, host = url.rpartition("@")
    return f"{before.partition('://')[0]}://…@{host}" if at and "://" in before else host
