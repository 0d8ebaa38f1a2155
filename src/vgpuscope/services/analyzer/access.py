"""Who may do what: the identity of a caller, sessions of the console, and the rate limit of clients."""

import secrets
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from starlette.requests import Request

from vgpuscope.config import AnalyzerConfig
from vgpuscope.http import address
from vgpuscope.http.admission import IdentityAdmission
from vgpuscope.http.client_limits import ClientLimits
from vgpuscope.http.console_files import is_console
from vgpuscope.http.identity import ApiToken, Identity
from vgpuscope.http.operations import Operation, open_paths
from vgpuscope.http.sessions import SessionCookie, Sessions, session_key
from vgpuscope.model.caller import Caller
from vgpuscope.model.quantity import Seconds

if TYPE_CHECKING:
    from vgpuscope.services.frame import Guard


class AnalyzerAccess:
    """The admission of the settings of now."""

    def __init__(
        self, config: Callable[[], AnalyzerConfig], *, clock: Callable[[], Seconds], hosted: bool = False
    ) -> None:
        """`clock` is a monotonic clock, for the rate limit. `hosted`: another server listens, at an unknown address."""
        self._config, self._clock, self._hosted = config, clock, hosted
        self._guard: Guard | None = None
        self._session_key = secrets.token_bytes(32)  # if no other is configured
        self.renew()

    def guard(self, guard: "Guard | None") -> None:
        """Check passwords and certificates with this guard from now on."""
        self._guard = guard
        self.renew()

    def renew(self) -> None:
        """Let changed settings take effect."""
        config, guard = self._config(), self._guard
        token = ApiToken(config.api_token, _token_holder(config))

        def bound() -> bytes:
            return sha256(token.fingerprint + (guard.fingerprint if guard else b"")).digest()

        key = session_key(config.session_key, config.api_token) or self._session_key
        self.sessions = Sessions(key, lifetime=config.session_lifetime, bound=bound)
        identity = _identity(config, guard, token, SessionCookie(self.sessions), hosted=self._hosted)
        self.admission = IdentityAdmission(identity, ClientLimits(config.rate_limit, clock=self._clock))

    @property
    def identity(self) -> Identity:
        return self.admission.identity

    def admit(self, request: Request, operation: Operation) -> Caller:
        return self.admission.admit(request, operation)


def needs_no_credentials(operations: Sequence[Operation]) -> Callable[[Request], bool]:
    """Whether a request is for an open operation or for the console's files: without these nobody could log in."""
    is_open = open_paths(operations)
    return lambda request: is_open(request.url.path) or is_console(request)


def _token_holder(config: AnalyzerConfig) -> Caller:
    return Caller(name="token", role=config.api_token_role, namespaces=config.api_token_namespaces or None)


def _identity(
    config: AnalyzerConfig, guard: "Guard | None", token: ApiToken, session: SessionCookie, *, hosted: bool
) -> Identity:
    return Identity(
        guard=guard,
        api_token=token,
        session=session,
        user_header=config.proxy_user_header,
        role_header=config.proxy_role_header,
        protect_reads=config.protect_reads,
        listen_host=None if hosted else address.split(config.listen)[0],
    )
