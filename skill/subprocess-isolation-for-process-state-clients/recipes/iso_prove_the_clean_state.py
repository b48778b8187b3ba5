"""Prove before a hand-off that no old state is left; until then write down who holds it.

Where nothing isolates a client, somebody has to know who holds state, where, since when.
"Clean" is shown: no deleted file is open, the client's table has nothing for the path, a
fresh process answers the same.

Scope: each process can show only what it holds itself.
Symptom: "works after a restart" is in the instructions. A verifier passes, and the user's
    session, which was open already, still sees the old data.
Look for: rmtree in a reset, a fixture or a migration, and then the word clean.
Sources: https://github.com/chroma-core/chroma/pull/7565
"""

# /// script
# dependencies = ["chromadb>=1.5.2,<2"]
# ///

import multiprocessing
import os
import shutil
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from kit import broken, check, fixed, main, returns

os.environ["ANONYMIZED_TELEMETRY"] = "False"
LINUX = "what is open is read in Linux's /proc"


def survivors(path):
    """What this process still has of an earlier state of the path."""
    from chromadb.api.shared_system_client import SharedSystemClient

    fds = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    deleted = [file for file in map(os.path.realpath, fds) if "(deleted)" in file]
    known = SharedSystemClient._identifier_to_system
    return {each for each in [*deleted, *known] if each.startswith(path)}


def wipe(path, close):
    import chromadb

    client = chromadb.PersistentClient(path)
    client.create_collection("notes")
    close(client)
    shutil.rmtree(path)
    for _ in range(100):  # close() lets go within milliseconds
        if survivors(path):
            time.sleep(0.01)
    return survivors(path)


@broken(returns(2), linux=LINUX)
def forget_the_client():
    with tempfile.TemporaryDirectory() as folder:
        return len(wipe(os.path.join(folder, "db"), lambda client: None))


@fixed(returns(0), linux=LINUX)
def close_the_client():
    with tempfile.TemporaryDirectory() as folder:
        return len(wipe(os.path.join(folder, "db"), lambda client: client.close()))


def client_with_notes(path):
    import chromadb

    client = chromadb.PersistentClient(path)
    client.create_collection("notes")
    return client


class Holder(NamedTuple):
    """Who has what open: the line to keep where nothing isolates yet."""

    pid: int
    since: float
    path: str
    files: tuple
    version: str


def holder(path):
    import chromadb

    found = os.stat(os.path.join(path, "chroma.sqlite3"))
    return Holder(os.getpid(), time.time(), path, (found.st_dev, found.st_ino), chromadb.__version__)


def holds_what_is_there(record):
    name = os.path.join(record.path, "chroma.sqlite3")
    if not os.path.exists(name):
        return False
    found = os.stat(name)
    return record.files == (found.st_dev, found.st_ino)


@check(returns([True, False]), linux=LINUX)
def record_tells_who_is_stale():
    with tempfile.TemporaryDirectory() as folder:
        client = client_with_notes(path := os.path.join(folder, "db"))
        record = holder(path)
        before = holds_what_is_there(record)
        os.rename(path, f"{path}-old")
        in_a_fresh_process(client_with_another, path)
        after = holds_what_is_there(record)
        client.close()
        return [before, after]


def client_with_another(path):
    client_with_notes(path).create_collection("others")


def names(path):
    import chromadb

    return sorted(each.name for each in chromadb.PersistentClient(path).list_collections())


def in_a_fresh_process(operation, path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["chromadb"])
    with ProcessPoolExecutor(1, context) as pool:
        return pool.submit(operation, path).result()


@check(returns([["notes", "others"], ["notes", "others"]]), linux=LINUX)
def fresh_process_agrees():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "db")
        client_with_notes(path).close()
        shutil.rmtree(path)
        in_a_fresh_process(client_with_another, path)
        return [names(path), in_a_fresh_process(names, path)]


if __name__ == "__main__":
    main()
