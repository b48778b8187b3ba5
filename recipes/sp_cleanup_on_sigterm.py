"""Let SIGTERM raise SystemExit, clean up, and die of it at last; it skips each `finally`.

SIGTERM, from kill, systemd, Docker or CI, ends Python on the spot: no `finally`, no
`with`, no atexit. Children in their own sessions and temporary files stay. A handler
can raise, but no Exception: a retry would catch it. A second SIGTERM must not break off
the cleanup, and status 0 looks like success: so die of the signal.

Scope: install it first, in the main thread. It can strike, as Ctrl-C can, in Popen(),
    which leaves the child; in wait(), which may keep its lock: run() hangs; or just
    before a call that blocks, and does. SIGKILL: `sp-plan-for-parent-death`.
Symptom: after `kill`, children and files are left. Or after a deployment. Nothing was
    printed, and the exit status is 143 or -15.
Look for: start_new_session or temporary files without a handler; one that exits 0.
Sources: https://docs.python.org/3/library/atexit.html
    https://github.com/datahub-project/datahub/pull/19456
"""

import atexit
import os
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from subprocess import Popen, run
from unittest import mock

from kit import broken, check, dies, exits, fixed, hangs, leaves, main, raises, returns

KILLS = """read line
while grep -qs ' [RD] ' /proc/$PPID/stat; do :; done
kill $PPID; exec sleep infinity"""
POSIX = "elsewhere nothing sends SIGTERM to another process"


def work():
    run(["sh", "-c", KILLS], input=b"line\n", start_new_session=True)


@broken(dies("SIGTERM") & leaves(1), posix=POSIX)
def end_on_the_spot():
    work()


RECEIVED = []


def terminate(signum, frame):
    signal.signal(signum, lambda *_: None)  # the next one
    RECEIVED.append(signum)
    sys.exit(128 + signum)


def die_of_it():
    if RECEIVED:
        sys.stdout.flush()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)


def clean_up_on_sigterm():
    atexit.register(die_of_it)  # the first one: it runs last
    signal.signal(signal.SIGTERM, terminate)


@fixed(dies("SIGTERM"), posix=POSIX)
def clean_up_and_die():
    clean_up_on_sigterm()
    work()


def send_another():
    signal.raise_signal(signal.SIGTERM)


def remove_a_file_at_exit(before=lambda: None):
    file, path = tempfile.mkstemp()
    os.close(file)
    atexit.register(lambda: before() or os.remove(path))


@broken(dies("SIGTERM") & leaves(1, files=1), posix=POSIX)
def atexit_is_skipped():
    remove_a_file_at_exit()
    work()


@broken(exits(143) & leaves(files=1), posix=POSIX)
def second_one_breaks_it_off():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    remove_a_file_at_exit(before=send_another)
    work()


@fixed(dies("SIGTERM"), posix=POSIX)
def second_one_does_nothing_and_atexit_runs():
    clean_up_on_sigterm()
    remove_a_file_at_exit(before=send_another)
    work()


@check(exits(0), posix=POSIX)
def status_0_looks_like_success():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    work()


@check(returns("goes on"), posix=POSIX)
def retry_catches_an_exception():
    def terminate(signum, frame):
        raise RuntimeError("SIGTERM")

    signal.signal(signal.SIGTERM, terminate)
    try:
        work()
    except Exception:  # noqa: BLE001 - as a retry has it
        return "goes on"


@check(hangs(at="return child.wait()", until=(3, 14)) | returns(0, since=(3, 15)), posix=POSIX)
def timed_wait_can_keep_its_lock():
    clean_up_on_sigterm()
    child, polled = Popen(["true"]), mock.MagicMock()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    lock, child._waitpid_lock = child._waitpid_lock, polled
    polled.acquire.side_effect = lambda *_: lock.acquire() and signal.raise_signal(signal.SIGTERM)
    try:
        return child.wait(60)  # 3.15 does not poll
    except SystemExit:
        child._waitpid_lock = lock
        return child.wait()  # as run() does


@check(raises(ValueError, "signal only works in main thread"))
def main_thread_alone_installs():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(clean_up_on_sigterm).result()


if __name__ == "__main__":
    main()
