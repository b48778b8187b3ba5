"""Check that what is said to reset a client lets go: of files, of caches, in all objects.

chromadb keeps a system per path in a table of the class, and hands it to each client made
for that path; dropping a client drops none of it. close(), from 1.5.2, counts clients,
and the last one lets go: use `with`. clear_system_cache() empties the table only: old
objects read on, and closing one ends the new client. reset() deletes your data.

Scope: close() is enough where you reach every client of the process and know when to.
    Two spellings of a path are two systems.
Symptom: a new client on a wiped path answers with the old rows. gc.collect() and del
    change nothing; "no such table: tenants" comes when the file was truncated instead.
Look for: del client; clear_system_cache(); reset() in tests; a client without close().
Sources: https://github.com/chroma-core/chroma/issues/2446
    https://github.com/chroma-core/chroma/pull/7565
"""

# /// script
# dependencies = ["chromadb>=1.0,<2"]
# ///

import gc
import os
import shutil
import tempfile

from kit import broken, check, fixed, main, returns

os.environ["ANONYMIZED_TELEMETRY"] = "False"
CLOSES = "chromadb>=1.5.2,<2"
LINUX = "deleted files are still read on POSIX; counted in Linux's /proc"


def client_at(path, **settings):
    import chromadb

    return chromadb.PersistentClient(path, chromadb.Settings(**settings))


def names_after_a_wipe(path):
    """What a new client sees, once the collection of the old one is gone."""
    shutil.rmtree(path)
    client = client_at(path)
    return [collection.name for collection in client.list_collections()]


@broken(returns(["notes"]), linux=LINUX)
def drop_the_client():
    with tempfile.TemporaryDirectory() as path:
        client = client_at(path)
        client.create_collection("notes")
        del client
        gc.collect()
        return names_after_a_wipe(path)


@fixed(returns([]), linux=LINUX, needs=CLOSES)
def close_the_client():
    with tempfile.TemporaryDirectory() as path:
        with client_at(path) as client:
            client.create_collection("notes")
        return names_after_a_wipe(path)


def deleted_files(path):
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    names = [os.readlink(link) for link in links if os.path.islink(link)]
    return sum(name.startswith(path) and name.endswith("(deleted)") for name in names)


@broken(
    returns(["new sees []", "old sees ['notes']", "old holds files", "old.close() ends the new"]),
    linux=LINUX,
    needs=CLOSES,
)
def clear_the_cache():
    from chromadb.api.shared_system_client import SharedSystemClient

    with tempfile.TemporaryDirectory() as path:
        old = client_at(path)
        old.create_collection("notes")
        old.list_collections()
        shutil.rmtree(path)
        SharedSystemClient.clear_system_cache()
        new = client_at(path)
        found = [
            f"new sees {[each.name for each in new.list_collections()]}",
            f"old sees {[each.name for each in old.list_collections()]}",
            "old holds files" if deleted_files(path) else "nothing deleted is held",
        ]
        old.close()
        try:
            new.list_collections()
        except AttributeError as error:
            assert "has no attribute 'bindings'" in str(error)
            found.append("old.close() ends the new")
        return found


@check(returns([1, 0, 1]), linux=LINUX, needs=CLOSES)
def last_close_lets_go():
    from chromadb.api.shared_system_client import SharedSystemClient as shared

    with tempfile.TemporaryDirectory() as path:
        first, second = client_at(path), client_at(path)
        second.create_collection("notes")
        first.close()
        first.close()  # once more is no error
        counted = len(shared._identifier_to_system)
        found = len(second.list_collections())
        second.close()
        return [counted, len(shared._identifier_to_system), found]


@check(returns([]))
def reset_deletes_the_data():
    with tempfile.TemporaryDirectory() as path:
        client = client_at(path, allow_reset=True)
        client.create_collection("notes")
        client.reset()
        return [each.name for each in client.list_collections()]


@check(returns([False, False]), needs="chromadb>=1.0,<1.5")
def older_clients_cannot_be_closed():
    with tempfile.TemporaryDirectory() as path:
        client = client_at(path)
        return [hasattr(client, "close"), hasattr(client, "__exit__")]


if __name__ == "__main__":
    main()
