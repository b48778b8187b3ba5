"""What the pack's commands do about signals and standard streams, whatever their caller has made of them.

`run` takes over the signals that ask a process to end, so that what was started can be ended first, and gives the exit
status that a caller expects: 130 after SIGINT; after SIGTERM, SIGHUP and a closed pipe the command ends by that signal.

Sources: signal(7), credits to https://www.cons.org/cracauer/sigint.html for dying of the signal.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Callable, NoReturn

if TYPE_CHECKING:
    from types import FrameType

ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Stopped(BaseException):
    """A signal asks the command to end."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class CannotWrite(Exception):
    """Standard output does not take what the command has to say, on a full disk for one."""


def run(work: Callable[[], int], name: str) -> int:
    """Does the work of the command called `name`, and returns its exit status unless it has to die of a signal."""
    open_standard_descriptors()
    take_over_signals()
    try:
        return work()
    except Stopped as stopped:
        complain(name, "interrupted")
        if stopped.signum == signal.SIGINT:
            return 130
        end_by(stopped.signum)
    except BrokenPipeError:  # as `| head` does
        discard(1)
        end_by(signal.SIGPIPE)
    except CannotWrite as error:
        discard(1)
        complain(name, f"cannot write to standard output: {error}")
        return 2


def say(text: str) -> None:
    """Writes a line to standard output; nowhere, if that was closed before the command began.

    Raises CannotWrite, and BrokenPipeError when nobody reads any more.
    """
    if sys.stdout is None:
        return
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CannotWrite(error.strerror) from error


def complain(name: str, text: str) -> None:
    """Writes a line to standard error, if that can be written to; print() alone would take standard output instead."""
    if sys.stderr is not None:
        try:
            print(f"{name}: {text}", file=sys.stderr, flush=True)
        except OSError:
            discard(2)


def take_over_signals() -> None:
    """Makes the first request to end an exception, and lets no other interrupt the cleaning up that follows.

    What the caller has set to be ignored stays so. Not SIGCHLD: who ignores it cannot learn the status of a child.
    """

    def stop(signum: int, _: FrameType | None) -> NoReturn:
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(signum)

    for signum in ENDING:
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, stop)
    if hasattr(signal, "SIGCHLD"):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())


def open_standard_descriptors() -> None:
    """If the caller closed one of 0, 1, 2, the next file opened would get its number, and be written to by mistake."""
    fd = os.open(os.devnull, os.O_RDWR)
    while fd < 3:
        fd = os.dup(fd)
    os.close(fd)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def discard(fd: int) -> None:
    """What could not be written there goes nowhere, or the interpreter would try once more at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), fd)


def end_by(signum: int) -> NoReturn:
    """Ends as if the signal had not been handled: whoever started the command sees the truth."""
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
    raise SystemExit(128 + signum)  # where nothing dies of signals
