"""Hold one lock around open, write and close: turns alone lose rows.

Each process of chromadb has the index in memory, and writes it over what another wrote.
Two that take turns, each with an open client, lost 30 of 80 rows to search in
silence. So open what others wrote, under the lock.

Scope: local file systems; not for reads.
Symptom: count() is right and query() does not find rows. Or "table collections already
    exists" when several open an empty path at once; or "Error in compaction".
Look for: PersistentClient in more than one process that writes; a lock around add() only;
    add() in what is tried again, where upsert() belongs.
Sources: https://github.com/MemPalace/mempalace/issues/1581
"""

# /// script
# dependencies = ["chromadb>=1.5.2,<2"]
# ///

import fcntl
import multiprocessing
import os
import signal
import tempfile
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from isolated import Isolated, of_chromadb
from kit import broken, check, fixed, leaves, main, returns

os.environ["ANONYMIZED_TELEMETRY"] = "False"
POSIX = "flock and forkserver are POSIX's"
SOON = {"hnsw": {"sync_threshold": 20, "batch_size": 20}}  # not after 1000


class Store:
    def __init__(self, path):
        import chromadb

        client = chromadb.PersistentClient(path)
        self.close = client.close
        self.notes = client.get_or_create_collection("notes", configuration=SOON)

    def upsert(self, ids):
        self.notes.upsert(list(map(str, ids)), [[id] * 8 for id in ids])

    def find(self):
        near = self.notes.query(query_embeddings=[[id] * 8 for id in range(80)])
        lost = [int(ids[0]) for ids in near["ids"]] != [*range(80)]
        return self.notes.count(), "lost" if lost else "found"


def write_in_turns(generation):
    with tempfile.TemporaryDirectory() as path:
        one, two, fresh = (Isolated(Store, path, (), generation) for _ in range(3))
        for first in range(0, 80, 20):
            one.call("upsert", range(first, first + 10))
            two.call("upsert", range(first + 10, first + 20))
        return fresh.call("find")


@broken(returns((80, "lost")) & leaves(files=1), posix=POSIX)
def lock_the_write():
    return write_in_turns(lambda *_: ("same",))


@fixed(returns((80, "found")) & leaves(files=1), posix=POSIX)
def open_what_others_wrote():
    return write_in_turns(of_chromadb)


@check(returns((80, "found")) & leaves(files=1), posix=POSIX)
def control_with_one_writer():
    with tempfile.TemporaryDirectory() as path:
        one, fresh = Isolated(Store, path), Isolated(Store, path)
        for first in range(0, 80, 10):
            one.call("upsert", range(first, first + 10))
        return fresh.call("find")


def write_by_hand(path, ids):
    """The same without isolated.py."""
    with open(f"{os.path.realpath(path)}.lock", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        store = Store(path)
        store.upsert(ids)
        store.close()


@fixed(returns((80, "found")), posix=POSIX)
def lock_open_write_close():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["chromadb"])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "db")
        with ProcessPoolExecutor(2, context) as pool:
            batches = [range(10 * turn, 10 * turn + 10) for turn in range(8)]
            list(pool.map(write_by_hand, [path] * 8, batches))
        with ProcessPoolExecutor(1, context) as pool:
            return pool.submit(find, path).result()


def find(path):
    return Store(path).find()


def die_after_a_write(path):
    store = Store(path)
    store.upsert(range(10))
    os.kill(os.getpid(), signal.SIGKILL)  # before it could say so


def write_again(path):
    store = Store(path)
    stored = store.notes.count()
    store.upsert(range(10))
    return stored, store.notes.count()


@check(returns((10, 10)), posix=POSIX)
def unacknowledged_write_may_be_there():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["chromadb"])
    with tempfile.TemporaryDirectory() as path:
        with ProcessPoolExecutor(1, context) as pool:
            error = pool.submit(die_after_a_write, path).exception()
        assert type(error) is BrokenProcessPool
        with ProcessPoolExecutor(1, context) as pool:
            return pool.submit(write_again, path).result()


if __name__ == "__main__":
    main()
