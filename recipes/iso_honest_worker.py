"""Give a worker a contract: known operations, its own reply, a deadline, named failures.

What runs a store in another process decides what its caller learns. A worker that does
the same for each request, answers on the stdout that libraries print to, or dies without
a word makes of each fault another one: a wrong answer, a parse error, an empty exception.
honest_worker.py, 70 lines with its caller, refuses what it does not know, opens the
client after it started and never creates on a read; failures say what they were.

Scope: a client without state needs no worker. Each call pays the import of the client:
    `iso-check-the-generation` has one worker serve many. What leaves the worker's session
    outlives it (`sp-kill-the-process-tree`), as does what a worker started that crashed.
Symptom: JSONDecodeError "Expecting value" from a reply. A library printed ahead of it.
    Or RuntimeError without any text: a signal ended the worker, such as the OOM killer's.
    Or a typo in a path answers with no rows, and leaves a new database.
Look for: json.loads(proc.stdout); RuntimeError(proc.stderr); get_or_create on a read.
Sources: https://docs.python.org/3/library/subprocess.html#subprocess.Popen.communicate
    https://docs.python.org/3/library/os.html#os.dup
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
request = json.load(sys.stdin)
store = sqlite3.connect(request["path"])  # creates what is not there
if request["op"] == "noise":
    print("Loading ...")
if request["op"] == "killed":
    os.kill(os.getpid(), 9)
if request["op"] == "start":
    null = subprocess.DEVNULL
    subprocess.Popen(["sleep", "infinity"], stdout=null, stderr=null)
json.dump(store.execute("SELECT * FROM sqlite_master").fetchall(), sys.stdout)
"""


def ask_carelessly(op):
    worker = subprocess.run(
        [sys.executable, "-c", CARELESS],
        input=json.dumps({"path": "db", "op": op}),
        capture_output=True,
        text=True,
        timeout=30,
    )
    if worker.returncode != 0:
        raise RuntimeError(worker.stderr)
    return json.loads(worker.stdout)


@broken(raises(json.JSONDecodeError, "Expecting value") & leaves(files=1))
def reply_is_mixed_with_prints():
    return ask_carelessly("noise")


@broken(raises(RuntimeError, "") & leaves(files=1), posix=POSIX)
def death_has_no_name():
    return ask_carelessly("killed")


@broken(returns([]) & leaves(files=1))
def unknown_operation_and_path_are_answered():
    return ask_carelessly("qeury")


@broken(returns([]) & leaves(1, files=1), posix=POSIX)
def what_the_worker_started_lives_on():
    return ask_carelessly("start")


@fixed(returns(["b", "a"]), posix=POSIX, needs="chromadb>=1.5.2,<2")
def ask_chromadb():
    rows = {"ids": ["a", "b"], "embeddings": [[0.0] * 8, [1.0] * 8]}
    near = {"query_embeddings": [[2.0] * 8], "n_results": 2}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "db")
        honest_worker.call("upsert", path, "notes", **rows)
        return honest_worker.call("query", path, "notes", **near)["ids"][0]


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
