"""isolated.py with SQLite as the store: what a caller sees of workers that die or hang, of forks, of changed files."""

from __future__ import annotations

import array
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "recipes"))

import isolated  # noqa: E402
from isolated import Isolated, Late, StoreError, WorkerDied, exclusive, of_file  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

READS = frozenset({"count", "echo", "pid", "opened", "hang", "die", "leave", "sleep", "chatter"})


class Store:
    opened_here = 0

    def __init__(self, path: str) -> None:
        self.database = sqlite3.connect(path)
        self.database.execute("CREATE TABLE IF NOT EXISTS notes (text)")
        self.database.commit()
        Store.opened_here += 1

    def close(self) -> None:
        self.database.close()

    def count(self) -> int:
        return int(self.database.execute("SELECT count(*) FROM notes").fetchone()[0])

    def add(self, text: str) -> None:
        with self.database:
            self.database.execute("INSERT INTO notes VALUES (?)", [text])

    def wrong(self) -> None:
        self.database.execute("SELECT * FROM nowhere")

    def echo(self, what: Any) -> Any:
        return what

    def pid(self) -> int:
        return os.getpid()

    def opened(self) -> int:
        return Store.opened_here

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def hang(self, pids: str) -> None:
        child = subprocess.Popen(["sleep", "1000"])
        Path(pids).write_text(f"{os.getpid()} {child.pid}", encoding="ascii")
        time.sleep(1000)

    def start(self, pids: str) -> None:
        self.child = subprocess.Popen(["sleep", "1000"])
        Path(pids).write_text(f"{os.getpid()} {self.child.pid}", encoding="ascii")

    def die(self, number: int) -> None:
        print("last words", flush=True)
        os.kill(os.getpid(), number)

    def leave(self, status: int) -> None:
        sys.exit(status)

    def chatter(self, size: int) -> None:
        sys.stderr.write("x" * size)


class Unclosable:
    """A store without close(), as a client of chromadb before 1.5.2 is."""

    def __init__(self, path: str) -> None:
        self.text = Path(path).read_text(encoding="utf-8") if os.path.exists(path) else ""

    def read(self) -> tuple[str, int]:
        return self.text, os.getpid()


def open_store(path: str) -> Store:
    return Store(path)


def open_unclosable(path: str) -> Unclosable:
    return Unclosable(path)


def open_nothing(path: str) -> None:
    raise OSError(f"no store at {path}")


def store_at(path: Path, **options: Any) -> Isolated:
    return Isolated(open_store, str(path), reads=READS, generation=of_file, **options)


@pytest.fixture(scope="module", autouse=True)
def _fork_server_ends() -> Iterator[None]:
    """Other modules count the children of this process, so what multiprocessing keeps until the end goes at once."""
    yield
    vars(forkserver)["_forkserver"]._stop()
    vars(resource_tracker)["_resource_tracker"]._stop()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ein Speicher.db"


@pytest.fixture
def store(path: Path) -> Iterator[Isolated]:
    with store_at(path) as made:
        made.call("add", "first")
        yield made


def is_gone(pid: int, within: float = 5.0) -> bool:
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def write_elsewhere(path: Path, text: str) -> None:
    code = (
        "import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); d.execute('INSERT INTO notes VALUES (?)', sys.argv[2:])"
    )
    code += "; d.commit()"
    subprocess.run([sys.executable, "-c", code, str(path), text], stdin=subprocess.DEVNULL, check=True, timeout=60)


def test_read_of_nothing_creates_nothing(path: Path) -> None:
    with (
        store_at(path) as store,
        pytest.raises(FileNotFoundError, match=r"count: there is no store at .*ein Speicher.db"),
    ):
        store.call("count")
    assert not path.exists()


def test_worker_stays_and_sees_what_others_wrote(store: Isolated, path: Path) -> None:
    pid, before = store.call("pid"), store.call("opened")
    write_elsewhere(path, "second")
    assert (store.call("count"), store.call("pid"), store.call("opened")) == (2, pid, before + 1)
    assert [store.call("count") for _ in range(20)] == [2] * 20
    assert store.call("opened") == before + 1  # nothing was written since


def test_replaced_and_deleted_files_are_noticed(store: Isolated, path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with store_at(other) as filled:
        for number in range(5):
            filled.call("add", str(number))
    os.replace(other, path)
    assert store.call("count") == 5
    path.unlink()
    with pytest.raises(FileNotFoundError):
        store.call("count")
    store.call("add", "anew")
    assert store.call("count") == 1


def test_store_without_close_gets_a_new_worker(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("old", encoding="utf-8")
    with Isolated(open_unclosable, str(path), reads={"read"}, generation=of_file) as store:
        (text, first), (_, again) = store.call("read"), store.call("read")
        assert (text, first) == ("old", again)
        path.write_text("other", encoding="utf-8")
        text, second = store.call("read")
        assert text == "other" and second != first


def test_unknown_operations_are_named(store: Isolated) -> None:
    with pytest.raises(AttributeError, match=r"Store has no 'cuont', but add, chatter, count, "):
        store.call("cuont")
    for name in ("close", "_private", "__init__", "database"):
        with pytest.raises(AttributeError, match=f"Store has no '{name}'"):
            store.call(name)


def test_errors_of_the_store_have_a_kind(store: Isolated, path: Path) -> None:
    with pytest.raises(StoreError, match=r"wrong: sqlite3.OperationalError: no such table: nowhere") as raised:
        store.call("wrong")
    assert (raised.value.kind, raised.value.may_have_happened) == ("sqlite3.OperationalError", True)
    assert pickle.loads(pickle.dumps(raised.value)).kind == "sqlite3.OperationalError"
    with Isolated(open_nothing, str(path), generation=of_file) as broken:
        with pytest.raises(StoreError, match=r"opening the store: builtins.OSError: no store at ") as raised:
            broken.call("add", "x")
        assert not raised.value.may_have_happened


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_death_is_named_and_the_next_call_has_a_worker(store: Isolated, number: signal.Signals) -> None:
    with pytest.raises(WorkerDied, match=rf"die: the worker ended of {number.name}\n\| last words") as raised:
        store.call("die", number)
    assert not raised.value.may_have_happened
    assert store.call("count") == 1
    with pytest.raises(WorkerDied, match=r"leave: the worker ended with status 3"):
        store.call("leave", 3)


def test_deadline_ends_the_tree(store: Isolated, tmp_path: Path) -> None:
    with pytest.raises(Late, match=r"hang: the worker ended of SIGKILL"):
        store.call("hang", str(tmp_path / "pids"), timeout=5)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text(encoding="ascii").split()]
    assert [is_gone(pid) for pid in pids] == [True, True]
    assert store.call("count") == 1


def test_close_ends_what_the_worker_started(path: Path, tmp_path: Path) -> None:
    with store_at(path) as store:
        store.call("start", str(tmp_path / "pids"))
    store.close()
    pids = [int(pid) for pid in (tmp_path / "pids").read_text(encoding="ascii").split()]
    assert [is_gone(pid) for pid in pids] == [True, True]
    with pytest.raises(ValueError, match=r"count: this Isolated is closed"):
        store.call("count")


def test_locks_and_turns_are_bounded(store: Isolated, path: Path) -> None:
    with exclusive(str(path)):
        began = time.monotonic()
        with pytest.raises(Late, match=r"another process had .*ein Speicher.db.lock locked for 0.2 s"):
            store.call("add", "x", timeout=0.2)
        assert time.monotonic() - began < 5
        assert store.call("count") == 1  # reads need no lock
    asleep = threading.Thread(target=store.call, args=("sleep", 2))
    asleep.start()
    while not store._turn.locked():
        time.sleep(0.001)
    with pytest.raises(Late, match=r"count: other threads had the worker"):
        store.call("count", timeout=0.2)
    asleep.join()


def test_threads_and_objects_write_at_once(path: Path) -> None:
    stores = [store_at(path) for _ in range(3)]
    with ThreadPoolExecutor(9) as pool:
        list(pool.map(lambda number: stores[number % 3].call("add", str(number)), range(90)))
    assert [store.call("count") for store in stores] == [90, 90, 90]
    for store in stores:
        store.close()


def test_arrays_and_prints(store: Isolated) -> None:
    numbers = array.array("d", range(100_000))
    raw = pickle.PickleBuffer(numbers)
    assert bytes(store.call("echo", raw)) == numbers.tobytes()
    for _ in range(4):
        store.call("chatter", 1 << 20)
    assert os.fstat(store._log.fileno()).st_size <= 2 << 20
    assert store.call("count") == 1


def test_fresh_form_has_a_process_per_call(path: Path) -> None:
    with store_at(path, fresh=True, preload=("sqlite3",)) as store:
        store.call("add", "x")
        assert len({store.call("pid") for _ in range(3)}) == 3
        assert store.call("count") == 1


def test_forked_child_is_refused_and_does_no_harm(store: Isolated, path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            store.call("count")
        except RuntimeError as error:
            store.close()
            with store_at(path) as own:
                status = 0 if "make a new one after a fork" in str(error) and own.call("count") == 1 else 2
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert store.call("count") == 1


CALLER = """
import os, sys
sys.path[:0] = [{tests!r}, {recipes!r}]
import test_isolated
if __name__ == "__main__":
    store = test_isolated.store_at(test_isolated.Path({path!r}))
    store.call("add", "x")
    if sys.argv[1] == "forks":  # a child that lives on has a copy of all descriptors
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", "20"]) if sys.argv[2] == "exec" else __import__("time").sleep(20)
    if sys.argv[1] == "ends":
        store.call("start", {pids!r})
        sys.exit()
    store.call("hang", {pids!r})
"""


@pytest.mark.parametrize("how", [("stays", ""), ("forks", "copy"), ("forks", "exec"), ("ends", "")])
def test_worker_ends_with_its_caller(path: Path, tmp_path: Path, how: tuple[str, str]) -> None:
    """In the middle of a call by SIGKILL, within two seconds; or at the caller's own end, without close()."""
    pids = tmp_path / "pids"
    names = {"tests": str(ROOT / "tests"), "recipes": str(ROOT / "recipes"), "path": str(path), "pids": str(pids)}
    script = tmp_path / "caller.py"
    script.write_text(CALLER.format(**names), encoding="utf-8")
    caller = subprocess.Popen([sys.executable, str(script), *how], stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        until = time.monotonic() + 60
        while not (pids.exists() and pids.read_text(encoding="ascii")) and time.monotonic() < until:
            time.sleep(0.01)
        worker, child = map(int, pids.read_text(encoding="ascii").split())
        if how[0] == "ends":
            assert caller.wait(60) == 0
        else:
            caller.kill()
        assert is_gone(worker, within=2)
        assert is_gone(child, within=2)
    finally:
        os.killpg(caller.pid, signal.SIGKILL)
        caller.wait()


def test_generation_of_a_path_that_is_odd(tmp_path: Path) -> None:
    odd = tmp_path / "a%20?#b [x]"
    odd.mkdir()
    sqlite3.connect(odd / "chroma.sqlite3").execute("CREATE TABLE x (y)").connection.close()
    quick, deep = isolated.of_chromadb(str(odd), False), isolated.of_chromadb(str(odd), True)
    assert quick and deep and quick[0] == deep[0]
    assert isolated.of_chromadb(str(tmp_path / "nothing"), True) is None
