"""Isolated(open_store, path).call("query", ...): a store's client in a process of its own, never stale. Copy this file.

    def open_store(path):   # at the top level of a module, since it runs in the worker
        return Store(path)  # your class: its public methods are the operations, its close() lets go of everything

    Isolated(open_store, "db", reads={"query"}).call("query", vector, n=3)

Each call first compares the path's generation with the one that the worker opened. What is not in `reads` may write: it
takes a lock between processes, and builds on what others wrote. Who writes without it (`exclusive(path)`) loses rows.
POSIX, local file systems, measured on Linux; not in multiprocessing.Pool's workers, which may have no children.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import fcntl
import glob
import multiprocessing.connection  # registers its work at exit, and ours has to come before it
import os
import pickle
import select
import signal
import socket
import sqlite3
import struct
import tempfile
import threading
import time
import weakref
from collections.abc import Collection, Iterator
from typing import Any, Callable

CHROMADB = ("chromadb", "chromadb.api.rust", "chromadb.telemetry.product.posthog", "chromadb_rust_bindings")  # preload
_made: weakref.WeakSet[Isolated] = weakref.WeakSet()
os.register_at_fork(after_in_child=lambda: _let_go())
atexit.register(lambda: _let_go())


class IsolatedError(Exception):
    """A call without a result. `may_have_happened`: it may have been stored all the same; repeat it as an upsert."""

    def __init__(self, text: str, may_have_happened: bool = False, kind: str = "") -> None:
        super().__init__(text)
        self.may_have_happened, self.kind = may_have_happened, kind


class StoreError(IsolatedError):
    """Opening the store, or the operation, raised; `kind` is the exception's name, such as "builtins.KeyError"."""


class WorkerDied(IsolatedError):
    """The worker ended without an answer. The next call starts another one."""


class Late(IsolatedError, TimeoutError):
    """The deadline passed. A worker that was at it has been killed, with all of its process group."""


def of_file(path: str, deep: bool = False) -> tuple[Any, ...] | None:
    """For a store that is one file: FAISS, or SQLite with its log."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        found = os.stat(path)
        log = None if path.endswith("-wal") else of_file(f"{path}-wal")
        return (found.st_dev, found.st_ino), found.st_size, found.st_mtime_ns, found.st_ctime_ns, log
    return None


def of_chromadb(path: str, deep: bool) -> tuple[Any, ...] | None:
    """For chromadb.PersistentClient. To open one writes to it: the `deep` look is not deceived by that."""
    name = os.path.join(path, "chroma.sqlite3")
    quick = of_file(name)
    if not quick or not deep:
        return quick and (*quick, of_file(path))
    files = sorted(glob.glob(f"{glob.escape(path)}/*/**", recursive=True))  # a client that only reads writes them anew
    indexes = [(file, (of_file(file) or ())[:2]) for file in files]
    queries = [f"SELECT * FROM {table}" for table in ("collections", "collection_metadata", "max_seq_id")]
    queries += [f"SELECT * FROM {table} ORDER BY rowid DESC LIMIT 1" for table in ("embeddings", "embeddings_queue")]
    uri = "file:" + "".join(f"%{byte:02x}" for byte in os.fsencode(name)) + "?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=1)) as database:
            return (quick[0], indexes, [list(database.execute(each)) for each in ("PRAGMA schema_version", *queries)])
    except sqlite3.Error as error:  # damaged, half made or none at all: the client will say so
        return (quick[0], quick, indexes, str(error))


@contextlib.contextmanager
def exclusive(path: str, timeout: float = 60) -> Iterator[None]:
    """Holds the lock of all who write to `path`, a file beside it: for jobs that wipe it, or write without Isolated."""
    until = time.monotonic() + timeout
    with open(f"{os.path.realpath(path)}.lock", "ab") as file:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > until:
                raise Late(f"another process had {file.name} locked for {timeout:.1f} s")
            time.sleep(0.001)
        yield


@dataclasses.dataclass(eq=False)
class Isolated(contextlib.AbstractContextManager["Isolated"]):
    """A store in a worker process. Threads can share it, and take turns. A forked child has to make its own.

    `reads` take no lock, and never create. `generation` gives None where nothing is, or a tuple that differs once
    something was written, and its first item once other files are there. `timeout`, in seconds, bounds a call with its
    waiting. `fresh`: a process for each call. `preload`: what a fork server imports once for all workers (CHROMADB).
    """

    open_store: Callable[[str], Any]
    path: str
    reads: Collection[str] = ()
    generation: Callable[[str, bool], tuple[Any, ...] | None] = of_chromadb
    timeout: float = 60
    fresh: bool = False
    preload: Collection[str] = ()

    def __post_init__(self) -> None:
        self.path = os.path.abspath(self.path)
        self._process: Any = None
        self._owner, self._closed, self._turn = os.getpid(), False, threading.Lock()
        self._seen: tuple[Any, Any] = (None, None)  # the generation that it has open, by a quick and by a deep look
        _made.add(self)

    def close(self, *_: object) -> None:
        """Ends the worker, after the call that is at it. Can be called again."""
        if os.getpid() == self._owner:
            with self._turn:
                self._closed = True
                self._end(grace=5)

    __exit__ = close

    def call(self, operation: str, *arguments: Any, timeout: float | None = None, **options: Any) -> Any:
        """The operation's result on what the path holds now. Raises FileNotFoundError for a read where nothing is,
        AttributeError for an unknown operation, ValueError when closed, RuntimeError in a fork, or an IsolatedError."""
        if os.getpid() != self._owner:
            raise RuntimeError(f"made in process {self._owner}, used in {os.getpid()}: make a new one after a fork")
        until = time.monotonic() + (self.timeout if timeout is None else timeout)
        if not self._turn.acquire(timeout=max(0, until - time.monotonic())):
            raise Late(f"{operation}: other threads had the worker all the time")
        try:
            if self._closed:
                raise ValueError(f"{operation}: this Isolated is closed")
            return (self._read if operation in self.reads else self._write)((operation, arguments, options), until)
        finally:
            if self.fresh:
                self._end(grace=5)
            self._turn.release()

    def _read(self, request: tuple[Any, ...], until: float, again: int = 2) -> Any:
        quick = self.generation(self.path, False)
        if quick is None:
            self._end(grace=5)  # what it has open is gone
            raise FileNotFoundError(f"{request[0]}: there is no store at {self.path}")
        if not self._process or quick != self._seen[0]:
            with exclusive(self.path, until - time.monotonic()):
                self._refresh(until)
        try:
            return self._ask(request, until)
        except StoreError:
            if not again or self.generation(self.path, False) == self._seen[0]:
                raise  # and it is not because of what was changed since
        return self._read(request, until, again - 1)

    def _write(self, request: tuple[Any, ...], until: float) -> Any:
        with exclusive(self.path, until - time.monotonic()):
            self._refresh(until)
            (before, _), self._seen = self._seen, (None, None)  # if it fails, the next call opens anew
            result = self._ask(request, until, writes=True)
            seen = self.generation(self.path, False), self.generation(self.path, True)
            if before and (not seen[0] or seen[0][0] != before[0]):
                raise StoreError(f"{request[0]}: {self.path} was replaced meanwhile, without the lock", True)
            self._seen = seen
            return result

    def _refresh(self, until: float) -> None:
        now = self.generation(self.path, False), self.generation(self.path, True)
        if not self._process or now[1] is None or now[1] != self._seen[1]:
            self._seen = (None, None)
            while not self._process or not self._ask(("", (), {}), until):  # without close() it takes a new worker
                self._end(grace=5)
                self._start()
        self._seen = now  # as it was before opening: what was written since makes the next call look again

    def _ask(self, request: tuple[Any, ...], until: float, writes: bool = False) -> Any:
        what = request[0] or "opening the store"
        try:
            _send(self._socket, request, until)
            kind, answer = _receive(self._socket, until)
        except (EOFError, ConnectionError):
            raise WorkerDied(f"{what}: {self._end(grace=1)}", writes) from None
        except (TimeoutError, socket.timeout):  # the same from 3.10 on
            raise Late(f"{what}: {self._end()}", writes) from None
        except BaseException:  # the answer will come, and would be taken for the next call's
            self._end()
            raise
        if kind:
            raise AttributeError(answer) if kind == "unknown" else StoreError(f"{what}: {kind}: {answer}", writes, kind)
        return answer

    def _start(self) -> None:
        context: Any = multiprocessing.get_context("forkserver" if self.preload else "spawn")
        if self.preload:
            context.set_forkserver_preload(list(self.preload))
        self._socket, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - _end() closes it
        fcntl.fcntl(self._log, fcntl.F_SETFL, fcntl.fcntl(self._log, fcntl.F_GETFL) | os.O_APPEND)  # it gets truncated
        with theirs:
            process = context.Process(target=_work, args=(theirs, self.open_store, self.path), daemon=True)
            process.start()
        self._process = process
        socket.send_fds(self._socket, [b"."], [self._log.fileno()])

    def _end(self, grace: float = 0) -> str:
        """Kills the worker and its group, if it has not ended in `grace` seconds. Returns how, and its last words."""
        process, self._process, self._seen = self._process, None, (None, None)
        if not process:
            return ""
        with self._log, self._socket:
            with contextlib.suppress(OSError):
                _send(self._socket, None, time.monotonic() + grace)
            multiprocessing.connection.wait([process.sentinel], grace)
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it has no group yet, or none any more
                os.killpg(process.pid, signal.SIGKILL)  # before join(), while the number cannot be another's
            process.kill()
            process.join()
            words = os.pread(self._log.fileno(), 2 << 20, 0).decode(errors="replace").splitlines()[-8:]
        status = process.exitcode
        how = f"of {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        return "\n| ".join([f"the worker ended {how}", *words])


def _let_go() -> None:
    """At exit no worker may stay; and a forked child's copy of the socket would hide that the caller is gone."""
    for each in _made:
        if each._owner == os.getpid():
            each._end()
        elif each._process:
            each._socket.close()


def _work(caller: socket.socket, open_store: Callable[[str], Any], path: str) -> None:
    os.setsid()
    log = socket.recv_fds(caller, 1, 1)[1][0]
    for number, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
        os.dup2(file, number)
    gone = select.poll()  # whatever the worker is at, and however its caller ended
    gone.register(caller, getattr(select, "POLLRDHUP", select.POLLHUP))
    threading.Thread(target=lambda: os.killpg(0, signal.SIGKILL if gone.poll() else 0), daemon=True).start()
    store: Any = None
    for operation, arguments, options in iter(lambda: _receive(caller), None):
        if os.fstat(log).st_size > 1 << 20:  # nobody will read all of it
            os.ftruncate(log, 0)
        known = [n for n in dir(type(store)) if n[0] != "_" and n != "close" and callable(getattr(type(store), n))]
        try:
            if operation in known:
                answer = "", getattr(store, operation)(*arguments, **options)
            elif operation:
                answer = "unknown", f"{type(store).__name__} has no {operation!r}, but {', '.join(known)}"
            else:
                answer = "", store is None or hasattr(store, "close")
                if answer[1]:
                    store = None if store is None else store.close()
                    store = open_store(path)
            _send(caller, answer)
        except Exception as error:  # noqa: BLE001 - the caller raises it
            _send(caller, (f"{type(error).__module__}.{type(error).__qualname__}", str(error)))
    if hasattr(store, "close"):
        store.close()
    os.killpg(0, signal.SIGKILL)  # what it started ends with it


def _send(to: socket.socket, message: object, until: float = 1e9) -> None:
    """Arrays go as the bytes that they are. Raises TimeoutError, as _receive() does, and that EOFError at the end."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(message, 5, buffer_callback=buffers.append)
    parts = [memoryview(head), *(each.raw() for each in buffers)]
    sizes = struct.pack(f"<{1 + len(parts)}Q", len(parts), *(each.nbytes for each in parts))
    for part in (memoryview(sizes), *parts):
        to.settimeout(max(0.001, until - time.monotonic()))
        to.sendall(part)


def _receive(source: socket.socket, until: float = 1e9) -> Any:
    def exactly(size: int) -> bytearray:
        found = bytearray(size)
        rest = memoryview(found)
        while rest:
            source.settimeout(max(0.001, until - time.monotonic()))
            if not (got := source.recv_into(rest)):
                raise EOFError
            rest = rest[got:]
        return found

    (count,) = struct.unpack("<Q", exactly(8))
    head, *raw = map(exactly, struct.unpack(f"<{count}Q", exactly(8 * count)))
    return pickle.loads(head, buffers=raw)
