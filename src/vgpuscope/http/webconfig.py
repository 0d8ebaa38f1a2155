"""TLS, users, tokens and headers from a web configuration file in the format of Prometheus' exporter-toolkit.

Settings that Python's ssl does not support are rejected by name, not ignored: a file that promises security keeps its
promise.
"""

import hashlib
import ipaddress
import os
import re
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from vgpuscope.http import tokens
from vgpuscope.http.tokens import KnownToken
from vgpuscope.model.caller import Caller, Role
from vgpuscope.model.errors import WebConfigInvalid, raise_all
from vgpuscope.runtime import duration, yamlfile

MAX_COST = 18  # a password check of this cost takes about 20 seconds; above it no user could log in

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "": ssl.CERT_NONE,
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}
_TLS13_SUITES = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
_SUITES = {  # Go's names → OpenSSL's
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
}
_HEADERS: dict[str, tuple[str, ...]] = {  # allowed values; empty: any value
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
_BCRYPT = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class _Tls(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cert: str = ""
    key: str = ""
    client_ca: str = ""
    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""
    client_auth_type: str = ""
    client_allowed_sans: list[str] = []
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    cipher_suites: list[str] = []
    prefer_server_cipher_suites: bool = True
    curve_preferences: list[str] = []


class _Http(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    http2: bool = False
    headers: dict[str, str] = {}


class _Permissions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    role: Role = "read"
    namespaces: list[str] | UnsetType = UNSET  # not None: a key whose value is not written yet would mean all of them


class _User(_Permissions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    hash: str


class _Token(_Permissions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    sha256: str = ""
    file: str = ""


class _RateLimit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    interval: str | float = 0
    burst: int = 0


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tls_server_config: _Tls | None = None
    http_server_config: _Http | None = None
    basic_auth_users: dict[str, str | _User] | None = None  # our extension: a role and namespaces
    bearer_tokens: list[_Token] | None = None  # our extension: exporter-toolkit has no tokens
    rate_limit: _RateLimit | None = None
    unguarded: bool = False  # our extension: neither credentials nor TLS are needed


class KnownUser(Struct, frozen=True, kw_only=True):
    """A user's bcrypt hash, and the caller that knows the password."""

    hash: bytes
    caller: Caller


class WebConfig(Struct, frozen=True, kw_only=True):
    """A web configuration, checked and ready to use."""

    tls: ssl.SSLContext | None = None
    client_sans: frozenset[str] = frozenset()  # empty: every verified client
    headers: tuple[tuple[bytes, bytes], ...] = ()
    users: dict[str, KnownUser] = {}
    tokens: tuple[KnownToken, ...] = ()
    interval: float = 0.0  # seconds between two requests; 0: no limit
    burst: int = 0
    unguarded: bool = False  # what protected the service may be removed

    @property
    def guarded(self) -> bool:
        """Whether a request needs a user or a token."""
        return bool(self.users or self.tokens)

    @property
    def callers(self) -> tuple[Caller, ...]:
        """Everyone who has a user or a token."""
        return (*(one.caller for one in self.users.values()), *(one.caller for one in self.tokens))

    @property
    def protections(self) -> frozenset[str]:
        """What keeps strangers out, in words for messages."""
        certificates = self.tls is not None and self.tls.verify_mode == ssl.CERT_REQUIRED
        found = {"credentials": self.guarded or certificates, "TLS": self.tls is not None}
        return frozenset(word for word, there in found.items() if there)


def read(path: str, files: "WebConfigFiles") -> WebConfig:
    """The configuration in a file and the files it names; WebConfigInvalid gives the wrong key of each section."""
    file = _typed(yamlfile.mapping(files.read(path), path=path, error=WebConfigInvalid), path)
    tls, rate = file.tls_server_config, file.rate_limit or _RateLimit()
    sections: dict[str, Callable[[], Any]] = {
        "headers": lambda: _headers(file.http_server_config or _Http()),
        "users": lambda: _users(file.basic_auth_users or {}),
        "tokens": lambda: _tokens(file.bearer_tokens or [], files),
        "interval": lambda: _interval(rate),
        "tls": lambda: _context(tls, files) if tls else None,
        "client_sans": lambda: frozenset(map(_same_form, tls.client_allowed_sans)) if tls else frozenset(),
    }
    found: dict[str, Any] = {}
    faults: list[WebConfigInvalid] = []
    for name, section in sections.items():
        try:
            found[name] = section()
        except WebConfigInvalid as e:
            faults.append(e)
    raise_all(faults)
    web = WebConfig(burst=rate.burst, unguarded=file.unguarded, **found)
    if not web.protections and not web.unguarded:
        raise WebConfigInvalid(f"{path}: has neither users, tokens nor TLS", hint=_ON_PURPOSE)
    return web


def check_kept(before: WebConfig, after: WebConfig, path: str) -> None:
    """WebConfigInvalid if a reload would remove the last credential or TLS, and the file does not ask for that."""
    lost = before.protections - after.protections
    if lost and not after.unguarded:
        raise WebConfigInvalid(f"{path}: a reload must not remove {' and '.join(sorted(lost))}", hint=_ON_PURPOSE)


_ON_PURPOSE = "If that is intended, add `unguarded: true` to the file; see docs/security.md."


def client_allowed(certificate: dict[str, Any] | None, allowed: frozenset[str]) -> bool:
    """Whether a verified client certificate carries one of the names."""
    return any(_same_form(name) in allowed for _, name in (certificate or {}).get("subjectAltName", ()))


# --- reading ---------------------------------------------------------------------------------------------------------


class WebConfigFiles:
    """Reads files relative to the configuration file, and detects whether any of them has changed since."""

    def __init__(self, path: str) -> None:
        self._directory = os.path.dirname(os.path.abspath(path))
        self._seen: dict[str, bytes] = {}

    def at(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def read(self, path: str) -> bytes:
        self._seen[path] = b"unreadable"
        content = yamlfile.read(path, error=WebConfigInvalid)
        self._seen[path] = hashlib.sha256(content).digest()
        return content

    @property
    def seen(self) -> dict[str, bytes]:
        """The digest of each file, as it was read."""
        return self._seen

    def changed(self) -> bool:
        """Whether any file that was read, or could not be read, is different now.

        Contents are compared, not times: a secret can be rewritten within one tick of the clock.
        """
        again = WebConfigFiles(self._directory)
        for path in self._seen:
            with suppress(WebConfigInvalid):
                again.read(path)
        return again._seen != self._seen


def _typed(content: dict[str, Any], path: str) -> _File:
    try:
        return msgspec.convert(content, _File)
    except msgspec.ValidationError as e:
        reason, _, place = str(e).partition(" - at ")
        raise _wrong(place.strip("`").removeprefix("$.").removeprefix("$") or path, reason) from e


def _wrong(key: str, reason: str) -> WebConfigInvalid:
    return WebConfigInvalid(f"{key}: {reason}")


# --- TLS -------------------------------------------------------------------------------------------------------------


def _context(tls: _Tls, files: WebConfigFiles) -> ssl.SSLContext:
    certificate = _pem("cert", tls.cert, tls.cert_file, files)
    key = _pem("key", tls.key, tls.key_file, files)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    _versions(context, tls)
    _suites(context, tls)
    _curve(context, tls)
    _clients(context, tls, files)
    try:
        with _as_path(certificate) as cert_path, _as_path(key) as key_path:
            context.load_cert_chain(cert_path, key_path, password=_no_password)
    except (ssl.SSLError, ValueError) as e:
        raise _wrong("tls_server_config", f"certificate and key cannot be used together: {_ssl_reason(e)}") from e
    return context


def _pem(name: str, inline: str, file: str, files: WebConfigFiles) -> bytes:
    at = f"tls_server_config.{name}_file"
    if inline and file:
        raise _wrong(at, f"{name} is given inline as well; only one may be")
    if inline:
        return inline.encode()
    if not file:
        raise _wrong(at, "missing; TLS needs a certificate and its key")
    return files.read(files.at(file))


def _no_password() -> str:
    raise ValueError("the key is encrypted; store it decrypted and readable by this user only")


@contextmanager
def _as_path(content: bytes) -> Iterator[str]:
    """A path to bytes that were already read: ssl reads only paths, and the original file could change in between."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("vgpuscope-pem", os.MFD_CLOEXEC)
        try:
            os.write(fd, content)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
        return
    with tempfile.NamedTemporaryFile() as file:  # readable by this user only, and deleted right after use
        file.write(content)
        file.flush()
        yield file.name


def _versions(context: ssl.SSLContext, tls: _Tls) -> None:
    for key, name in (("min_version", tls.min_version), ("max_version", tls.max_version)):
        if name not in _VERSIONS:
            raise _wrong(f"tls_server_config.{key}", f"{name!r} is not supported; use TLS12 or TLS13")
    if _VERSIONS[tls.min_version] > _VERSIONS[tls.max_version]:
        raise _wrong("tls_server_config.min_version", "above max_version")
    context.minimum_version = _VERSIONS[tls.min_version]
    context.maximum_version = _VERSIONS[tls.max_version]


def _suites(context: ssl.SSLContext, tls: _Tls) -> None:
    if not tls.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    for name in tls.cipher_suites:
        if name not in _SUITES and name not in _TLS13_SUITES:
            raise _wrong("tls_server_config.cipher_suites", f"{name!r} is not a suite of Go's crypto/tls")
    chosen = [_SUITES[name] for name in tls.cipher_suites if name in _SUITES]
    if not chosen:
        if tls.cipher_suites:  # only suites of TLS 1.3, so TLS 1.2 is not possible
            context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(chosen))
    except ssl.SSLError as e:
        raise _wrong("tls_server_config.cipher_suites", "OpenSSL of this machine allows none of them") from e


def _curve(context: ssl.SSLContext, tls: _Tls) -> None:
    at = "tls_server_config.curve_preferences"
    if len(tls.curve_preferences) > 1:
        raise _wrong(at, "only one curve is supported; give one or omit the key")
    for name in tls.curve_preferences:
        if name not in _CURVES:
            raise _wrong(at, f"{name!r} is not one of {', '.join(_CURVES)}")
        try:
            context.set_ecdh_curve(_CURVES[name])
        except (ValueError, ssl.SSLError) as e:
            raise _wrong(at, f"{name} is not available on this machine") from e


def _clients(context: ssl.SSLContext, tls: _Tls, files: WebConfigFiles) -> None:
    at = "tls_server_config.client_auth_type"
    if tls.client_auth_type in {"RequestClientCert", "RequireAnyClientCert"}:
        raise _wrong(at, f"{tls.client_auth_type} accepts unverified certificates; use RequireAndVerifyClientCert")
    if tls.client_auth_type not in _CLIENT_AUTH:
        raise _wrong(at, f"{tls.client_auth_type!r} is not one of {', '.join(k for k in _CLIENT_AUTH if k)}")
    context.verify_mode = _CLIENT_AUTH[tls.client_auth_type]
    has_ca = bool(tls.client_ca or tls.client_ca_file)
    if has_ca != (context.verify_mode != ssl.CERT_NONE):
        raise _wrong(at, "client_ca_file without it has no effect" if has_ca else "client_ca_file is missing")
    if tls.client_allowed_sans and context.verify_mode != ssl.CERT_REQUIRED:
        raise _wrong("tls_server_config.client_allowed_sans", "needs client_auth_type RequireAndVerifyClientCert")
    if has_ca:
        _trust(context, _pem("client_ca", tls.client_ca, tls.client_ca_file, files))


def _trust(context: ssl.SSLContext, authority: bytes) -> None:
    try:
        context.load_verify_locations(cadata=authority.decode("ascii"))
    except (ssl.SSLError, ValueError) as e:
        raise _wrong("tls_server_config.client_ca_file", f"not a certificate in PEM ({_ssl_reason(e)})") from e


def _same_form(name: str) -> str:
    """A name in one notation: OpenSSL and people write IP addresses differently."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _ssl_reason(e: Exception) -> str:
    reason = getattr(e, "reason", None)
    return str(reason).replace("_", " ").lower() if reason else str(e)


# --- headers, users, tokens, rate ------------------------------------------------------------------------------------


def _headers(http: _Http) -> tuple[tuple[bytes, bytes], ...]:
    if http.http2:
        raise _wrong("http_server_config.http2", "HTTP/2 is not supported; omit the key or set it to false")
    for name, value in http.headers.items():
        at = f"http_server_config.headers.{name}"
        if name not in _HEADERS:
            raise _wrong(at, f"cannot be set; {', '.join(_HEADERS)} can")
        if value and _HEADERS[name] and value not in _HEADERS[name]:
            raise _wrong(at, f"{value!r} is not {' or '.join(_HEADERS[name])}")
        if not (value.isascii() and value.isprintable()) and value:
            raise _wrong(at, "has characters that a header cannot carry")
    return tuple((name.lower().encode(), value.encode()) for name, value in http.headers.items() if value)


def _users(users: dict[str, str | _User]) -> dict[str, KnownUser]:
    given = {name: one if isinstance(one, _User) else _User(hash=one) for name, one in users.items()}
    return {name: _user(name, one) for name, one in given.items()}


def _user(name: str, given: _User) -> KnownUser:
    at, found = f"basic_auth_users.{name}", _BCRYPT.fullmatch(given.hash)
    if not found:
        raise _wrong(at, "not a bcrypt hash; `htpasswd -nBC 10 NAME` makes one")
    if not 4 <= int(found[1]) <= MAX_COST:
        raise _wrong(at, f"cost {int(found[1])} is not from 4 to {MAX_COST}; 10 is usual")
    if not name or ":" in name:
        raise _wrong("basic_auth_users", f"{name!r} cannot be the name of a user")
    return KnownUser(hash=given.hash.encode(), caller=_caller(name, given, at))


def _caller(name: str, given: _Permissions, at: str) -> Caller:
    return Caller(name=name, role=given.role, namespaces=_namespaces(given.namespaces, f"{at}.namespaces"))


def _namespaces(given: list[str] | UnsetType, at: str) -> tuple[str, ...] | None:
    if given is UNSET:
        return None
    if not given:
        raise _wrong(at, "names no namespace; leave the key out for all namespaces")
    for name in given:
        if not _NAMESPACE.fullmatch(name):
            raise _wrong(at, f"{name!r} is not the name of a namespace")
    return tuple(sorted(set(given)))


def _tokens(given: list[_Token], files: WebConfigFiles) -> tuple[KnownToken, ...]:
    found: dict[bytes, KnownToken] = {}
    for index, token in enumerate(given):
        at = f"bearer_tokens[{index}]"
        digest = _digest(token, files, at)
        if digest in found:
            raise _wrong(at, f"the same token as {found[digest].caller.name!r}")
        found[digest] = KnownToken(digest=digest, caller=_caller(token.name, token, at))
    return tuple(found.values())


def _digest(token: _Token, files: WebConfigFiles, at: str) -> bytes:
    if bool(token.sha256) == bool(token.file):
        raise _wrong(at, "needs either sha256 or file")
    if token.file:
        secret = files.read(files.at(token.file)).strip()
        if len(secret) < 16:
            raise _wrong(f"{at}.file", "holds fewer than 16 characters; `openssl rand -hex 32` makes a good token")
        return tokens.digest(secret)
    if not _SHA256.fullmatch(token.sha256):
        raise _wrong(f"{at}.sha256", "not 64 hexadecimal digits; `printf %s TOKEN | sha256sum` makes them")
    if bytes.fromhex(token.sha256) == tokens.digest(b""):
        raise _wrong(f"{at}.sha256", "the digest of an empty token; probably the variable with the token was not set")
    return bytes.fromhex(token.sha256)


def _interval(rate: _RateLimit) -> float:
    try:
        interval = duration.seconds(rate.interval) if isinstance(rate.interval, str) else float(rate.interval)
    except ValueError as e:
        raise _wrong("rate_limit.interval", str(e)) from e
    if not 0 <= interval <= 86400:
        raise _wrong("rate_limit.interval", "not from 0 to 24h")
    if interval and rate.burst < 1:
        raise _wrong("rate_limit.burst", "at least 1, or no request is ever served")
    return interval
