"""Give a worker a contract: known operations, its own reply, a deadline, named failures.

A worker that answers on the stdout that libraries print to, or dies without a word, makes
of each fault another one. honest_worker.py, 70 lines with its caller, refuses what it
does not know, opens the client after it started, never creates on a read, names each
failure, and leaves no process.

Scope: each call pays the import: `iso-check-the-generation` is for many. What leaves the
    worker's session, or was started by one that crashed, outlives it.
Symptom: JSONDecodeError "Expecting value" from a reply. A library printed ahead of it.
    Or RuntimeError without any text: a signal ended the worker, such as the OOM killer's.
    Or a typo in a path answers with no rows, and leaves a new database.
Look for: json.loads(proc.stdout); RuntimeError(proc.stderr); get_or_create on a read.
Sources: https://docs.python.org/3/library/subprocess.html#subprocess.Popen.communicate
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import honest_worker
from kit import broken, check, fixed, leaves, main, raises, returns

POSIX = "process groups and flock are POSIX's"
CARELESS = """
import json, os, sqlite3, subprocess, sys
store = sqlite3.connect("db")
exec(sys.argv[1])  # what the library does
json.dump(store.execute("SELECT * FROM sqlite_master").fetchall(), sys.stdout)
"""


def ask_carelessly(library):
    argv = [sys.executable, "-c", CARELESS, library]
    worker = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    if worker.returncode != 0:
        raise RuntimeError(worker.stderr)
    return json.loads(worker.stdout)


@broken(raises(json.JSONDecodeError, "Expecting value") & leaves(files=1))
def reply_is_mixed_with_prints():
    return ask_carelessly("print('Loading ...')")


@broken(raises(RuntimeError, "") & leaves(files=1), posix=POSIX)
def death_has_no_name():
    return ask_carelessly("os.kill(os.getpid(), 9)")


@broken(returns([]) & leaves(files=1))
def unknown_path_is_created():
    return ask_carelessly("")


SLEEP = "subprocess.Popen(['sleep', 'infinity'], stdout=-3, stderr=-3)  # DEVNULL"


@broken(returns([]) & leaves(1, files=1), posix=POSIX)
def what_the_worker_started_lives_on():
    return ask_carelessly(SLEEP)


@fixed(returns([["a"]]), posix=POSIX, needs="chromadb>=1.5.2,<2")
def ask_chromadb():
    call = honest_worker.call
    with tempfile.TemporaryDirectory() as folder:
        db = os.path.join(folder, "db")
        call("upsert", db, "notes", ids=["a"], embeddings=[[0.0, 1.0]])
        return call("query", db, "notes", query_embeddings=[[0.0, 0.0]])["ids"]


YOURS = """
def open_client(path):
    import sqlite3
    return sqlite3.connect(path)

def rows(client):
    print("Loading ...")
    return client.execute("SELECT * FROM notes").fetchall()

def hang(client):
    import time
    subprocess.Popen(["sleep", "infinity"])
    time.sleep(1000)

def start(client):
    subprocess.Popen(["sleep", "infinity"])

READS = {"rows": rows, "hang": hang}
WRITES = {
    "create": lambda client: client.execute("CREATE TABLE notes (text)") and None,
    "killed": lambda client: os.kill(os.getpid(), 9),
    "exits": lambda client: print("no memory") or sys.exit(3),
    "start": start,
}
"""


def ask(operation, path="db", **options):
    """The same of honest_worker.py with sqlite3 in the place of chromadb."""
    text = Path(honest_worker.__file__).read_text(encoding="utf-8")
    before, after = text.index("def open_client"), text.index("class StoreError")
    with tempfile.TemporaryDirectory() as folder:
        mine = Path(folder, "honest_worker.py")
        mine.write_text(text[:before] + YOURS + text[after:], encoding="utf-8")
        sys.path.insert(0, folder)
        call = importlib.reload(honest_worker).call
        call("create", os.path.join(folder, "db"))
        return call(operation, os.path.join(folder, path), **options)


@fixed(returns([]), posix=POSIX)
def reply_is_apart_from_prints():
    return ask("rows")


@fixed(raises(ChildProcessError, "killed: the worker ended with SIGKILL"), posix=POSIX)
def death_is_named():
    ask("killed")


@check(raises(ChildProcessError, "the worker ended with status 3\n| no memory"), posix=POSIX)
def status_comes_with_last_words():
    ask("exits")


@fixed(raises(honest_worker.StoreError, "no operation 'qeury'; there are rows, "), posix=POSIX)
def unknown_operation_is_refused():
    ask("qeury")


@fixed(raises(honest_worker.StoreError, "builtins.FileNotFoundError"), posix=POSIX)
def unknown_path_is_not_created():
    ask("rows", "bd")


@fixed(returns(None), posix=POSIX)
def what_the_worker_started_ends_with_it():
    return ask("start")


@fixed(raises(subprocess.TimeoutExpired, "timed out after 1 seconds"), posix=POSIX)
def deadline_ends_the_group():
    ask("hang", timeout=1)


if __name__ == "__main__":
    main()
