"""Which callers may run an operation: first the limits per client, then the caller's role."""

from starlette.requests import Request

from vgpuscope.http import tokens
from vgpuscope.http.browser import from_unknown_page
from vgpuscope.http.client_limits import ClientLimits
from vgpuscope.http.identity import Identity, authorization
from vgpuscope.http.operations import Operation, caller_of
from vgpuscope.model.caller import Caller
from vgpuscope.model.errors import Forbidden


class IdentityAdmission:
    """Lets a request in as its caller, or raises 401, 403 or 429."""

    def __init__(self, identity: Identity, limits: ClientLimits) -> None:
        self.identity, self._limits = identity, limits

    def admit(self, request: Request, operation: Operation) -> Caller:
        if not operation.unlimited:
            self._limits.check(request.client.host if request.client else "")
        caller = caller_of(request)
        if not operation.public:
            self.identity.check(caller, operation.role, request)
            by_token = bool(tokens.bearer(authorization(request)))
            if operation.changes and request.method == "GET" and from_unknown_page(request) and not by_token:
                # an image on any page can ask for it, and the browser adds the user's password; no page adds a token
                raise Forbidden(f"a browser's GET may come from any page; use POST {operation.path}, or a token")
        return caller
