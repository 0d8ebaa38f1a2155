"""The certificate authorities that clients trust. Reading them takes about 20 ms, so a process reads them once."""

import os
import ssl
from functools import lru_cache

import httpx2


def authorities() -> ssl.SSLContext:
    """Those of SSL_CERT_FILE or SSL_CERT_DIR, else the system's, and those of VGPUSCOPE_CA_FILE besides.

    OSError if they cannot be read.
    """
    return _read(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"), os.environ.get("VGPUSCOPE_CA_FILE"))


@lru_cache(maxsize=1)
def _read(_file: str | None, _directory: str | None, more: str | None) -> ssl.SSLContext:
    context = httpx2.create_ssl_context()
    if more:
        context.load_verify_locations(more)
    return context
