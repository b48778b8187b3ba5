"""For many writers, or more than one machine, run the server and give each a client of it.

`chroma run` is one process that owns the path: writers take turns in it, and none is lost.
A wipe under its feet it survives no better than any client: it reads on in the deleted
files. So delete through the server, or stop it, wipe, and start it again.

Scope: one more process to run; a call costs more than a checked worker's (7 ms, 4.5 ms).
    Without authentication it trusts whoever reaches its port.
Symptom: four services on one path lose rows, or wait for each other. The server answers
    with old rows after a wipe.
Look for: PersistentClient in gunicorn's or Celery's workers; rmtree of what a server has.
Sources: https://docs.trychroma.com/docs/run-chroma/client-server
    https://cookbook.chromadb.dev/core/system_constraints
"""

# /// script
# dependencies = ["chromadb>=1.5.2,<2"]
# ///

import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor

from chroma_server import chroma_server
from kit import broken, check, fixed, main, returns

LINUX = "what a process has open is read in /proc"


def has_deleted_files(pid):
    files = [f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd")]
    return any("chroma.sqlite3 (deleted)" in os.readlink(file) for file in files)


@broken(returns(True), linux=LINUX)
def wipe_under_the_server():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "db")
        with chroma_server(path) as (client, pid):
            client.create_collection("notes")
            shutil.rmtree(path)
            return has_deleted_files(pid)


@fixed(returns(False), linux=LINUX)
def stop_wipe_start():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "db")
        with chroma_server(path) as (client, _):
            client.create_collection("notes")
        shutil.rmtree(path)
        with chroma_server(path) as (_, pid):
            return has_deleted_files(pid)


def add(client, number):
    ids = [f"{number}-{each}" for each in range(50)]
    client.get_collection("notes").add(ids=ids, embeddings=[[float(each)] for each in range(50)])


@check(returns((200, 200)), linux=LINUX)
def no_writer_loses_rows():
    with tempfile.TemporaryDirectory() as path, chroma_server(path) as (client, _):
        client.create_collection("notes")
        with ThreadPoolExecutor(4) as writers:
            list(writers.map(add, [client] * 4, range(4)))
        notes = client.get_collection("notes")
        near = notes.query(query_embeddings=[[0.0]], n_results=200)
        return notes.count(), len(near["ids"][0])


if __name__ == "__main__":
    main()
