"""Let each worker watch its parent and end with it; SIGKILL skips `with` and daemon=True.

Both end workers only when the parent exits by itself. SIGKILL, the OOM killer or a
crash tells nobody. An executor's worker then waits for its next task for ever: it
holds both ends of the queue itself. parent_process().join() returns when the parent
is gone.

Scope: no `finally` runs; what the worker has started must watch in turn. C code that
    keeps the GIL delays the end. A sibling forked later that does not watch does, too.
    PR_SET_PDEATHSIG means the thread that forked. Idle workers of a Pool end by
    themselves. Commands: `sp-plan-for-parent-death`.
Symptom: workers run on after `kill -9`. Or after an OOM kill or a restart: they have
    parent 1, hold memory, ports and GPUs, and nobody gives them work.
Look for: executors, Pool and Process in services and in what others supervise.
Sources: https://docs.python.org/3/library/multiprocessing.html#multiprocessing.parent_process
    https://github.com/python/cpython/issues/111873
"""

import ctypes
import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread

from kit import broken, check, dies, fixed, leaves, main, returns

SPAWN = get_context("spawn")
POSIX = "Windows has no SIGKILL"


def die():
    os.kill(os.getpid(), signal.SIGKILL)


@broken(dies("SIGKILL") & leaves(1), posix=POSIX)
def worker_outlives_its_parent():
    with ProcessPoolExecutor(1, SPAWN) as pool:
        pool.submit(abs, -1).result()
        die()


def end_with_parent():
    parent_process().join()
    os._exit(1)  # sys.exit() would end this thread alone


def watch_parent():
    Thread(target=end_with_parent, daemon=True).start()


@fixed(dies("SIGKILL"), posix=POSIX)
def worker_ends_with_its_parent():
    with ProcessPoolExecutor(1, SPAWN, initializer=watch_parent) as pool:
        pool.submit(abs, -1).result()
        die()


@check(returns(1))
def watching_does_not_keep_a_worker_alive():
    with ProcessPoolExecutor(1, SPAWN, initializer=watch_parent) as pool:
        return pool.submit(abs, -1).result()


def work(boss, watches):
    if watches:
        watch_parent()
    os.write(boss.fileno(), b"!")
    while True:
        signal.pause()


def start(method, target, *args):
    context = get_context(method)
    here, there = context.Pipe()
    child = context.Process(target=target, args=(there, *args), daemon=True)
    child.start()
    there.close()
    if os.read(here.fileno(), 1) != b"!":
        sys.exit("it has died")
    return child


METHODS = ("spawn", "forkserver", "fork")


@broken(dies("SIGKILL") & leaves(3, files=1), posix=POSIX)  # the fork server leaves its socket
def daemonic_children_outlive_their_parent():
    for method in METHODS:
        start(method, work, False)
    die()


@fixed(dies("SIGKILL") & leaves(files=1), posix=POSIX)
def children_of_each_start_method_watch():
    for method in METHODS:
        start(method, work, True)
    die()


@check(dies("SIGKILL") & leaves(2), posix=POSIX)
def sibling_forked_later_holds_up_the_watch():
    start("fork", work, True)
    start("fork", work, False)
    die()


@check(dies("SIGKILL") & leaves(1), posix=POSIX)
def sibling_spawned_later_does_not():
    start("spawn", work, True)
    start("spawn", work, False)
    die()


def keep_the_gil(boss):
    watch_parent()
    sys.setswitchinterval(3600)  # never asked to give it up between the two calls
    libc = ctypes.PyDLL(None)
    libc.write(boss.fileno(), b"!", 1)
    libc.pause()


@check(dies("SIGKILL") & leaves(1), posix=POSIX, free_threaded=dies("SIGKILL"))
def watch_waits_for_the_gil():
    start("spawn", keep_the_gil)
    die()


@check(dies("SIGKILL"), posix=POSIX)
def idle_workers_of_a_pool_see_the_end():
    with get_context("fork").Pool(2) as forked, SPAWN.Pool(2) as spawned:
        forked.apply(abs, (-1,))
        spawned.apply(abs, (-1,))
        die()


def ask_for_a_signal(boss):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    work(boss, False)


@check(returns([-9]), linux="prctl() is Linux'")
def death_signal_means_the_thread():
    children = []
    thread = Thread(target=lambda: children.append(start("spawn", ask_for_a_signal)))
    thread.start()
    thread.join()
    children[0].join()
    return [child.exitcode for child in children]


if __name__ == "__main__":
    main()
