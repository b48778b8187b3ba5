"""Set up each worker once, in an initializer; ship no connection or table with the tasks.

Arguments are pickled again for every task, or every chunk of a map(): a large one can
cost more than the work. Connections cannot be pickled, locks only be inherited. A
socket or file that fork copies stays one with the parent's: each reads what was for the
other. An initializer runs once in each worker; its initargs cross once, and may be
locks and queues.

Scope: small plain arguments may travel. If the initializer raises, an executor breaks,
    but a multiprocessing.Pool replaces its workers for ever. InterpreterPoolExecutor
    (3.14+) pickles too, without a process, and ignores chunksize; a global that the
    initializer only assigns is lost there, hence WORKER.
Symptom: more workers make it slower. The parent's CPU is busy pickling. Or
    RuntimeError: Lock objects should only be shared between processes through
    inheritance; TypeError: cannot pickle 'sqlite3.Connection' object. Or the same
    traceback of an initializer without end. Or NotShareableError.
Look for: a client, lock, model or table among the arguments of submit() or map(); bound
    methods of large objects.
Sources: https://docs.python.org/3/library/concurrent.futures.html#processpoolexecutor
    https://github.com/python/cpython/pull/133957
"""

import os
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context

from kit import broken, check, exits, fixed, main, prints, program, raises, returns, spins

SPAWN = get_context("spawn")
WORKER = {}  # each worker's own


def work(lock):
    with lock:
        return "done"


@broken(raises(RuntimeError, "Lock objects should only be shared"))
def ship_the_lock():
    with ProcessPoolExecutor(2, SPAWN) as pool:
        return pool.submit(work, SPAWN.Lock()).result()


def keep(given):
    WORKER["given"] = given


def work_locked():
    return work(WORKER["given"])


@fixed(returns("done"))
def inherit_the_lock():
    lock = SPAWN.Lock()
    with ProcessPoolExecutor(2, SPAWN, keep, (lock,)) as pool:
        return pool.submit(work_locked).result()


class Table(dict):
    pickled = 0

    def __reduce__(self):
        Table.pickled += 1
        return dict, (dict(self),)


def look_up(table, key):
    return table[key]


def look_up_kept(key):
    return WORKER["given"][key]


@broken(returns(100))
def ship_with_each_task():
    table = Table(key=1)
    with ProcessPoolExecutor(1, SPAWN) as pool:
        list(pool.map(partial(look_up, table), ["key"] * 100))
    return table.pickled


@fixed(returns(1))
def ship_to_each_worker():
    table = Table(key=1)
    with ProcessPoolExecutor(1, SPAWN, keep, (table,)) as pool:
        list(pool.map(look_up_kept, ["key"] * 100))
    return table.pickled


SHIPPED_CONNECTION = """\
import sqlite3
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

def square(database, number):
    return database.execute("SELECT ? * ?", (number, number)).fetchone()[0]

if __name__ == "__main__":
    database = sqlite3.connect(":memory:")
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        print(pool.submit(square, database, 3).result())
"""

PER_WORKER_SETUP = """\
import sqlite3
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

WORKER = {}  # each worker's own

def open_database(path):
    WORKER["database"] = sqlite3.connect(path)

def square(number):
    found = WORKER["database"].execute("SELECT ? * ?", (number, number))
    return found.fetchone()[0]  # plain data

if __name__ == "__main__":
    with ProcessPoolExecutor(
        max_workers=2, mp_context=get_context("spawn"),
        initializer=open_database, initargs=(":memory:",),
    ) as pool:
        print(sum(pool.map(square, range(1000), chunksize=100)))
"""

shipped_connection = broken(raises(TypeError, "cannot pickle 'sqlite3.Connection' object"))(program(SHIPPED_CONNECTION))

per_worker_setup = fixed(exits(0) & prints("332833500"))(program(PER_WORKER_SETUP))


@check(returns([2, 0]), posix="Windows has no fork")
def chunks_and_the_start_method_decide():
    table = Table(key=1)
    with ProcessPoolExecutor(1, SPAWN) as pool:
        list(pool.map(partial(look_up, table), ["key"] * 100, chunksize=50))
    with_chunks, Table.pickled = table.pickled, 0
    with ProcessPoolExecutor(1, get_context("fork"), keep, (table,)) as pool:
        pool.submit(look_up_kept, "key").result()
    return [with_chunks, table.pickled]


@check(returns(b"second"), posix="Windows has no fork")
def forked_handle_takes_from_the_parent():
    reader, writer = os.pipe()
    os.write(writer, b"first-second")
    child = get_context("fork").Process(target=os.read, args=(reader, 6))
    child.start()
    child.join()
    return os.read(reader, 6)


def fail():
    raise OSError("no database")


@check(returns(["BrokenProcessPool", "BrokenThreadPool"]) & prints("no database"))
def initializer_fails_in_executors():
    with ProcessPoolExecutor(1, SPAWN, fail) as processes, ThreadPoolExecutor(1, initializer=fail) as threads:
        futures = [processes.submit(abs, -1), threads.submit(abs, -1)]
        return [type(future.exception()).__name__ for future in futures]


@check(spins("no database", times=3, at="pool.apply("))
def initializer_fails_in_a_pool():
    with SPAWN.Pool(1, initializer=fail) as pool:
        pool.apply(abs, (-1,))


NO_INTERPRETERS = raises(ImportError, "cannot import name 'InterpreterPoolExecutor'")


def fill(buffer):
    buffer[0] = 1


@check(returns([100, 1, True, 0, 1]), since=(3, 14), before=NO_INTERPRETERS)
def interpreters_pickle_whatever_the_chunksize_and_share_a_memoryview():
    from concurrent.futures import InterpreterPoolExecutor

    table, counts, copied, shared = Table(key=1), [], bytearray(1), bytearray(1)
    with InterpreterPoolExecutor(1) as pool:
        list(pool.map(partial(look_up, table), ["key"] * 100, chunksize=100))
        counts.append(table.pickled)
        list(pool.map(fill, [copied, memoryview(shared)]))
    Table.pickled = 0
    with InterpreterPoolExecutor(1, initializer=keep, initargs=(table,)) as pool:
        list(pool.map(look_up_kept, ["key"] * 100))
        same_process = pool.submit(os.getpid).result() == os.getpid()
        return [*counts, table.pickled, same_process, copied[0], shared[0]]


@check(
    returns(["NotShareableError", "NotShareableError", "RuntimeError", "ImportError", "BrokenInterpreterPool"]),
    since=(3, 14),
    before=NO_INTERPRETERS,
    posix="Windows has no os.fork",
)
def interpreters_refuse():
    from concurrent.futures import InterpreterPoolExecutor

    with InterpreterPoolExecutor(1) as pool, InterpreterPoolExecutor(1, initializer=fail) as failing:
        futures = [
            pool.submit(id, threading.Lock()),
            pool.submit(lambda: os.getpid()),  # reads a global
            pool.submit(os.fork),
            pool.submit(__import__, "faulthandler"),  # and other modules in C
            failing.submit(abs, -1),
        ]
        return [type(future.exception()).__name__ for future in futures]


if __name__ == "__main__":
    main()
