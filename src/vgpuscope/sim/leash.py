"""Ends a process when the process that started it ends, even if that was killed."""

import os
import signal
import threading


def end_with_stdin() -> None:
    """From now on, the end of standard input sends SIGTERM to this process."""
    # A killed demo cannot stop its child processes, but the pipe to their standard input closes.
    threading.Thread(target=_watch_stdin, name="stdin", daemon=True).start()


def _watch_stdin() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
