"""Publish a file by os.replace() of a finished one, and never write where others read.

Who has a file open or mapped keeps the old one through a replace, and who opens it later
gets the new one, both whole. Written in place, a mapped FAISS index answers with wrong
rows, and one that got shorter ends its reader by SIGBUS. Files with others beside them,
as SQLite's -wal, are published by what knows them: Connection.backup().

Scope: readers have to look whether it changed (`iso-check-the-generation`). fsync() is
    against power failures. In a worker SIGBUS ends only that.
Symptom: a reader dies of SIGBUS, or answers nonsense after a rebuild. FAISS says "read
    error in". SQLite still has the old rows, or "no such table" after a copy.
Look for: write_index or open(path, "w") on the path that is served; mmap of it;
    os.replace or shutil.copy of a database in WAL mode.
Sources: https://docs.python.org/3/library/os.html#os.replace
"""

# /// script
# dependencies = ["faiss-cpu>=1.10,<2", "numpy>=1.21,<3"]
# ///

import contextlib
import mmap
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

from kit import broken, check, dies, fixed, leaves, main, raises, returns

POSIX = "Windows replaces no file that is open"


def map_file(path):
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


@broken(dies("SIGBUS") & leaves(files=1), posix=POSIX)
def write_in_place():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows")
        path.write_bytes(b"old" * 10_000)
        reader = map_file(path)
        path.write_bytes(b"new")  # begins by emptying it
        return reader[-3:]


def publish(path, data):
    unfinished = path.with_suffix(f".{os.getpid()}")
    with open(unfinished, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


@fixed(returns((b"old", b"new")), posix=POSIX)
def replace_the_file():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows")
        path.write_bytes(b"old" * 10_000)
        reader = map_file(path)
        publish(path, b"new")
        return reader[-3:], map_file(path)[-3:]


def index_of(first, rows=2_000):
    import faiss
    import numpy

    index = faiss.IndexFlatL2(8)
    index.add(numpy.arange(first, first + rows, dtype="f4")[:, None] + numpy.zeros(8, "f4"))
    return index


def mapped(path):
    import faiss

    return faiss.read_index(path, faiss.IO_FLAG_MMAP_IFC)


def nearest_to(index, number):
    import numpy

    return int(index.search(numpy.full((1, 8), number, "f4"), 1)[1][0, 0])


@broken(dies("SIGBUS") & leaves(files=1), posix=POSIX)
def write_an_index_in_place():
    import faiss

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.faiss")
        faiss.write_index(index_of(0), path)
        reader = mapped(path)
        faiss.write_index(index_of(0, rows=1), path)
        return nearest_to(reader, 1_999)


@fixed(returns({"old reader": 1_999, "new reader": 0}), posix=POSIX)
def replace_the_index():
    import faiss

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.faiss")
        faiss.write_index(index_of(0), path)
        reader = mapped(path)
        publish(Path(path), faiss.serialize_index(index_of(0, rows=1)).tobytes())
        old, new = nearest_to(reader, 1_999), nearest_to(mapped(path), 1_999)
        return {"old reader": old, "new reader": new}


@check(returns((7, 0)), posix=POSIX)
def same_size_in_place_answers_wrong():
    import faiss

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.faiss")
        faiss.write_index(index_of(0), path)
        reader = mapped(path)
        before = nearest_to(reader, 7)
        faiss.write_index(index_of(1_000), path)
        return before, nearest_to(reader, 7)


@check(raises(RuntimeError, "read error in"))
def truncated_file_is_refused():
    import faiss

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.faiss")
        faiss.write_index(index_of(0), path)
        os.truncate(path, os.path.getsize(path) // 2)
        faiss.read_index(path)


@contextlib.contextmanager
def database(path, rows):
    """One in WAL mode, whose writer still has it open."""
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode=wal")
    writer.execute("CREATE TABLE notes (number)")
    writer.executemany("INSERT INTO notes VALUES (?)", [(each,) for each in range(rows)])
    writer.commit()
    yield writer
    writer.close()


def count(path):
    with contextlib.closing(sqlite3.connect(path)) as reader:
        return reader.execute("SELECT count(*) FROM notes").fetchone()[0]


def old_and_new(folder):
    old, new = os.path.join(folder, "old"), os.path.join(folder, "new")
    with database(new, 300) as writer:
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return old, new


@broken(returns(100), posix=POSIX)
def replace_a_database_beside_its_log():
    with tempfile.TemporaryDirectory() as folder:
        old, new = old_and_new(folder)
        with database(old, 100):
            os.replace(new, old)
            return count(old)  # the old log, over the new file


@fixed(returns(300))
def back_up_into_the_database():
    with tempfile.TemporaryDirectory() as folder:
        old, new = old_and_new(folder)
        with database(old, 100), contextlib.closing(sqlite3.connect(new)) as source:
            with contextlib.closing(sqlite3.connect(old)) as target:
                source.backup(target)
            return count(old)


@check(raises(sqlite3.OperationalError, "no such table: notes"))
def copy_a_database_without_its_log():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "db")
        with database(path, 100):
            shutil.copyfile(path, f"{path}-copy")
        count(f"{path}-copy")


if __name__ == "__main__":
    main()
