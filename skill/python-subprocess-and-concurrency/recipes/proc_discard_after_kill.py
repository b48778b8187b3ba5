"""After a kill give the next worker new locks and queues: the old ones may stay taken.

Whoever is killed, by kill(), the OOM killer or a crash, gives nothing back. No lock,
semaphore or queue of multiprocessing knows its holder: it stays taken, without an error,
and a queue may hold half a message. So build the worker and all it shares as one, and
when it dies throw all of it away. Wait for its sentinel beside its answer: a queue has
no end.

Scope: a pipe of its own ends with a worker (EOFError), and flock() on a file is released.
    A new executor needs a new lock in its initargs, too. See `proc-stop-cooperatively`.
Symptom: a new worker stands still like the old. Or after an OOM kill all workers wait in
    acquire() or get(), at no CPU, for a process that is gone.
Look for: a restarted worker that gets the same Lock or Queue; get() without a look at
    exitcode; BrokenProcessPool, and the same initargs.
Sources: https://docs.python.org/3/library/multiprocessing.html#programming-guidelines
    https://github.com/birdnet-team/birdnet/issues/73
"""

import os
import signal
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


def start(lock):
    here, there = SPAWN.Pipe()
    child = SPAWN.Process(target=work, args=(lock, there), daemon=True)
    child.start()
    there.close()
    return child, here


@broken(hangs(at="worker.recv()"))
def next_one_gets_the_same_lock():
    lock = SPAWN.Lock()
    for _ in range(2):
        child, worker = start(lock)
        worker.recv()  # it holds the lock
        child.kill()


@fixed(returns(None))
def next_one_gets_a_new_lock():
    for _ in range(2):
        lock = SPAWN.Lock()
        child, worker = start(lock)
        worker.recv()
        child.kill()


def answer(queue):
    os.kill(os.getpid(), signal.SIGKILL)
    queue.put("answer")


@broken(hangs(at="queue.get()"), posix=POSIX)
def queue_has_no_end():
    queue = SPAWN.SimpleQueue()
    SPAWN.Process(target=answer, args=(queue,), daemon=True).start()
    return queue.get()


@fixed(returns(-9), posix=POSIX)
def look_at_the_sentinel():
    queue = SPAWN.SimpleQueue()
    child = SPAWN.Process(target=answer, args=(queue,), daemon=True)
    child.start()
    connection.wait([queue._reader, child.sentinel])
    if not queue.empty():
        return queue.get()
    child.join()
    return child.exitcode


@check(raises(EOFError, ""))
def pipe_of_its_own_ends():
    lock = SPAWN.Lock()
    child, worker = start(lock)
    worker.recv()
    child.kill()
    return worker.recv()


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
    here, there = SPAWN.Pipe()
    child = SPAWN.Process(target=hold_the_file, args=(there,), daemon=True)
    child.start()
    here.recv()
    with open("lock") as file:
        try:
            lock_file(file, "LOCK_EX")
        except BlockingIOError:
            child.kill()
            child.join()
            lock_file(file, "LOCK_EX")
            return "busy, then free"


if __name__ == "__main__":
    main()
