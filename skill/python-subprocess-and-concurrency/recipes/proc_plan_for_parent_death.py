"""Let each worker watch its parent: no worker, daemonic or not, ends when that is killed.

daemon=True and `with` end workers when the parent exits by itself. SIGKILL, the OOM
killer or a crash runs neither. An executor's worker goes on and then waits for a task
for ever: it holds both ends of the queue itself. parent_process().join() comes back when
the parent is gone.

Scope: a thread of C code that keeps the GIL keeps the watch from ending. fork copies the
    parent's end into each child that is forked later: who does not watch keeps the others.
    PR_SET_PDEATHSIG means the thread that forked. Commands: `sp-plan-for-parent-death`.
Symptom: workers run on after `kill -9`. Or after an OOM kill or a restart: they have
    parent 1, hold memory, ports and GPUs, and nobody gives them work.
Look for: executors, Pool and Process in services and in what others supervise.
Sources: https://docs.python.org/3/library/multiprocessing.html#multiprocessing.parent_process
    https://github.com/python/cpython/issues/111873
"""

import ctypes
import os
import signal
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
    os._exit(1)


def watch_parent():
    Thread(target=end_with_parent, daemon=True).start()


@fixed(dies("SIGKILL"), posix=POSIX)
def worker_ends_with_its_parent():
    with ProcessPoolExecutor(1, SPAWN, initializer=watch_parent) as pool:
        pool.submit(abs, -1).result()
        die()


def work(boss, watches):
    if watches:
        watch_parent()
    boss.send("up")
    while True:
        signal.pause()


def start(method, watches):
    context = get_context(method)
    here, there = context.Pipe()
    child = context.Process(target=work, args=(there, watches), daemon=True)
    child.start()
    here.recv()
    return child, here


METHODS = ("spawn", "forkserver", "fork")


@broken(dies("SIGKILL") & leaves(3, files=1), posix=POSIX)  # the fork server leaves its socket
def daemonic_children_outlive_their_parent():
    children = [start(method, watches=False) for method in METHODS]
    die()
    return children


@fixed(dies("SIGKILL") & leaves(files=1), posix=POSIX)
def children_of_each_start_method_watch():
    children = [start(method, watches=True) for method in METHODS]
    die()
    return children


@check(dies("SIGKILL") & leaves(2), posix=POSIX)
def sibling_forked_later_keeps_the_watch_waiting():
    children = [start("fork", watches=True), start("fork", watches=False)]
    die()
    return children


@check(dies("SIGKILL") & leaves(1), posix=POSIX)
def sibling_spawned_later_does_not():
    children = [start("spawn", watches=True), start("spawn", watches=False)]
    die()
    return children


@check(dies("SIGKILL"), posix=POSIX)
def idle_worker_of_a_pool_sees_the_end():
    with SPAWN.Pool(1) as pool:
        pool.apply(abs, (-1,))
        die()


def ask_for_a_signal(boss):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    boss.send("up")
    while True:
        signal.pause()


@check(returns(-9), linux="prctl")
def death_signal_means_the_thread():
    here, there = SPAWN.Pipe()
    child = SPAWN.Process(target=ask_for_a_signal, args=(there,), daemon=True)

    def start_it():
        child.start()
        here.recv()

    thread = Thread(target=start_it)
    thread.start()
    thread.join()
    child.join()
    return child.exitcode


if __name__ == "__main__":
    main()
