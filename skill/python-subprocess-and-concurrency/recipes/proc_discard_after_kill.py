"""After a kill give the next worker new locks and queues: the old ones may stay taken.

A process that is killed or crashes gives nothing back, and nobody is told: a lock stays
taken, a queue's get() waits for the rest of half a message, Event.set() for a waiter
that is dead. So build workers and what they share as one; when one dies, end the others
and build all anew.

Scope: a pipe of its own ends with a worker, once the parent has closed its copy of the
    worker's end: EOFError, or OSError amid a message. flock() is released. A new
    executor needs new initargs, too. See `proc-stop-cooperatively`.
Symptom: a new worker stands still like the old. Or after an OOM kill all workers wait in
    acquire() or get(), or Event.set() never returns, at no CPU, for a process that is
    gone. Or OSError: got end of file during message.
Look for: a restarted worker that gets the same Lock or Queue; get() without a look at
    exitcode; BrokenProcessPool, and the same initargs.
Sources: https://docs.python.org/3/library/multiprocessing.html#multiprocessing.Process.terminate
    https://github.com/birdnet-team/birdnet/issues/73
    https://github.com/CroatianMeteorNetwork/RMS/pull/935
"""

import os
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, get_context

from kit import broken, check, fixed, hangs, leaves, main, raises, returns

SPAWN = get_context("spawn")
POSIX = "Windows has no flock and no SIGKILL"


def work(lock, boss):
    with lock:
        boss.send("busy")
        boss.recv()


def start(target, *args):
    here, there = SPAWN.Pipe()
    child = SPAWN.Process(target=target, args=(*args, there), daemon=True)
    child.start()
    there.close()
    return child, here


def end(child):
    child.kill()
    child.join()


@broken(hangs(at="worker.recv()"))
def next_one_gets_the_same_lock():
    lock = SPAWN.Lock()
    for _ in range(2):
        child, worker = start(work, lock)
        worker.recv()  # it holds the lock
        end(child)


@fixed(returns(None))
def next_one_gets_a_new_lock():
    for _ in range(2):
        lock = SPAWN.Lock()
        child, worker = start(work, lock)
        worker.recv()
        end(child)


def put(queue, _):
    queue.put("x" * 1_000_000)


@broken(hangs(at="queue.get()"))
def look_at_the_sentinel_beside_a_queue():
    queue = SPAWN.SimpleQueue()
    child, _ = start(put, queue)
    while queue.empty():
        time.sleep(0)
    end(child)  # in the middle of its answer
    if queue._reader in connection.wait([queue._reader, child.sentinel]):
        return queue.get()
    return child.exitcode


def send(size, boss):
    boss.send("x" * size)
    os.kill(os.getpid(), signal.SIGKILL)


def receive(child, worker, grace=5):
    try:
        return worker.recv()
    except (EOFError, OSError) as error:
        child.join(grace)
        end(child)  # it may have closed the pipe, and live
        raise RuntimeError(f"worker ended: {child.exitcode}") from error


@fixed(raises(RuntimeError, "worker ended: -9"), posix=POSIX)
def look_at_a_pipe_of_its_own():
    child, worker = start(send, 1_000_000)
    worker.poll(None)
    end(child)  # in the middle of its answer
    return receive(child, worker)


@check(returns(["x", "worker ended: -9"]), posix=POSIX)
def pipe_ends_after_the_last_answer():
    child, worker = start(send, 1)
    answer = receive(child, worker)
    try:
        receive(child, worker)
    except RuntimeError as error:
        return [answer, str(error)]


def close_and_live(boss):
    boss.close()
    signal.pause()


@check(raises(RuntimeError, "worker ended: -9"), posix=POSIX)
def who_closes_its_pipe_is_ended():
    receive(*start(close_and_live), grace=0)


def wait_for_more_than_the_length(worker):
    import fcntl  # POSIX only
    import termios

    while int.from_bytes(fcntl.ioctl(worker, termios.FIONREAD, bytes(4)), sys.byteorder) <= 4:
        time.sleep(0)


@check(raises(OSError, "got end of file during message"), posix=POSIX)
def half_a_message_is_no_eoferror():
    child, worker = start(send, 1_000_000)
    wait_for_more_than_the_length(worker)
    end(child)
    worker.recv()


@check(hangs(at="[first, here.recv()]"), posix=POSIX)
def pipe_has_no_end_while_the_parent_holds_it():
    here, there = SPAWN.Pipe()
    SPAWN.Process(target=send, args=(1, there), daemon=True).start()
    first = here.recv()
    return [first, here.recv()]


def wait(event, _):
    event.wait()


@check(hangs(at="event.set()"))
def event_waits_for_the_killed():
    event = SPAWN.Event()
    child, _ = start(wait, event)
    while event._cond._sleeping_count._semlock._is_zero():
        time.sleep(0)
    end(child)
    event.set()


LOCK = []


def keep(lock):
    LOCK.append(lock)


def die():
    LOCK[0].acquire()
    os.kill(os.getpid(), signal.SIGKILL)


def take():
    return LOCK[0].acquire()


def use_two_pools(first, second):
    with ProcessPoolExecutor(1, SPAWN, keep, (first,)) as pool:
        error = pool.submit(die).exception()
    with ProcessPoolExecutor(1, SPAWN, keep, (second,)) as pool:
        return type(error) is BrokenProcessPool and pool.submit(take).result()


@broken(hangs(at="result()"), posix=POSIX)
def new_pool_has_the_old_lock():
    lock = SPAWN.Lock()
    return use_two_pools(lock, lock)


@fixed(returns(True), posix=POSIX)
def new_pool_has_a_new_lock():
    return use_two_pools(SPAWN.Lock(), SPAWN.Lock())


def lock_file(file, how):
    import fcntl  # POSIX only

    fcntl.flock(file, getattr(fcntl, how) | fcntl.LOCK_NB)


def hold_the_file(boss):
    with open("lock", "w") as file:
        lock_file(file, "LOCK_EX")
        boss.send("held")
        boss.recv()


@fixed(returns("busy, then free") & leaves(files=1), posix=POSIX)
def file_lock_ends_with_its_holder():
    child, worker = start(hold_the_file)
    worker.recv()
    with open("lock") as file:
        try:
            lock_file(file, "LOCK_EX")
        except BlockingIOError:
            end(child)
            lock_file(file, "LOCK_EX")
            return "busy, then free"


if __name__ == "__main__":
    main()
