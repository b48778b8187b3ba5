"""Never open or copy a database's file in the process that has the database open.

POSIX drops all locks that a process has on a file once it closes any descriptor of it,
also a checksum's or a copy's. SQLite believes that it still has them: others write
through its lock, and what it commits then fails or is lost. stat() opens nothing;
Connection.backup() copies.

Scope: POSIX. Another process may open the file, and copy it while nobody writes. Newer
    SQLites, from late 2025 on, keep the log; the commit still fails.
Symptom: "disk I/O error" at commit. Or a commit that succeeded is gone after the next
    start, with integrity_check ok; or "database disk image is malformed", now and then.
Look for: open(), shutil.copy or hashing of a .db or .sqlite3 file beside sqlite3.connect
    or a PersistentClient; sqlite3.connect on the database that a client has open.
Sources: https://www.sqlite.org/howtocorrupt.html
"""

import contextlib
import os
import sqlite3
import subprocess
import sys
import tempfile

from kit import broken, check, fixed, main, raises, returns

POSIX = "Windows' locks belong to a descriptor"
LOCKED = "sqlite3.OperationalError: database is locked"
WRITE = "database.execute('INSERT INTO notes VALUES (1)'); database.commit()"
COUNT = """print(*database.execute("SELECT count(*) FROM notes").fetchone())
database.close()"""


def elsewhere(folder, code):
    code = f"import sqlite3; database = sqlite3.connect('db', timeout=0); {code}"
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
    return (done.stderr or done.stdout).strip().split("\n")[-1]


def commit_after(look):
    with tempfile.TemporaryDirectory() as folder:
        database = sqlite3.connect(path := os.path.join(folder, "db"))
        database.execute("CREATE TABLE notes (text)")
        database.execute("INSERT INTO notes VALUES (0)")  # locks it
        look(path)
        told = elsewhere(folder, WRITE)
        database.commit()
        return told


@broken(raises(sqlite3.OperationalError, "disk I/O error"), posix=POSIX)
def open_its_file():
    commit_after(lambda path: open(path, "rb").close())


@fixed(returns(LOCKED), posix=POSIX)
def stat_its_file():
    return commit_after(os.stat)


def with_a_row(path, mode):
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA journal_mode={mode}")
    database.execute("CREATE TABLE notes (text)")
    database.execute("INSERT INTO notes VALUES (0)")
    database.commit()
    return database


@fixed(returns((LOCKED, 1)), posix=POSIX)
def back_it_up():
    with tempfile.TemporaryDirectory() as folder:
        owner = with_a_row(path := os.path.join(folder, "db"), "delete")
        owner.execute("INSERT INTO notes VALUES (0)")  # locks it
        with contextlib.closing(sqlite3.connect(f"{path}-copy")) as copy:
            with contextlib.closing(sqlite3.connect(path)) as reader:
                reader.backup(copy)
            count = copy.execute("SELECT count(*) FROM notes").fetchone()[0]
        refused = elsewhere(folder, WRITE)
        owner.rollback()
        return refused, count


def commit_once_more(look):
    """How many of two committed rows another process finds."""
    with tempfile.TemporaryDirectory() as folder:
        database = with_a_row(path := os.path.join(folder, "db"), "wal")
        look(path)
        elsewhere(folder, COUNT)  # thinks that it is the last, and removes the log
        database.execute("INSERT INTO notes VALUES (0)")
        database.commit()
        return elsewhere(folder, COUNT)


@check(returns(True), posix=POSIX)
def opening_it_loses_a_commit_before_sqlite_3_51():
    found = commit_once_more(lambda path: open(path, "rb").close())
    return found == ("1" if sqlite3.sqlite_version_info < (3, 51) else "2")


@fixed(returns("2"), posix=POSIX)
def stat_a_file_with_a_log():
    return commit_once_more(os.stat)


if __name__ == "__main__":
    main()
