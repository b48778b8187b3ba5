"""Open the client in the worker, after it has started; only its import can be shared.

A client that a module opens as it is imported opens in whatever imports it: in the
parent, too, or in a fork server that preloads it. Each child then has a copy without
its threads and hangs. Where the import of the library stands is no matter.

Scope: a module that nobody but the worker imports may open at import.
Symptom: workers of a fork server hang in their first call. Or a database appears where
    a module was imported, or TypeError: cannot pickle 'builtins.Bindings' object.
    Nothing hangs where the preload was not found: that is silent, and older fork
    servers have PYTHONPATH, but not their parent's sys.path.
Look for: client = PersistentClient(...) at module level; set_forkserver_preload of such
    a module; a client in Process(args=...) or initargs.
Sources: https://github.com/python/cpython/issues/117378
    https://github.com/python/cpython/issues/141860
"""

# /// script
# dependencies = ["chromadb>=1.5.2,<2"]
# ///

import multiprocessing
import os
import pickle
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from kit import broken, check, fixed, hangs, main, returns

os.environ["ANONYMIZED_TELEMETRY"] = "False"
POSIX = "there is no forkserver on Windows"
OPENS = 'import chromadb\nclient = chromadb.PersistentClient("db")'
IMPORTS = "import chromadb"


def count():
    import chromadb

    client = chromadb.PersistentClient("db")
    notes = client.get_or_create_collection("notes")
    return "preloaded" in sys.modules, notes.count()


def ask_with_preloaded(source, question=count):
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("preloaded.py").write_text(source)
        sys.path.insert(0, folder)
        os.environ["PYTHONPATH"] = folder
        server = multiprocessing.get_context("forkserver")
        server.set_forkserver_preload(["preloaded"])
        with ProcessPoolExecutor(1, server) as pool:
            return pool.submit(question).result()


@broken(hangs(at=".result()", despite="tokio-rt-worker"), posix=POSIX)
def open_as_it_is_imported():
    return ask_with_preloaded(OPENS)


@fixed(returns((True, 0)), posix=POSIX)
def open_in_the_worker():
    return ask_with_preloaded(IMPORTS)


def import_what_opens():
    from chromadb.api.shared_system_client import SharedSystemClient

    systems = len(SharedSystemClient._identifier_to_system)
    Path("opens.py").write_text(OPENS)
    import opens

    try:
        pickle.dumps(opens.client)
    except TypeError as error:
        return systems, os.path.exists("db/chroma.sqlite3"), str(error)


OPENED = (0, True, "cannot pickle 'builtins.Bindings' object")


@check(returns([OPENED, OPENED]), posix=POSIX)
def a_child_has_no_client_until_it_imports_one():
    return [ask_with_preloaded(IMPORTS, import_what_opens) for _ in range(2)]


if __name__ == "__main__":
    main()
