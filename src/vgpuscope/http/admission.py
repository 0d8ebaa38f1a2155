"""Which callers may run an operation: first the limits per client, then the caller's role."""

from starlette.requests import Request

from vgpuscope.http.client_limits import ClientLimits
from vgpuscope.http.identity import Identity
from vgpuscope.http.operations import Operation, caller_of
from vgpuscope.model.caller import Caller


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
        return caller
