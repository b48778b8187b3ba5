"""Verify that a reset lets go: count what the process still holds after it.

chromadb keeps a system per path in a table of the class. Dropping a client drops none;
the last close() (from 1.5.2) does: use `with`. clear_system_cache() empties the table
only: old clients read on, and closing one ends the new one. reset() deletes your data.

Scope: close() is enough where you reach every client of the path; "db/" is another one.
Symptom: a new client on a wiped path has the old rows. del and gc.collect() change
    nothing. After a cache reset: AttributeError: 'RustBindingsAPI' object has no
    attribute 'bindings'.
Look for: del client; clear_system_cache(); reset() in tests; a client without close().
Sources: https://github.com/chroma-core/chroma/pull/6373
    https://github.com/MemPalace/mempalace/pull/2421
"""

# /// script
# dependencies = ["chromadb>=1.0,<2"]
# ///

import contextlib
import gc
import os
import shutil
import tempfile
import time

from kit import broken, check, fixed, main, returns

os.environ["ANONYMIZED_TELEMETRY"] = "False"
os.environ["ALLOW_RESET"] = "True"
CLOSES = "chromadb>=1.5.2,<2"
LINUX = "deleted files are looked for in /proc"


def client_at(path):
    import chromadb

    return chromadb.PersistentClient(path)


def held(path):
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    files = {os.readlink(each) for each in links if os.path.islink(each)}
    return [name[len(path) :] for name in files if path in name]


@broken(returns(["/chroma.sqlite3 (deleted)"]), linux=LINUX)
def drop_the_client():
    with tempfile.TemporaryDirectory() as path:
        client = client_at(path)
        client.create_collection("notes")
        del client
        gc.collect()
        shutil.rmtree(path)
        return held(path)


@fixed(returns([]), linux=LINUX, needs=CLOSES)
def close_the_client():
    with tempfile.TemporaryDirectory() as path:
        with client_at(path) as client:
            client.create_collection("notes")
        while held(path):
            time.sleep(0)  # its threads let go a moment later
        shutil.rmtree(path)
        with client_at(path) as client:
            return client.list_collections()


def until(wanted, ask):
    """Asks until that is the answer: now and then the pool opens a new connection, for which nothing is there."""
    while True:
        with contextlib.suppress(Exception):
            if ask() == wanted:
                return wanted


def names(client):
    return [each.name for each in client.list_collections()]


@broken(
    returns([["notes"], ["notes"], [], True, "'RustBindingsAPI' object has no attribute 'bindings'"]),
    linux=LINUX,
    needs=CLOSES,
)
def clear_the_cache():
    from chromadb.api.shared_system_client import SharedSystemClient

    with tempfile.TemporaryDirectory() as path:
        old = client_at(path)
        old.create_collection("notes")
        shutil.rmtree(path)
        another = until(["notes"], lambda: names(client_at(path)))
        SharedSystemClient.clear_system_cache()
        stale = until(["notes"], lambda: names(old))
        new = client_at(path)
        fresh = names(new)
        holds = "/chroma.sqlite3 (deleted)" in held(path)
        old.close()
        try:
            names(new)
        except AttributeError as error:
            return [another, stale, fresh, holds, str(error)]


@check(returns(["two spellings, 2 systems", ["notes"], [], "closed: 0"]), needs=CLOSES)
def last_close_counts_and_reset_deletes():
    from chromadb.api.shared_system_client import SharedSystemClient as Shared

    with tempfile.TemporaryDirectory() as path:
        first, second = client_at(path), client_at(path)
        with client_at(path + "/"):
            spellings = f"two spellings, {len(Shared._identifier_to_system)} systems"
        first.create_collection("notes")
        first.close()
        first.close()  # once more is no error, and takes nothing from the second
        kept = names(second)
        second.reset()
        reset = names(second)
        second.close()
        return [spellings, kept, reset, f"closed: {len(Shared._identifier_to_system)}"]


@check(returns([False, False]), needs="chromadb>=1.0,<1.5")
def older_clients_cannot_be_closed():
    with tempfile.TemporaryDirectory() as path:
        client = client_at(path)
        return [hasattr(client, "close"), hasattr(client, "__exit__")]


if __name__ == "__main__":
    main()
