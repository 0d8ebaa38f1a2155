"""A process that ends when the one that started it does, however that ended."""

import os
import signal
import threading


def end_with_stdin() -> None:
    """From now on the end of standard input is a SIGTERM to this process."""
    # A demo that is killed outright cannot end what it started; the pipe it held tells them.
    threading.Thread(target=_watch_stdin, name="stdin", daemon=True).start()


def _watch_stdin() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
