"""`vgpuscope notify`: a trial message from this process, with the settings that the analyzer would have."""

import asyncio
import logging
from collections.abc import Mapping

from vgpuscope.config import SettingsFile
from vgpuscope.services.analyzer.notices.notices import Notices, check_notices
from vgpuscope.services.analyzer.settings.settings import Settings
from vgpuscope.terminal.screen import speak_plainly


def main(
    channel: str | None, *, flags: Mapping[str, object], environ: Mapping[str, str], file: SettingsFile | None
) -> int:
    """List the channels, or send through one; CallFailed if its service does not take the message."""
    speak_plainly()
    logging.getLogger("vgpuscope").setLevel(logging.CRITICAL)  # errors are printed
    settings = Settings(flags=flags, environ=environ, file=file.path if file else None, check=check_notices)
    notices = Notices(lambda: settings.config)
    try:
        if channel is None:
            return _listed(notices)
        asyncio.run(notices.trial(channel))
    finally:
        notices.close()
    print(f"{channel}: the message was taken")
    return 0


def _listed(notices: Notices) -> int:
    rows = [(name, one.sender.service, one.style.language) for name, one in notices.channels().items()]
    if not rows:
        print("no channel: notify.channels is empty")
        return 0
    table = [("CHANNEL", "SERVICE", "LANGUAGE"), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0
