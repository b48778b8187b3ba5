"""Start workers by spawn or forkserver: a forked copy of a used client hangs or loses rows.

A fork copies memory and one thread. chromadb's runtime and FAISS's OpenMP wait in the
child for threads that are not there, also for a new client, and after close(); SQLite's
two copies of one transaction both commit, and one of them is lost. What counts is not the
object but that the process has used the library: a server that forks its workers must not
open anything before.

Scope: to have imported it is no harm, nor a fork ahead of all use. fork was long Linux's
    default (`proc-choose-start-method`). FAISS with one thread survives.
Symptom: workers stand still in their first query, at no CPU. It began with a query, a
    warm-up or a health check in the parent; gunicorn's preload_app, Celery's prefork.
Look for: a client or index at module level of a server that forks; os.fork, Process
    or Pool() without a context.
Sources: https://github.com/facebookresearch/faiss/issues/5206
    https://www.sqlite.org/howtocorrupt.html
"""

# /// script
# dependencies = ["chromadb>=1.5.2,<2", "faiss-cpu>=1.10,<2", "numpy>=1.21,<3"]
# ///

import multiprocessing
import os
import sqlite3
import tempfile
from concurrent.futures import ProcessPoolExecutor

from kit import broken, check, fixed, hangs, main, returns

os.environ["ANONYMIZED_TELEMETRY"] = "False"
POSIX = "there is no fork on Windows"


def count(path):
    import chromadb

    client = chromadb.PersistentClient(path)
    return client.get_or_create_collection("notes").count()


def ask_a_worker(method, function, *arguments):
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, context) as pool:
        return pool.submit(function, *arguments).result()


@broken(hangs(at="result()", despite="tokio-rt-worker"), posix=POSIX)
def fork_after_use():
    with tempfile.TemporaryDirectory() as path:
        count(path)
        return ask_a_worker("fork", count, path)


@fixed(returns(0), posix=POSIX)
def spawn_after_use():
    with tempfile.TemporaryDirectory() as path:
        count(path)
        return ask_a_worker("spawn", count, path)


def search(threads):
    import faiss
    import numpy

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexFlatL2(8)
    index.add(numpy.zeros((10_000, 8), "f4"))
    return index.search(numpy.zeros((100, 8), "f4"), 1)[0].shape


@broken(hangs(at="result()"), posix=POSIX)
def fork_after_openmp():
    search(2)
    return ask_a_worker("fork", search, 2)


@fixed(returns((100, 1)), posix=POSIX)
def spawn_after_openmp():
    search(2)
    return ask_a_worker("spawn", search, 2)


@check(returns((100, 1)), posix=POSIX)
def fork_and_then_use_one_thread():
    search(2)
    return ask_a_worker("fork", search, 1)


@broken(returns("100 of 300 committed rows; integrity_check: ok"), posix=POSIX)
def fork_in_a_transaction():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "db")
        database = sqlite3.connect(path)
        database.execute("PRAGMA journal_mode=wal")
        database.execute("CREATE TABLE notes (number)")
        database.commit()
        database.execute("BEGIN")
        add(database, 50)
        child = os.fork()
        add(database, 200 if child == 0 else 50)
        if child == 0:
            database.commit()
            os._exit(0)
        os.waitpid(child, 0)
        database.commit()
        database.close()
        reader = sqlite3.connect(path)
        rows = reader.execute("SELECT count(*) FROM notes").fetchone()[0]
        wrong = reader.execute("PRAGMA integrity_check").fetchone()[0]
        return f"{rows} of 300 committed rows; integrity_check: {wrong}"


def add(database, number):
    database.executemany("INSERT INTO notes VALUES (?)", [(each,) for each in range(number)])


if __name__ == "__main__":
    main()
