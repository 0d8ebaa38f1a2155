"""Requests to a PromQL engine: authenticated, limited in time and size, retried when that may help."""

import asyncio
import logging
import random
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

import httpx2

from vgpuscope.formats.prom.promql import decode_error
from vgpuscope.model import service
from vgpuscope.model.errors import AnswerUnreadable, ConfigInvalid, QueryFailed, QueryForbidden, QueryTimeout
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.sources.bodies import BodyRefused, encoding_of, sent_body
from vgpuscope.sources.http_stream import StreamTransport, behind_proxy

log = logging.getLogger(__name__)

_SHOWN = 2000  # characters of a query in the log
_DIRECT = ("all://127.0.0.1", "all://localhost", "all://[::1]")  # a proxy cannot reach this machine's loopback
_AGAIN = frozenset({408, 429, 500, 502, 503, 504})  # statuses worth a retry
_FORBIDDEN = frozenset({401, 403})
_NO_POST = 405  # gateways with read access for everyone often allow only GET
_BACKOFF: Seconds = 0.2  # before the second try; doubles before each further one
_ERROR_TEXT = 64 * 1024  # bytes read of an error's body
_NAMES = 16 * 1024 * 1024  # bytes of a list of names
_CERTIFICATE_HINTS = {  # by OpenSSL's error number
    9: "It is not valid yet: compare the clocks of server and analyzer.",
    10: "The server needs a new certificate; compare the clocks too.",
    62: "Name the server in prometheus.url as its certificate does.",
    64: "Name the server in prometheus.url as its certificate does.",
}
_TARGETS_HINT = "prometheus.url is for a PromQL engine; agents and cluster exporters belong in analyzer.targets."
_AUTHORITY_HINT = "Set prometheus.ca_file to the CA that signed it (PEM)."


class ByteBudget:
    """The bytes that the answers of one analysis may have together."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def take(self, size: int) -> None:
        """Note received bytes; AnswerUnreadable once there are too many."""
        self._left -= size
        if self._left < 0:
            raise AnswerUnreadable(f"the answers of this analysis are larger than {self._most / 2**20:g} MiB")


class _Asked(NamedTuple):
    """One request: where to, with which parameters, until when, and how much may come back."""

    path: str
    form: dict[str, str]
    by: float
    most: int  # bytes of the answer
    budget: ByteBudget


class PromApi:
    """A client of one engine; keeps its connections."""

    def __init__(
        self,
        *,
        url: str,
        headers: Mapping[str, str],
        basic: tuple[str, str] | None,
        token: str | None,
        token_file: str | None,
        ca_file: str | None,
        insecure: bool,
        retries: int,
        concurrency: int,
        largest: int,
    ) -> None:
        parts = _split(url)
        self.url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        if basic is None and parts.username and not (token or token_file):
            basic = unquote(parts.username), unquote(parts.password or "")
        self._token, self._token_file = token and token.strip(), token_file
        shown = {"x-scope-orgid"}  # the tenant, which is useful in error messages
        self._secrets = [value for name, value in headers.items() if name.lower() not in shown]
        self._secrets += [basic[1]] if basic else []
        _check_sendable({**headers, "the bearer token": self._token or ""})
        self._retries, self._largest = retries, largest
        self._slots = asyncio.Semaphore(concurrency)
        self._verb = "POST"
        # compression costs the server more time than the network saves
        plain = {"Accept": "application/json", "Accept-Encoding": "identity"}
        try:
            verify = _verification(ca_file, insecure=insecure)
            self._client = httpx2.AsyncClient(
                headers={**plain, **headers},
                auth=basic,
                verify=verify,
                transport=None if behind_proxy() else _transport(parts.scheme, verify, keep=concurrency),
                mounts=dict.fromkeys(_DIRECT),
                limits=httpx2.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
                timeout=None,  # every request has a deadline of its own
            )
        except (OSError, ValueError, TypeError) as e:
            raise ConfigInvalid(f"{self.url} cannot be asked with these settings: {e}") from e

    async def aclose(self) -> None:
        await self._client.aclose()

    async def query(
        self,
        text: str,
        *,
        at: UnixTime | None,
        by: float,
        sent: Callable[[], None] = lambda: None,
        most: int | None = None,
        budget: ByteBudget | None = None,
    ) -> bytes:
        """The response to an instant query; `by` is an event loop time. Raises QueryFailed and its subclasses.

        `most`: bytes of the answer, if it is known to be small. `budget`: what all answers together may have.
        """
        form = {"query": text, "nocache": "1"}  # otherwise VictoriaMetrics shifts the end of a window by 30 s
        if at is not None:
            form["time"] = f"{at:.3f}"
        return await self._patiently(self._asked("/api/v1/query", form, by, most, budget), sent=sent)

    async def query_range(self, text: str, *, begin: UnixTime, end: UnixTime, step: Seconds, by: float) -> bytes:
        """The response to a query over a range. Raises QueryFailed and its subclasses."""
        form = {"query": text, "start": f"{begin:.3f}", "end": f"{end:.3f}", "step": f"{step:g}", "nocache": "1"}
        return await self._patiently(self._asked("/api/v1/query_range", form, by, None, None), sent=lambda: None)

    async def label_values(
        self,
        label: str,
        *,
        match: str,
        begin: UnixTime,
        end: UnixTime,
        by: float,
        sent: Callable[[], None],
        budget: ByteBudget | None = None,
    ) -> bytes:
        """The response with a label's values. Raises QueryFailed and its subclasses."""
        form = {"match[]": match, "start": f"{begin:.3f}", "end": f"{end:.3f}"}
        asked = self._asked(f"/api/v1/label/{label}/values", form, by, _NAMES, budget)
        return await self._patiently(asked, sent=sent, verb="GET")

    async def rules(self, *, by: float) -> bytes:
        """The response with all loaded rules. Raises QueryFailed and its subclasses."""
        return await self._patiently(self._asked("/api/v1/rules", {}, by, _NAMES, None), sent=lambda: None, verb="GET")

    def _asked(self, path: str, form: dict[str, str], by: float, most: int | None, budget: ByteBudget | None) -> _Asked:
        most = self._largest if most is None else min(most, self._largest)
        return _Asked(path, form, by, most, budget or ByteBudget(self._largest))

    async def _patiently(self, asked: _Asked, *, sent: Callable[[], None], verb: str | None = None) -> bytes:
        """One request, with retries if they may help and time allows."""
        pause = _BACKOFF
        for left in range(self._retries, -1, -1):
            try:
                async with self._slots:
                    sent()
                    return await self._logged(verb or self._verb, asked)
            except _Passing as e:
                wait = max(e.wait, pause * random.uniform(0.5, 1.5))
                if not left or asyncio.get_running_loop().time() + wait >= asked.by:
                    raise e.error from e
                pause *= 2
                await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    async def _logged(self, verb: str, asked: _Asked) -> bytes:
        """One request; with --v 6 the query and its duration are logged, and the URL without credentials."""
        if not log.isEnabledFor(logging.DEBUG):
            return await self._once(verb, asked)
        clock, body, failure = asyncio.get_running_loop().time, b"", None
        began = clock()
        try:
            body = await self._once(verb, asked)
        except (QueryFailed, _Passing) as e:
            failure = str(e)
            raise
        finally:
            form = asked.form
            query = (form.get("query") or form.get("match[]", ""))[:_SHOWN]
            took = {"at": form.get("time"), "seconds": round(clock() - began, 6), "bytes": len(body), "err": failure}
            log.debug("query", extra={"fields": {"url": self.url + asked.path, "query": query} | took})
        return body

    async def _once(self, verb: str, asked: _Asked) -> bytes:
        asked.budget.take(0)  # if nothing is left, the request is not sent
        with self._our_errors():
            async with asyncio.timeout_at(asked.by):
                status, headers, body = await self._fetch(verb, asked)
                if status == _NO_POST and verb == "POST":
                    self._verb = "GET"
                    status, headers, body = await self._fetch("GET", asked)
        if status == 200:
            return body
        if there := headers.get(service.HEADER):
            raise AnswerUnreadable(f"it is {service.with_article(there)}, not a Prometheus", hint=_TARGETS_HINT)
        said = decode_error(status, body)
        if status in _FORBIDDEN:
            raise QueryForbidden(f"refused: {said}")
        if 300 <= status < 400:
            raise AnswerUnreadable(f"redirected ({status}), perhaps to a login page")
        error = QueryFailed(f"answered {said}")
        error.answered = True
        raise _Passing(error, wait=_seconds(headers.get("retry-after"))) if status in _AGAIN else error

    async def _fetch(self, verb: str, asked: _Asked) -> tuple[int, httpx2.Headers, bytes]:
        where = {"data": asked.form} if verb == "POST" else {"params": asked.form}
        url, headers = self.url + asked.path, self._bearer()
        request = self._client.build_request(verb, url, headers=headers, **where)  # type: ignore[arg-type]
        answer = await self._client.send(request, stream=True)
        try:
            if answer.status_code == 200:
                encoding_of(answer)  # an answer that becomes larger when it is unpacked is refused unread
                body = await sent_body(answer, most=asked.most, took=asked.budget.take)
            else:  # some gateways repeat the rejected credentials
                body = self._veiled(await _beginning(answer), request)
        finally:
            await answer.aclose()
        return answer.status_code, answer.headers, body

    def _veiled(self, body: bytes, request: httpx2.Request) -> bytes:
        """The body of an error, with our credentials masked."""
        used = request.headers.get("authorization", "").split(" ")[-1]
        for secret in filter(None, (used, *self._secrets)):
            body = body.replace(secret.encode(), b"***")
        return body

    def _bearer(self) -> dict[str, str]:
        token = self._token
        if self._token_file is not None:  # read for each request: mounted tokens are renewed
            try:
                with open(self._token_file, encoding="utf-8") as file:
                    token = file.read().strip()
            except (OSError, UnicodeDecodeError) as e:
                raise QueryForbidden(f"the token file cannot be read: {e}") from e
            if not _sendable(token):
                raise QueryForbidden(f"the token file {self._token_file} holds more than a token")
        return {"Authorization": f"Bearer {token}"} if token else {}

    @contextmanager
    def _our_errors(self) -> Iterator[None]:
        try:
            yield
        except (TimeoutError, httpx2.TimeoutException) as e:
            raise QueryTimeout("no answer in time") from e
        except (httpx2.NetworkError, httpx2.RemoteProtocolError, OSError) as e:
            if refusal := _refusal(e):
                hint = _CERTIFICATE_HINTS.get(refusal.verify_code, _AUTHORITY_HINT)
                raise QueryFailed(f"its certificate is rejected: {refusal.verify_message}", hint=hint) from e
            raise _Passing(QueryFailed(str(e) or type(e).__name__)) from e
        except BodyRefused as e:
            raise AnswerUnreadable(str(e)) from e
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as e:
            raise QueryFailed(str(e) or type(e).__name__) from e


async def _beginning(answer: httpx2.Response) -> bytes:
    """The beginning of an error's text; empty if it is compressed, which was not requested."""
    read = b""
    async for chunk in answer.aiter_raw():
        read += chunk
        if len(read) > _ERROR_TEXT:
            break
    return b"" if answer.headers.get("content-encoding") else read[:_ERROR_TEXT]


class _Passing(Exception):
    """A temporary failure."""

    def __init__(self, error: QueryFailed, wait: Seconds = 0.0) -> None:
        super().__init__(str(error))
        self.error, self.wait = error, wait


def _refusal(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """The certificate error that caused this one, if any."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def _check_sendable(values: Mapping[str, str]) -> None:
    """Raises ConfigInvalid without the value, which may be a secret; the HTTP library's error would show it."""
    hint = "Look for line breaks and letters beyond ASCII in prometheus.headers and prometheus.bearer_token."
    for name, value in values.items():
        if not _sendable(value):
            raise ConfigInvalid(f"{name}: a value with characters that no header can carry", hint=hint)


def _sendable(value: str) -> bool:
    return value.isascii() and value.isprintable() and value == value.strip()


def _seconds(text: str | None) -> Seconds:
    """Retry-After in seconds; dates are ignored."""
    return float(text) if text and text.strip().isdecimal() else 0.0


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        shown = url.rpartition("@")[2]
        raise ConfigInvalid(f"{shown!r} is not the address of a Prometheus", hint="Say http(s)://HOST:PORT[/PATH].")
    return parts._replace(path=parts.path.rstrip("/").removesuffix("/api/v1"), query="", fragment="")


def _verification(ca_file: str | None, *, insecure: bool) -> ssl.SSLContext | bool:
    if insecure:
        return False
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as e:
        raise ConfigInvalid(f"the CA file {ca_file} cannot be used: {e}") from e


def _transport(scheme: str, verify: ssl.SSLContext | bool, *, keep: int) -> StreamTransport:
    """A transport that loads CA certificates only for https: loading takes about 10 ms."""
    return StreamTransport(httpx2.create_ssl_context(verify) if scheme == "https" else None, keep=keep)
