"""Before each call compare what is at the path now with what the worker opened.

A worker that stays saves the import, and goes stale like any client. Each cheap sign
misses something: the directory's inode a wipe of its contents, the database's a restore
in place, both an index folder that is gone. Times and sizes miss nothing that was tested,
but change whenever somebody opens the store. So isolated.py looks twice: stat() tells
that something changed (10 us), and only then the rows whether anything was written (0.5
ms). If so it closes and opens again in the worker (20-50 ms).

Scope: what changes between look and answer shows at the next call; a process per call is
    no better. Writers take the lock (`iso-one-writer`). Measured on Linux's ext4.
Symptom: answers from before a wipe, a restore or a rebuild. A nightly restart hides it.
    Or each call opens the store again, since readers make each other do so.
Look for: st_ino, st_mtime or a version file as the only sign; a cache keyed by path.
Sources: https://www.sqlite.org/fileformat2.html#file_change_counter
"""

# /// script
# dependencies = ["chromadb>=1.5.2,<2"]
# ///

import contextlib
import os
import shutil
import tempfile

from isolated import CHROMADB, Isolated, of_chromadb, of_file
from kit import broken, fixed, main, returns

LINUX = "inodes and forkserver are as measured on Linux"


def rebuild(path, text):
    name = os.path.join(path, "chroma.sqlite3")
    if os.path.exists(name):
        os.remove(name)
    with open(name, "w") as file:
        file.write(text)


@broken(returns("nothing changed"), linux=LINUX)
def look_at_the_directory():
    with tempfile.TemporaryDirectory() as path:
        rebuild(path, "old")
        seen = os.stat(path).st_ino
        rebuild(path, "other")
        return "changed" if os.stat(path).st_ino != seen else "nothing changed"


@fixed(returns("changed"), linux=LINUX)
def look_at_the_generation():
    with tempfile.TemporaryDirectory() as path:
        rebuild(path, "old")
        seen = of_chromadb(path, deep=False)
        rebuild(path, "other")
        return "changed" if of_chromadb(path, deep=False) != seen else "nothing changed"


class Store:
    opened = 0

    def __init__(self, path):
        import chromadb

        settings = chromadb.Settings(anonymized_telemetry=False)
        self.client = chromadb.PersistentClient(path, settings)
        Store.opened += 1

    def close(self):
        self.client.close()

    def ids(self):
        notes = self.client.get_collection("notes")
        near = notes.query(query_embeddings=[[0.0, 0.0]], n_results=99)["ids"][0]
        return sorted(notes.get()["ids"]), sorted(near), Store.opened

    def add(self, *ids):
        soon = {"hnsw": {"sync_threshold": 3, "batch_size": 3}}  # to have an index
        notes = self.client.get_or_create_collection("notes", configuration=soon)
        notes.upsert(ids=list(ids), embeddings=[[1.0, 1.0]] * len(ids))


def open_store(path):
    return Store(path)


def of_database(path, deep):
    return of_file(os.path.join(path, "chroma.sqlite3"))


@contextlib.contextmanager
def checked_and_fresh(generation=of_chromadb):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "db")
        checked = Isolated(open_store, path, {"ids"}, generation, preload=CHROMADB)
        fresh = Isolated(open_store, path, {"ids"}, fresh=True, preload=CHROMADB)
        with checked, fresh:
            checked.call("add", *"abcd")
            shutil.copytree(path, os.path.join(folder, "backup"))
            yield path, os.path.join(folder, "backup"), checked, fresh


def needless_openings(checked, fresh):
    *_, before = checked.call("ids")
    for _ in range(2):
        fresh.call("ids")
        *_, now = checked.call("ids")
    return now - before


@broken(returns("2 needless openings"), linux=LINUX)
def look_at_the_database_only():
    with checked_and_fresh(of_database) as (_, _, checked, fresh):
        return f"{needless_openings(checked, fresh)} needless openings"


def wipe_contents(path):
    for each in os.scandir(path):
        shutil.rmtree(each) if each.is_dir() else os.remove(each)


def restore_in_place(path, backup):
    for folder, _, names in os.walk(backup):
        for name in names:
            source = os.path.join(folder, name)
            target = os.path.join(path, os.path.relpath(source, backup))
            with open(source, "rb") as read, open(target, "r+b") as written:
                shutil.copyfileobj(read, written)
                written.truncate()


def delete_the_index(path):
    for each in os.scandir(path):
        if each.is_dir():
            shutil.rmtree(each)


@fixed(returns("0 of 6 answers stale, 0 needless openings"), linux=LINUX)
def look_twice():
    with checked_and_fresh() as (path, backup, checked, fresh):
        events = [
            lambda: fresh.call("add", *"efgh"),
            lambda: delete_the_index(path),
            lambda: [wipe_contents(path), fresh.call("add", *"ijkl")],
            lambda: [shutil.rmtree(path), shutil.copytree(backup, path)],
            lambda: fresh.call("add", *"mnop"),
            lambda: restore_in_place(path, backup),
        ]
        stale = 0
        for event in events:
            event()
            stale += checked.call("ids")[:2] != fresh.call("ids")[:2]
        needless = needless_openings(checked, fresh)
        return f"{stale} of {len(events)} answers stale, {needless} needless openings"


if __name__ == "__main__":
    main()
