"""Give each test its own directory, and a client that is closed or a process that ends.

A new client is no fresh store: all EphemeralClients of a process are one, and so are
all clients of one path. What a test sees then depends on which ran before. A directory
that only it has, as from tmp_path, lets tests run in any order, and in parallel.

Scope: below 1.5.2 a client cannot be closed, and holds its files until the process
    ends. Where the code under test keeps a client, only a process takes it away.
Symptom: "Collection [notes] already exists" in a second test. Tests pass alone, or in
    one order only. Or file descriptors run out after some hundred tests.
Look for: EphemeralClient() or a fixed path in a fixture; a fixture that does not close.
Sources: https://github.com/chroma-core/chroma/issues/1976
    https://github.com/langchain-ai/langchain/issues/13087
    https://docs.pytest.org/en/latest/how-to/tmp_path.html
"""

# /// script
# dependencies = ["chromadb>=1.5.2,<2"]
# ///

import contextlib
import multiprocessing
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor

from kit import broken, check, fixed, main, returns

os.environ["ANONYMIZED_TELEMETRY"] = "False"


def run_test(client):
    notes = client.create_collection("notes")
    notes.add(ids=["a"], embeddings=[[1.0] * 8])
    return notes.count()


@broken(returns([1, "Collection [notes] already exists"]))
def share_the_store_in_memory():
    import chromadb

    first = run_test(chromadb.EphemeralClient())
    try:
        return [first, run_test(chromadb.EphemeralClient())]
    except chromadb.errors.InternalError as error:
        return [first, str(error)]


def store(tmp_path):  # below @pytest.fixture: a fixture
    import chromadb

    with chromadb.PersistentClient(tmp_path) as client:
        yield client


@fixed(returns([1, 1]))
def give_each_its_own():
    with_store = contextlib.contextmanager(store)
    results = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as path, with_store(path) as client:
            results.append(run_test(client))
    return results


BARRIERS = []


def keep(barrier):
    BARRIERS.append(barrier)


def test_code_with_clients_of_its_own(path):
    """What it and the other test make is there when both look."""
    import chromadb

    clients = chromadb.EphemeralClient(), chromadb.PersistentClient(path)
    BARRIERS[0].wait()
    counts = [run_test(client) for client in clients]
    BARRIERS[0].wait()
    return counts + [len(client.list_collections()) for client in clients]


@check(returns([[1, 1, 1, 1], [1, 1, 1, 1]]), posix="there is no forkserver on Windows")
def processes_run_in_parallel():
    forkserver = multiprocessing.get_context("forkserver")
    forkserver.set_forkserver_preload(["chromadb"])
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("one", "two")]
        with ProcessPoolExecutor(2, forkserver, keep, (forkserver.Barrier(2),)) as pool:
            return list(pool.map(test_code_with_clients_of_its_own, paths))


if __name__ == "__main__":
    main()
