"""Use run(); where only Popen will do, kill the child before its `with` block waits for it.

`with Popen(...)` closes the pipes and waits; it kills nothing. An exception in the
block is held back until the child ends, which a server never does. KeyboardInterrupt
alone gets out, after 0.25 s, and leaves the child running. run() kills its child on
every exception. Popen is for talking with a child, or working beside it: there the kill
is yours to write, inside the `with`.

Scope: a child that ends when its pipes are closed, as cat does, hangs nothing. kill()
    ends one process (`sp-kill-the-process-tree`), at once: for an orderly end,
    terminate() and wait(timeout=) come first. SIGTERM runs no finally:
    `sp-cleanup-on-sigterm`.
Symptom: it stands in `with Popen`, without a traceback. That comes when the child has
    been killed. After Ctrl-C the child still runs. With -X dev, for a child that was
    dropped: ResourceWarning: subprocess 4711 is still running
Look for: `with Popen` without a kill() in finally; Popen for what run() does.
Sources: https://docs.python.org/3/library/subprocess.html#popen-constructor
    https://github.com/python/cpython/issues/151139
    https://github.com/python/cpython/pull/5026
"""

import contextlib
import signal
import subprocess
import sys
import warnings

from kit import broken, check, fixed, hangs, leaves, main, prints, raises, returns

SERVER = [sys.executable, "-c", "import threading; threading.Event().wait()"]
INTERRUPT = """read line
while grep -qs ' [RD] ' /proc/$PPID/stat; do :; done  # else it may come just before the wait
kill -INT $PPID; exec sleep infinity"""
INTERRUPTER = ["sh", "-c", INTERRUPT]
POSIX = "elsewhere a child cannot interrupt its parent alone"


@broken(hangs(at="raise ValueError(", until=(3, 9)) | hangs(at="with subprocess.Popen(", since=(3, 10)))
def wait_for_the_server():
    with subprocess.Popen(SERVER):
        raise ValueError("no answer")  # held back


@contextlib.contextmanager
def running(argv):
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL) as child:
        try:
            yield child
        finally:
            child.kill()  # before `with` waits; harmless once it is dead


@fixed(raises(ValueError, "no answer"))
def kill_before_the_wait():
    with running(SERVER):
        raise ValueError("no answer")


@broken(raises(KeyboardInterrupt, "") & leaves(1), posix=POSIX)
def interrupt_popen():
    with subprocess.Popen(INTERRUPTER, stdin=subprocess.PIPE) as child:
        child.communicate(b"line\n")


@fixed(raises(KeyboardInterrupt, ""), posix=POSIX)
def interrupt_run():
    subprocess.run(INTERRUPTER, input=b"line\n")


@check(raises(KeyboardInterrupt, ""))
def interrupt_gets_out_and_the_child_is_killed():
    with running(SERVER):
        raise KeyboardInterrupt


@check(raises(RuntimeError, "in a signal handler"), posix=POSIX)
def run_kills_on_other_exceptions():
    def handler(signum, frame):
        raise RuntimeError("in a signal handler")

    signal.signal(signal.SIGINT, handler)
    subprocess.run(INTERRUPTER, input=b"line\n")


@check(returns(None) & prints(" is still running") & leaves(1))
def dropped_child():
    warnings.simplefilter("always", ResourceWarning)
    subprocess.Popen(SERVER, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
