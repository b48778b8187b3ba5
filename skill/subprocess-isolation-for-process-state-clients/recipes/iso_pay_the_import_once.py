"""Let one process import the library, and every fresh process start from that one.

Nearly all that a process per call costs is `import chromadb`: 1.1 s of 1.4. A fork server
that preloaded it forks children that have it, with an empty cache, fresh after a wipe: 12
times cheaper, 110 ms a call. Preload also what loads at first use: that halves the rest.
A worker that stays pays once at all.

Scope: POSIX. Not modules that open a client or start a thread
    (`iso-open-in-the-worker`).
Symptom: each call takes over a second, nearly all of it CPU. `python -X importtime` shows
    the library; the query takes 3 ms of it.
Look for: subprocess.run or spawn per call, or max_tasks_per_child=1, around a library
    that is slow to import.
Sources: https://docs.python.org/3/library/multiprocessing.html#multiprocessing.set_forkserver_preload
"""

# /// script
# dependencies = ["chromadb>=1.5.2,<2"]
# ///

import multiprocessing
import os
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor

from isolated import CHROMADB
from kit import broken, check, fixed, main, returns

os.environ["ANONYMIZED_TELEMETRY"] = "False"
POSIX = "there is no forkserver on Windows"


def imports_of_its_own(path):
    before = set(sys.modules)
    import chromadb

    notes = chromadb.PersistentClient(path).get_or_create_collection("notes")
    notes.upsert(ids=["a"], embeddings=[[0.0]])
    new = [name for name in sys.modules if name not in before]
    return sum(name.startswith("chromadb") for name in new)


def ask(context):
    with tempfile.TemporaryDirectory() as path, ProcessPoolExecutor(1, context) as fresh:
        return fresh.submit(imports_of_its_own, path).result()


@broken(returns("each process imports it"), posix=POSIX)
def spawn_per_call():
    context = multiprocessing.get_context("spawn")
    found = [ask(context) for _ in range(2)]
    return "each process imports it" if all(found) else found


@fixed(returns([0, 0, 0]), posix=POSIX)
def fork_from_one_that_has_it():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(CHROMADB))
    return [ask(context) for _ in range(3)]


@check(returns(True), posix=POSIX)
def some_modules_load_at_first_use():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["chromadb"])
    return ask(context) > 0


def names(path):
    import chromadb

    return [each.name for each in chromadb.PersistentClient(path).list_collections()]


@check(returns([["notes"], []]), posix=POSIX)
def each_process_sees_what_is_there():
    context, found = multiprocessing.get_context("forkserver"), []
    context.set_forkserver_preload(list(CHROMADB))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "db")
        for operation in (imports_of_its_own, names, shutil.rmtree, names):
            with ProcessPoolExecutor(1, context) as fresh:
                found.append(fresh.submit(operation, path).result())
    return found[1::2]


if __name__ == "__main__":
    main()
