"""Ask a worker to stop by a message and join it; terminate() only who shares nothing.

terminate(), like the OOM killer, kills in the middle of whatever the child does. If it
holds a lock, nobody gets that lock again; if it waits in Queue.get(), it holds the
queue's; if it writes to a queue, half a message stays in the pipe and the reader waits
for the rest. finally blocks and atexit do not run. A message, or the end of a pipe, is
seen between two tasks, where nothing is held.

Scope: for a worker that does not answer, join() with a timeout, then kill(), and throw
    away what it shared: `proc-discard-after-kill`. A child that is no daemon keeps its
    parent from exiting; a daemonic one is terminated then, but not when the parent is
    killed (`proc-plan-for-parent-death`), and may have no children.
Symptom: after terminate() the other workers stand still. Or the program does not exit
    after its last line. Or AssertionError: daemonic processes are not allowed to have
    children; ValueError: signal only works in main thread of the main interpreter.
Look for: terminate() or kill() of a process that has a Lock, Queue or Pipe;
    signal.signal() outside of main.
Sources: https://docs.python.org/3/library/multiprocessing.html#multiprocessing.Process.terminate
"""

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context

from kit import broken, check, fixed, hangs, main, raises, returns

SPAWN = get_context("spawn")


def work(lock, boss):
    with lock:
        boss.send("busy")
        boss.recv()  # and stop


def start(target, *args):
    here, there = SPAWN.Pipe()
    child = SPAWN.Process(target=target, args=(*args, there), daemon=True)
    child.start()
    there.close()
    here.recv()
    return child, here


@broken(hangs(at="lock.acquire()"))
def terminate_who_holds_a_lock():
    lock = SPAWN.Lock()
    child, _ = start(work, lock)
    child.terminate()
    child.join()
    return lock.acquire()


@fixed(returns(True))
def ask_who_holds_a_lock():
    lock = SPAWN.Lock()
    child, worker = start(work, lock)
    worker.send("stop")
    child.join()
    return lock.acquire()


def take(queue, boss):
    boss.send("ready")
    while queue.get() is not None:
        pass


def end(child):
    child.terminate()
    child.join()


def wait_until_it_reads(queue):
    while queue._rlock.acquire(block=False):
        queue._rlock.release()
        time.sleep(0)


@broken(hangs(at="queue.get()"))
def terminate_who_waits_for_a_queue():
    queue = SPAWN.SimpleQueue()
    child, _ = start(take, queue)
    wait_until_it_reads(queue)
    end(child)
    queue.put("task")
    return queue.get()


@fixed(returns("task"))
def send_a_sentinel():
    queue = SPAWN.SimpleQueue()
    child, _ = start(take, queue)
    queue.put(None)
    child.join()
    queue.put("task")
    return queue.get()


def give(queue, boss):
    boss.send("ready")
    queue.put("x" * 1_000_000)


@check(hangs(at="queue.get()"))
def terminate_who_writes_to_a_queue():
    queue = SPAWN.SimpleQueue()
    child, _ = start(give, queue)
    while queue.empty():
        time.sleep(0)
    end(child)
    return queue.get()


def clean_up(boss):
    try:
        boss.send("ready")
        while not boss.poll(0.01):  # a signal that comes before a read would be seen after it
            pass
    finally:
        boss.send("cleaned up")


@check(raises(EOFError, ""))
def terminate_skips_finally():
    child, worker = start(clean_up)
    child.terminate()
    return worker.recv()


@check(returns("cleaned up"), since=(3, 14), before=raises(AttributeError, "interrupt"))
def interrupt_runs_finally():
    child, worker = start(clean_up)
    child.interrupt()
    child.join()
    return worker.recv()


@check(returns([False, True]), since=(3, 14), before=raises(AttributeError, "locked"))
def lock_tells_whether_it_is_held():
    lock = SPAWN.Lock()
    before = lock.locked()
    lock.acquire()
    return [before, lock.locked()]


@check(raises(ValueError, "signal only works in main thread"))
def handlers_belong_to_the_main_thread():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(signal.signal, signal.SIGTERM, signal.SIG_IGN).result()


def start_a_child():
    SPAWN.Process(target=print).start()


@check(raises(AssertionError, "daemonic processes are not allowed to have children"))
def daemons_have_no_children():
    with SPAWN.Pool(1) as pool:  # its workers are daemons
        pool.apply(start_a_child)


def exit_with_a_child(daemon):
    source = f"""\
import multiprocessing, os
reader, writer = os.pipe()
multiprocessing.get_context("fork").Process(target=os.read, args=(reader, 1), daemon={daemon}).start()
"""
    return subprocess.run([sys.executable, "-c", source], stdin=subprocess.DEVNULL).returncode


@check(hangs(at="subprocess.run("), posix="Windows has no fork")
def child_keeps_its_parent_from_exiting():
    exit_with_a_child(daemon=False)


@check(returns(0), posix="Windows has no fork")
def daemon_is_terminated_at_exit():
    return exit_with_a_child(daemon=True)


if __name__ == "__main__":
    main()
