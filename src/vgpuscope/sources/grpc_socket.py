"""A call to a gRPC server on a local socket: its deadline, and its failures as our errors."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from h2.exceptions import H2Error

from vgpuscope.model.errors import SourceDown
from vgpuscope.model.quantity import Seconds

# Errors that grpclib raises, besides its own, if the peer does not speak gRPC.
_NOT_GRPC = (GRPCError, StreamTerminatedError, ProtocolError, H2Error, AssertionError, NotImplementedError)


@asynccontextmanager
async def answered(
    path: str, *, within: Seconds, absent: type[SourceDown], down: type[SourceDown]
) -> AsyncIterator[None]:
    """For one call: raises `absent` when there is no socket, `down` when it does not answer."""
    try:
        async with asyncio.timeout(within):
            yield
    except FileNotFoundError as e:
        raise absent(f"{path}: no such socket") from e
    except TimeoutError as e:
        raise down(f"{path}: no answer within {within:g} s") from e
    except OSError as e:
        raise down(f"{path}: {e.strerror or e}") from e
    except _NOT_GRPC as e:
        raise down(f"{path}: {_reason(e)}") from e


def _reason(error: Exception) -> str:
    if isinstance(error, GRPCError):
        return f"{error.status.name}: {error.message}"
    return str(error) or type(error).__name__
