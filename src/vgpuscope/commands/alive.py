"""`vgpuscope alive`."""

import argparse
import os
from typing import TYPE_CHECKING

from vgpuscope.commands.command import EXITS, Command
from vgpuscope.model.service import AGENT_PORT, default_url

if TYPE_CHECKING:
    from vgpuscope.config import Config

_WITHIN = 4.0  # seconds


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "url",
        nargs="?",
        metavar="URL",
        help="Address of the service. [default: every service of the settings; one that answers is enough]",
    )


def _run(args: argparse.Namespace) -> int:
    urls = [args.url] if args.url else _urls(_settings())
    found = next((url for url in urls if _answers(url)), None)
    print(f"alive: {found}" if found else f"not alive: {', '.join(urls)}")
    return 0 if found else 1


def _settings() -> "Config":
    from vgpuscope import config

    file = config.settings_file(None, os.environ, sections=config.Config.__struct_fields__).path
    return config.load(flags={}, environ=os.environ, file=file).config


def _urls(config: "Config") -> list[str]:
    from vgpuscope.http import address

    return [address.local_url(section.listen) for section in (config.analyzer, config.agent, config.cluster)]


def _answers(url: str) -> bool:
    """Whether /healthz answers with 200, over HTTP or TLS. The certificate is not checked: it names another host."""
    import http.client
    import ssl
    from urllib.parse import urlsplit

    place = urlsplit(url)
    host, port = place.hostname or "127.0.0.1", place.port or (443 if place.scheme == "https" else 80)
    unverified = ssl._create_unverified_context()  # noqa: S323
    for connection in (
        http.client.HTTPConnection(host, port, timeout=_WITHIN / 2),
        http.client.HTTPSConnection(host, port, timeout=_WITHIN / 2, context=unverified),
    ):
        try:
            connection.request("GET", f"{place.path.rstrip('/')}/healthz")
            if connection.getresponse().status == http.client.OK:
                return True
        except ssl.SSLError as e:
            if "ALERT" in (e.reason or ""):
                return True  # the service wants a client certificate, so it listens
        except (OSError, http.client.HTTPException):
            continue
        finally:
            connection.close()
    return False


COMMAND = Command(
    name="alive",
    synopsis="alive [URL]",
    help="ask a service on this machine whether it is alive",
    description="Ask /healthz of a service; exit code 0 if it answers, 1 otherwise. The image's health check runs it.",
    examples=(
        ("vgpuscope alive", "any service, on the ports of the settings"),
        (f"vgpuscope alive {default_url(AGENT_PORT)}", "the agent"),
    ),
    arguments=_arguments,
    run=_run,
    exits={**EXITS, 0: "the service is alive", 1: "it does not answer"},
)
