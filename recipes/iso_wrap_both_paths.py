"""Put reads behind the same boundary as writes: one of them outside goes stale alone.

Where a worker ingests and the service queries, a wipe gives the worker new files; the
service reads on in the deleted ones: old rows, no error. After a plain write count() is
right, query() is not.

Scope: not for data that never changes. Writers need a lock, too (`iso-one-writer`).
Symptom: the service says 20 rows, a fresh process says 5. After a wipe reads go on, and
    writes fail with "attempt to write a readonly database" (code: 1032).
Look for: PersistentClient in the service beside a script or a worker that ingests.
Sources: https://github.com/chroma-core/chroma/issues/6499
    https://github.com/chroma-core/chroma/issues/3792
"""

# /// script
# dependencies = ["chromadb>=1.5.2,<2"]
# ///

import multiprocessing
import os
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor

from kit import broken, check, fixed, main, returns

LINUX = "deleted files are still read on POSIX; counted in Linux's /proc"


os.environ["ANONYMIZED_TELEMETRY"] = "False"
FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(["chromadb"])


def notes_at(path):
    import chromadb

    return chromadb.PersistentClient(path).get_or_create_collection("notes")


def add(path, number):
    ids = list(map(str, range(number)))
    notes_at(path).upsert(ids=ids, embeddings=[[1.0]] * number)


def count(path):
    return notes_at(path).count()


def in_a_worker(operation, *arguments):
    with ProcessPoolExecutor(1, FORKSERVER) as pool:
        return pool.submit(operation, *arguments).result()


@broken(returns("20 here, 5 there"), linux=LINUX)
def write_in_a_worker_read_here():
    with tempfile.TemporaryDirectory() as path:
        in_a_worker(add, path, 20)
        notes = notes_at(path)
        notes.count()
        shutil.rmtree(path)
        in_a_worker(add, path, 5)
        return f"{notes.count()} here, {in_a_worker(count, path)} there"


@fixed(returns(5), linux=LINUX)
def both_in_a_worker():
    with tempfile.TemporaryDirectory() as path:
        in_a_worker(add, path, 20)
        shutil.rmtree(path)
        in_a_worker(add, path, 5)
        return in_a_worker(count, path)


@broken(returns("counts 30, finds 20"), linux=LINUX)
def read_here_what_a_worker_added():
    with tempfile.TemporaryDirectory() as path:
        in_a_worker(add, path, 20)
        notes = notes_at(path)
        near = {"query_embeddings": [[1.0]], "n_results": 30}
        notes.query(**near)
        in_a_worker(add, path, 30)
        return f"counts {notes.count()}, finds {len(notes.query(**near)['ids'][0])}"


def deleted_files(path):
    links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    names = {os.readlink(link) for link in links if os.path.islink(link)}
    return sorted(os.path.basename(name) for name in names if name.startswith(path) and "(deleted)" in name)


@check(returns((20, True, True)), linux=LINUX)
def wiped_client_reads_and_cannot_write():
    with tempfile.TemporaryDirectory() as path:
        add(path, 20)
        notes = notes_at(path)
        notes.count()
        shutil.rmtree(path)
        found = notes.count(), "chroma.sqlite3 (deleted)" in deleted_files(path)
        try:
            notes.add(ids=["x"], embeddings=[[1.0]])
        except Exception as error:  # noqa: BLE001 - its class is chromadb's
            os.mkdir(path)  # for the context manager
            return (*found, "(code: 1032) attempt to write a readonly database" in str(error))


if __name__ == "__main__":
    main()
