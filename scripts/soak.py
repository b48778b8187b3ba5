"""Long runs with random events, against an oracle.

    python scripts/soak.py isolation --events N --seed S    wipes, restores, renames, kills, writers: no stale answer
    python scripts/soak.py writers --each N                 four processes, N rows each: none is lost
    python scripts/soak.py readers --reads N                two processes that only read: no needless reopening

They need chromadb (pip install 'chromadb>=1.5.2,<2'). `isolation` compares isolated.py's checked worker with its
strictest form, a fresh process for each call, and that one every 50 events with a process started by exec. It stops at
the first difference, and prints it, the seed, and the last events.

Exit status: 0 nothing was wrong, 1 something was, 2 wrong use, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "recipes"))

import isolated  # noqa: E402 - the path comes first

READS = frozenset({"snapshot", "pid", "opened", "size", "search"})
NAMES = ("first", "second")
DIMENSIONS = (4, 8)
EXEC_EVERY = 50  # events
Row = tuple[str, list[float]]


class Store:
    """chromadb, with the operations that the soak needs."""

    times_opened = 0

    def __init__(self, path: str) -> None:
        import chromadb

        self.client = chromadb.PersistentClient(path, chromadb.Settings(anonymized_telemetry=False))
        Store.times_opened += 1

    def close(self) -> None:
        self.client.close()

    def pid(self) -> int:
        return os.getpid()

    def opened(self) -> int:
        """How often this process has opened the store."""
        return Store.times_opened

    def snapshot(self) -> list[Any]:
        """What a reader can learn: per collection its metadata, ids, and the nearest rows of a few vectors."""
        found = []
        for collection in sorted(self.client.list_collections(), key=lambda each: each.name):
            rows = collection.get(include=["embeddings"])
            vectors = [[round(float(number), 4) for number in row] for row in rows["embeddings"]]
            near = collection.query(query_embeddings=vectors[:3], n_results=5)["ids"] if vectors else []
            found.append(
                [collection.name, collection.metadata, collection.count(), sorted(zip(rows["ids"], vectors)), near]
            )
        return found

    def size(self, name: str) -> int:
        return int(self.client.get_collection(name).count())

    def search(self, name: str, ids: list[str], vectors: Any) -> list[str]:
        """Those of the rows that a search for their own vector does not find."""
        found = self.client.get_collection(name).query(query_embeddings=vectors, n_results=1)["ids"]
        return [id for id, near in zip(ids, found) if near != [id]]

    def upsert(self, name: str, rows: list[Row], sync: int = 1000) -> None:
        about = {"hnsw": {"sync_threshold": sync, "batch_size": min(sync, 100)}}
        collection = self.client.get_or_create_collection(name, configuration=about)
        collection.upsert(ids=[id for id, _ in rows], embeddings=[vector for _, vector in rows])

    def delete(self, name: str, ids: list[str]) -> None:
        self.client.get_collection(name).delete(ids=ids)

    def drop(self, name: str) -> None:
        self.client.delete_collection(name)

    def rename(self, name: str, to: str, number: int) -> None:
        self.client.get_collection(name).modify(name=to, metadata={"number": number})

    def die_in_an_upsert(self, name: str, rows: list[Row]) -> None:
        threading.Timer(random.random() * 0.02, os.kill, (os.getpid(), signal.SIGKILL)).start()
        try:
            while True:
                self.upsert(name, rows)
        finally:
            signal.pause()  # of another dimension: the end comes all the same


def open_store(path: str) -> Store:
    return Store(path)


def isolated_store(path: Path, *, fresh: bool = False) -> isolated.Isolated:
    return isolated.Isolated(open_store, str(path), reads=READS, fresh=fresh, preload=isolated.CHROMADB)


def answer(store: isolated.Isolated) -> Any:
    """What a reader gets: the snapshot, or the kind of the error."""
    try:
        return store.call("snapshot")
    except FileNotFoundError:
        return "nothing there"
    except isolated.StoreError as error:
        return error.kind


# --------------------------------------------------------------------------------------------------------- isolation


class Soak:
    """One store under random events: who is checked, who else writes to it, and what was done so far."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.path, self.backup, self.aside = folder / "db", folder / "backup", folder / "aside"
        self.random = random.Random(seed)
        self.subject, self.oracle = isolated_store(self.path), isolated_store(self.path, fresh=True)
        self.others = [isolated_store(self.path) for _ in range(2)]
        self.number = 0
        self.events: list[str] = []

    def close(self) -> None:
        for each in (self.subject, self.oracle, *self.others):
            each.close()

    def step(self) -> str:
        """Lets one event happen, and returns what differs afterwards; empty when nothing does."""
        event = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        self.events.append(f"{len(self.events) + 1} {event.__name__} {event(self) or ''}".rstrip())
        seen, expected = answer(self.subject), answer(self.oracle)
        if seen != expected:
            return f"the checked worker answers {seen}\na fresh process answers {expected}"
        if len(self.events) % EXEC_EVERY == 0:
            executed = by_exec(self.path)
            if executed != json.loads(json.dumps(expected)):
                return f"a fresh process answers {expected}\na process started by exec answers {executed}"
        return ""

    def new_rows(self, count: int, dimension: int) -> list[Row]:
        self.number += count
        ids = range(self.number - count, self.number)
        return [(f"r{id}", [round(self.random.random(), 4) for _ in range(dimension)]) for id in ids]

    def writer(self) -> isolated.Isolated:
        return self.random.choice([self.subject, *self.others])


def attempt(store: isolated.Isolated, operation: str, *arguments: Any) -> str:
    """Does it, or says what chromadb had against it: another dimension, or nothing there to delete."""
    try:
        store.call(operation, *arguments)
    except isolated.StoreError as error:
        return f"{operation} raised {error.kind}"
    return operation


def upsert(soak: Soak) -> str:
    rows = soak.new_rows(soak.random.choice([1, 5, 60]), soak.random.choice(DIMENSIONS))
    return attempt(soak.writer(), "upsert", soak.random.choice(NAMES), rows, soak.random.choice([20, 1000]))


def change_rows(soak: Soak) -> str:
    known = [f"r{soak.random.randrange(soak.number + 1)}" for _ in range(5)]
    rows = [(id, vector) for id, (_, vector) in zip(known, soak.new_rows(5, soak.random.choice(DIMENSIONS)))]
    return attempt(soak.writer(), "upsert", soak.random.choice(NAMES), list(dict(rows).items()))


def delete_rows(soak: Soak) -> str:
    ids = sorted({f"r{soak.random.randrange(soak.number + 1)}" for _ in range(20)})
    return attempt(soak.writer(), "delete", soak.random.choice(NAMES), ids)


def rename_collection(soak: Soak) -> str:
    return attempt(soak.writer(), "rename", *soak.random.sample(NAMES, 2), len(soak.events))


def recreate_with_another_dimension(soak: Soak) -> str:
    name, writer = soak.random.choice(NAMES), soak.random.choice(soak.others)
    dropped = attempt(writer, "drop", name)
    return f"{dropped}, {attempt(writer, 'upsert', name, soak.new_rows(10, soak.random.choice(DIMENSIONS)))}"


def write_at_once(soak: Soak) -> str:
    """Three processes write into one collection; what they were told is stored has to be there."""
    if not isinstance(answer(soak.oracle), list):
        return "not while it cannot be opened"
    attempt(soak.writer(), "drop", "first")
    told: list[str] = []

    def write(store: isolated.Isolated, batches: list[list[Row]]) -> None:
        for batch in batches:
            store.call("upsert", "first", batch, 20)
            told.extend(id for id, _ in batch)

    stores = [soak.subject, *soak.others]
    threads = [threading.Thread(target=write, args=(each, [soak.new_rows(15, 4) for _ in range(3)])) for each in stores]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    found = soak.oracle.call("snapshot")
    stored = {id for name, *_, rows, _ in found if name == "first" for id, _ in rows}
    if missing := set(told) - stored or len(told) != 9 * 15:
        raise Wrong(f"of {9 * 15} rows {len(told)} were acknowledged, and {missing} are missing")
    return ""


def wipe(soak: Soak) -> None:
    shutil.rmtree(soak.path, ignore_errors=True)


def wipe_contents(soak: Soak) -> None:
    for each in soak.path.iterdir() if soak.path.exists() else ():
        shutil.rmtree(each) if each.is_dir() else each.unlink()


def wipe_and_rebuild(soak: Soak) -> str:
    wipe(soak)
    return upsert(soak)


def back_up(soak: Soak) -> None:
    if soak.path.exists():
        shutil.rmtree(soak.backup, ignore_errors=True)
        shutil.copytree(soak.path, soak.backup)


def restore(soak: Soak) -> None:
    """In the place of the old directory, whose inodes may be used again at once."""
    if soak.backup.exists():
        wipe(soak)
        shutil.copytree(soak.backup, soak.path)


def restore_in_place(soak: Soak) -> None:
    """Into the files that are there, with the inodes that they have."""
    for source in sorted(soak.backup.rglob("*")) if soak.backup.exists() else ():
        target = soak.path / source.relative_to(soak.backup)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "r+b" if target.exists() else "wb") as file:
            file.write(source.read_bytes())
            file.truncate()


def move(soak: Soak) -> str:
    """Away, and back the next time."""
    if soak.aside.exists():
        wipe(soak)
        soak.aside.rename(soak.path)
        return "back"
    if soak.path.exists():
        soak.path.rename(soak.aside)
    return "away"


def delete_an_index(soak: Soak) -> None:
    folders = [each for each in soak.path.iterdir() if each.is_dir()] if soak.path.exists() else []
    if folders:
        shutil.rmtree(soak.random.choice(folders))


def change_the_schema(soak: Soak) -> str:
    statement = soak.random.choice([f"CREATE TABLE more{len(soak.events)} (x)", "DROP TABLE tenants"])
    if (soak.path / "chroma.sqlite3").exists():
        with sqlite3.connect(soak.path / "chroma.sqlite3") as database:
            try:
                database.execute(statement)
            except sqlite3.Error as error:
                statement += f": {error}"
        database.close()
    return statement


def truncate(soak: Soak) -> None:
    if (soak.path / "chroma.sqlite3").exists():
        os.truncate(soak.path / "chroma.sqlite3", 0)


def kill_the_worker(soak: Soak) -> str:
    if soak.path.exists() and answer(soak.subject) != "nothing there":
        try:
            os.kill(soak.subject.call("pid"), signal.SIGKILL)
            soak.subject.call("pid")
        except isolated.WorkerDied:
            return "killed"
        except isolated.StoreError:
            return "cannot be opened"
    return ""


def kill_in_an_upsert(soak: Soak) -> str:
    rows = soak.new_rows(30, 4)
    try:
        soak.subject.call("die_in_an_upsert", soak.random.choice(NAMES), rows)
    except isolated.WorkerDied as error:
        return f"may have happened: {error.may_have_happened}"
    except isolated.StoreError as error:  # it could not even be opened
        return f"raised {error.kind}"
    raise Wrong("a worker that was killed answered")


def only_open(soak: Soak) -> None:
    """A fresh process opens it, and writes nothing that matters: the checked worker must not open it again."""
    if not isinstance(answer(soak.subject), list):
        return
    before = soak.subject.call("opened")
    answer(soak.oracle)
    answer(soak.subject)
    if soak.subject.call("opened") != before:
        raise Wrong("the worker opened the store again, and nothing had been written")


WEIGHTS: dict[Callable[[Soak], Any], int] = {
    upsert: 30, change_rows: 12, delete_rows: 10, rename_collection: 4, recreate_with_another_dimension: 6,
    write_at_once: 4, wipe: 4, wipe_contents: 3, wipe_and_rebuild: 6, back_up: 6, restore: 4, restore_in_place: 4,
    move: 4, delete_an_index: 3, change_the_schema: 3, truncate: 2, kill_the_worker: 3, kill_in_an_upsert: 4,
    only_open: 8,
}  # fmt: skip


class Wrong(Exception):
    """An event whose own promise was not kept."""


def by_exec(path: Path) -> Any:
    """What a process started by exec reads there, without anything of isolated.py."""
    done = subprocess.run(
        [sys.executable, __file__, "snapshot", str(path)],
        stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=120, check=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def snapshot(path: str) -> int:
    found: Any = "nothing there"
    if os.path.exists(os.path.join(path, "chroma.sqlite3")):
        try:
            found = Store(path).snapshot()
        except Exception as error:  # noqa: BLE001 - it is compared
            found = f"{type(error).__module__}.{type(error).__qualname__}"
    print(json.dumps(found), flush=True)
    return 0


def soak_isolation(events: int, seed: int) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), seed)
        try:
            for _ in range(events):
                try:
                    wrong = soak.step()
                except Wrong as error:
                    wrong = str(error)
                if wrong:
                    print(
                        f"wrong after {len(soak.events)} events with --seed {seed}:",
                        *soak.events[-12:],
                        wrong,
                        sep="\n",
                    )
                    return 1
                if len(soak.events) % 100 == 0:
                    print(f"{len(soak.events)} events, 0 wrong, {time.monotonic() - began:.0f} s", flush=True)
        finally:
            soak.close()
    print(f"{events} events with --seed {seed}: 0 wrong answers")
    return 0


# -------------------------------------------------------------------------------------------------- writers, readers

WRITERS, BATCH, DIMENSION = 4, 50, 8


def row(writer: int, number: int) -> Row:
    numbers = random.Random(f"{writer} {number}")
    return f"w{writer}-{number}", [numbers.random() for _ in range(DIMENSION)]


def write(path: str, writer: int, each: int) -> int:
    with isolated_store(Path(path)) as store:
        for first in range(0, each, BATCH):
            store.call("upsert", "all", [row(writer, number) for number in range(first, min(first + BATCH, each))])
    return 0


def run(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, *map(str, arguments)], stdin=subprocess.DEVNULL)


def lost(path: Path, each: int) -> tuple[int, int]:
    """How many rows are missing, by count and by a search for each row's own vector, for a fresh process."""
    missing = 0
    with isolated_store(path, fresh=True) as store:
        found = store.call("size", "all")
        for writer in range(WRITERS):
            rows = [row(writer, number) for number in range(each)]
            missing += len(store.call("search", "all", [id for id, _ in rows], [vector for _, vector in rows]))
    return WRITERS * each - found, missing


def soak_writers(each: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        together, alone = Path(folder, "together"), Path(folder, "alone")
        began = time.monotonic()
        writers = [run("write", together, writer, each) for writer in range(WRITERS)]
        statuses = [writer.wait() for writer in writers]
        seconds = time.monotonic() - began
        for writer in range(WRITERS):  # the control: an index can leave rows unreachable by itself
            statuses.append(run("write", alone, writer, each).wait())
        counts = {name: lost(path, each) for name, path in (("together", together), ("one after the other", alone))}
    for name, (by_count, by_search) in counts.items():
        print(f"{WRITERS} x {each} rows, {name}: {by_count} missing by count, {by_search} by search")
    print(f"{seconds:.0f} s together")
    return 1 if any(statuses) or any(any(each) for each in counts.values()) else 0


def read(path: str, reads: int) -> int:
    with isolated_store(Path(path)) as store:
        store.call("snapshot")
        for _ in range(reads):
            store.call("snapshot")
        print(store.call("opened") - 1)
    return 0


def soak_readers(reads: int) -> int:
    """Two parents that only read, and an opening now and then by one that reads once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "db")
        with isolated_store(path) as store:
            store.call("upsert", "first", [row(0, number) for number in range(100)])
        argv = [sys.executable, __file__, "read", str(path), str(reads // 2)]
        readers = [
            subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, encoding="utf-8") for _ in range(2)
        ]
        by_exec(path)
        needless = [int(reader.communicate()[0]) for reader in readers]
    print(f"{reads} reads by two processes: opened again {sum(needless)} times")
    return 1 if sum(needless) else 0


def count(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a number from {least} on, not {text!r}")
        return int(text)

    return number


INNER: dict[str, Callable[..., int]] = {"snapshot": snapshot, "write": write, "read": read}  # how it starts itself


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True, metavar="{isolation,writers,readers}")
    one = what.add_parser("isolation", help="random events against an oracle")
    one.add_argument("--events", type=count(1), default=700)
    one.add_argument("--seed", type=count(0), default=0)
    what.add_parser("writers", help="four processes that write").add_argument("--each", type=count(1), default=2500)
    what.add_parser("readers", help="two processes that read").add_argument("--reads", type=count(2), default=1000)
    for name in INNER:
        inner = what.add_parser(name)
        inner.add_argument("path")
        inner.add_argument("numbers", type=int, nargs="*")
    options = parser.parse_args()
    try:
        metadata.version("chromadb")
    except metadata.PackageNotFoundError:
        parser.error(f"{sys.executable} has no chromadb: pip install 'chromadb>=1.5.2,<2'")
    if options.what == "isolation":
        return soak_isolation(options.events, options.seed)
    if options.what in ("writers", "readers"):
        return soak_writers(options.each) if options.what == "writers" else soak_readers(options.reads)
    return INNER[options.what](options.path, *options.numbers)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
