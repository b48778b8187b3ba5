"""Put reads behind the same boundary as writes: a client left outside goes stale.

A client keeps the index that it loaded: it counts rows that a worker adds, and never
finds them. After a wipe it reads on in deleted files. Run every operation in a worker.

Scope: not for data that never changes. Writers need a lock, too (`iso-one-writer`).
Symptom: count() has the new rows and query() has not. Or the service says 20 rows and a
    fresh process 5, and writes fail with "(code: 1032) attempt to write a readonly
    database". Now and then one is accepted and lost, or a read says 0, NotFoundError
    or "Missing metadata segment", since a connection that the pool opens later is on
    the new file: it was so in 11 of 150 series of four calls, more under load.
Look for: PersistentClient in a service beside a script or a worker that ingests.
Sources: https://github.com/chroma-core/chroma/issues/3792
    https://github.com/chroma-core/chroma/issues/6499
"""

# /// script
# dependencies = ["chromadb>=1.5.2,<2"]
# ///

import multiprocessing
import os
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor

from kit import broken, fixed, main, returns

os.environ["ANONYMIZED_TELEMETRY"] = "False"
POSIX = "there is no forkserver on Windows"
FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(["chromadb"])
V = [1.0] * 8


def client_at(path):
    import chromadb

    return chromadb.PersistentClient(path)


def add(path, rows):
    notes = client_at(path).get_or_create_collection("notes")
    notes.upsert(ids=list(map(str, range(rows))), embeddings=[V] * rows)


def look(notes):
    ids = notes.query(query_embeddings=[V], n_results=30)["ids"][0]
    return f"counts {notes.count()}, finds {len(ids)}"


def look_at(path):
    return look(client_at(path).get_collection("notes"))


def call(do, *args):
    with ProcessPoolExecutor(1, FORKSERVER) as pool:
        return pool.submit(do, *args).result()


@broken(returns("counts 30, finds 20"), posix=POSIX)
def write_there_read_here():
    with tempfile.TemporaryDirectory() as path:
        call(add, path, 20)
        notes = client_at(path).get_collection("notes")
        look(notes)
        call(add, path, 30)
        return look(notes)


@fixed(returns("counts 30, finds 30"), posix=POSIX)
def both_there():
    with tempfile.TemporaryDirectory() as path:
        call(add, path, 20)
        call(add, path, 30)
        return call(look_at, path)


def serve(path, orders, answers):
    """A service that keeps its collection."""
    notes = client_at(path).get_collection("notes")
    answers.put(look(notes))
    orders.get()
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    held = [os.readlink(link) for link in links if os.path.islink(link)]
    holds = "deleted" if f"{path}/chroma.sqlite3 (deleted)" in held else "not deleted"
    answers.put((holds, attempt(notes.count), attempt(notes.upsert, ids=["x"], embeddings=[V])))


def attempt(do, **arguments):
    import chromadb

    try:
        return do(**arguments)
    except chromadb.errors.ChromaError as error:
        return "1032" if "(code: 1032) attempt to write a readonly database" in str(error) else "another failure"


@broken(
    returns(["counts 20, finds 20", ("deleted", 20, "1032"), "counts 5, finds 5"]),
    linux="deleted files are looked for in /proc",
)
def wipe_and_ingest_beside_a_service():
    """Done again where the service's pool chanced to open a connection since, which has another view: now and then."""
    while True:
        with tempfile.TemporaryDirectory() as path:
            call(add, path, 20)
            orders, answers = FORKSERVER.SimpleQueue(), FORKSERVER.SimpleQueue()
            service = FORKSERVER.Process(target=serve, args=(path, orders, answers), daemon=True)
            service.start()
            before = answers.get()
            shutil.rmtree(path)
            call(add, path, 5)
            orders.put("go on")
            after = answers.get()
            service.join()
            there = call(look_at, path)
        if not {0, None, "another failure"} & set(after) or there != "counts 5, finds 5":
            return [before, after, there]


if __name__ == "__main__":
    main()
