"""Each call in a process of its own: it pays for an import every time, and is never stale. Copy it. For POSIX."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile


def open_client(path):  # this and the two tables are yours
    import chromadb

    return chromadb.PersistentClient(path, chromadb.Settings(anonymized_telemetry=False))


READS = {"query": lambda client, name, **what: client.get_collection(name).query(**what)}
WRITES = {"upsert": lambda client, name, **rows: client.get_or_create_collection(name).upsert(**rows)}


class StoreError(Exception):
    """What the operation raised in the worker: the exception's name, and its text."""


def call(operation, path, *arguments, timeout=60, **options):
    """The result. Raises StoreError; after TimeoutExpired or ChildProcessError (it died) repeat writes, as upserts."""
    with tempfile.TemporaryFile("w+") as request, tempfile.TemporaryFile() as log:
        json.dump([operation, os.path.abspath(path), arguments, options], request, default=lambda array: array.tolist())
        request.seek(0)
        argv = [sys.executable, os.path.abspath(__file__)]
        with subprocess.Popen(argv, stdin=request, stdout=subprocess.PIPE, stderr=log, start_new_session=True) as child:
            try:
                reply, _ = child.communicate(timeout=timeout)
            finally:
                if child.returncode is None:  # it is not reaped, so that its number is nobody else's
                    os.killpg(child.pid, signal.SIGKILL)
        log.seek(0)
        last_words = "\n| ".join(["", *log.read().decode(errors="replace").splitlines()[-5:]])
    if not reply:
        how = signal.Signals(-child.returncode).name if child.returncode < 0 else f"status {child.returncode}"
        raise ChildProcessError(f"{operation}: the worker ended with {how}{last_words}")
    error, result = json.loads(reply)
    if error:
        raise StoreError(*error)
    return result


def perform(operation, path, arguments, options):
    if operation in WRITES:
        with open(f"{os.path.realpath(path)}.lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # around open, write and close: or else writers lose rows
            with open_client(path) as client:
                return WRITES[operation](client, *arguments, **options)
    if operation not in READS:
        raise LookupError(f"no operation {operation!r}; there are {', '.join(READS | WRITES)}")
    os.stat(path)  # or else opening it would create it
    return READS[operation](open_client(path), *arguments, **options)


if __name__ == "__main__":  # the worker
    reply = os.dup(1)  # which nobody but us has
    os.dup2(2, 1)  # what a library prints goes to the log
    try:
        answer = json.dumps([None, perform(*json.load(sys.stdin))], default=lambda array: array.tolist())
    except Exception as error:  # noqa: BLE001 - the caller raises it
        answer = json.dumps([[f"{type(error).__module__}.{type(error).__qualname__}", str(error)], None])
    with open(reply, "w") as file:
        file.write(answer)
    os.killpg(0, signal.SIGKILL)  # what was started here ends, too
