"""Stop a thread by an event that it looks at, and join it; from outside nothing ends it.

A daemon is left where it stands when the program ends: `finally` never runs, its file
stays half written, the exit status is 0. Future.cancel() refuses what has begun, and a
timeout ends only the waiting. PyThreadState_SetAsyncExc is accepted, but raises when
the thread is back in Python code: never, if a read blocks for ever.

Scope: a blocked call looks at no event: close its other end, or send it a last message.
    C code that never returns, such as a bad regular expression, can be ended only with
    its process. A daemon is fine where nothing is lost in the middle. Stated earlier
    for async: python-async-best-practices, `async-no-blocking-event-loop`.
Symptom: half-written files, and the exit status is 0. Or locks left behind. Or a
    timeout was raised, and what it was to stop goes on.
Look for: daemon=True; SetAsyncExc; cancel() or a timeout, and nothing that tells the
    work.
Sources: https://docs.python.org/3/library/threading.html#thread-objects
    https://github.com/kata198/func_timeout/issues/12
"""

import ctypes
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

from kit import broken, check, fixed, hangs, leaves, main, returns

BAD_REGEX = "import re; print('in', flush=True); re.match('(a+)+b', 'a' * 99)"


def export(stop, begun):
    with open("rows.tmp", "w") as file:
        begun.set()
        while not stop.wait(timeout=60):
            file.write("another row\n")
    os.remove("rows.tmp")


@broken(returns(None) & leaves(files=1))
def daemon_is_abandoned():
    stop, begun = Event(), Event()
    Thread(target=export, args=(stop, begun), daemon=True).start()
    begun.wait()


@fixed(returns(None))
def told_and_joined():
    stop, begun = Event(), Event()
    thread = Thread(target=export, args=(stop, begun))
    thread.start()
    try:
        begun.wait(timeout=60)  # the program's work
    finally:
        stop.set()
        thread.join()


def raise_in(thread):
    ident = ctypes.c_ulong(thread.ident)
    return ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(InterruptedError))


def start_reading():
    """Returns a thread that stands in a read, what it says, and the other end of its pipe."""

    def read():
        try:
            said.append(os.read(reader, 1))
        except InterruptedError:
            said.append("interrupted")

    said = []
    reader, writer = os.pipe()
    sys.setswitchinterval(20)  # it keeps the GIL until it stands there
    thread = Thread(target=read)
    thread.start()
    return thread, said, writer


@broken(hangs(at="thread.join()"))
def exception_from_outside():
    thread, _, _ = start_reading()
    raise_in(thread)
    thread.join()  # the exception waits for the end of the read


@fixed(returns([b""]))
def the_other_end_is_closed():
    thread, said, writer = start_reading()
    os.close(writer)
    thread.join()
    return said


@check(returns((1, ["interrupted"])))
def the_exception_is_accepted_and_comes_late():
    thread, said, writer = start_reading()
    accepted = raise_in(thread)
    os.write(writer, b".")
    thread.join()
    return accepted, said


@check(returns((False, False, True)))
def cancel_refuses_what_runs():
    begun, release = Event(), Event()
    with ThreadPoolExecutor(1) as pool:
        runs = pool.submit(lambda: (begun.set(), release.wait()))
        waits = pool.submit(abs, -1)
        begun.wait()
        answer = runs.cancel(), runs.done(), waits.cancel()
        release.set()
    return answer


@check(returns((b"in\n", -9)), posix="the status of a child that was killed")
def a_process_can_be_killed():
    argv = [sys.executable, "-c", BAD_REGEX]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
        heard = child.stdout.readline()
        child.kill()
    return heard, child.returncode


if __name__ == "__main__":
    main()
