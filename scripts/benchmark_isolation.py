"""What isolation costs: every way to ask chromadb, in one run on one collection. `benchmark.py isolation` runs this.

The ways that are fast enough take turns with each other, and then the slow ones, each time with a query in this very
process beside them, so that what else the machine does meets all of them alike. The ratios are of medians; the
intervals hold the median of the paired differences with 95%.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import math
import multiprocessing
import os
import pickle
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import shared_memory
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "recipes"))

import honest_worker
import isolated
from chroma_server import chroma_server

ROWS, DIMENSION, NEAREST = 10_000, 384, 10
FAST_ROUNDS, SLOW_ROUNDS = 300, 7
MOST_ADDED, LEAST_CHEAPER, LEAST_CHEAPER_STRICT = 1.5, 200, 10  # ms; times; times
NAME = "notes"


def client_at(path: str) -> Any:
    import chromadb

    return chromadb.PersistentClient(path, chromadb.Settings(anonymized_telemetry=False))


def ask(client: Any, vector: list[float]) -> list[str]:
    ids: list[str] = client.get_collection(NAME).query(query_embeddings=[vector], n_results=NEAREST)["ids"][0]
    return ids


class Store:
    """What a user of isolated.py writes."""

    def __init__(self, path: str) -> None:
        self.client = client_at(path)

    def close(self) -> None:
        self.client.close()

    def query(self, vector: list[float]) -> list[str]:
        return ask(self.client, vector)


def open_store(path: str) -> Store:
    return Store(path)


def open_query_close(path: str, vector: list[float]) -> list[str]:
    with client_at(path) as client:
        return ask(client, vector)


# ------------------------------------------------------------------------------------------- workers of other kinds


def answer_lines(path: str) -> None:
    client = client_at(path)
    for line in sys.stdin:
        print(json.dumps(ask(client, json.loads(line))), flush=True)


def answer_pipe(pipe: Any, path: str) -> None:
    client = client_at(path)
    with contextlib.suppress(EOFError):
        while True:
            pipe.send(ask(client, pipe.recv()))


@contextlib.contextmanager
def json_lines(path: str) -> Iterator[Callable[[list[float]], Any]]:
    argv = [sys.executable, __file__, "--answer-lines", path]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as worker:
        assert worker.stdin and worker.stdout

        def call(vector: list[float]) -> Any:
            assert worker.stdin and worker.stdout
            worker.stdin.write(json.dumps(vector) + "\n")
            worker.stdin.flush()
            return json.loads(worker.stdout.readline())

        yield call
        worker.stdin.close()


@contextlib.contextmanager
def pipe(path: str) -> Iterator[Callable[[list[float]], Any]]:
    here, there = multiprocessing.get_context("spawn").Pipe()
    worker = multiprocessing.get_context("spawn").Process(target=answer_pipe, args=(there, path), daemon=True)
    worker.start()
    there.close()

    def call(vector: list[float]) -> Any:
        here.send(vector)
        return here.recv()

    yield call
    here.close()
    worker.join()


SEED = """
import json, sys
payload = json.loads(sys.stdin.read())
import chromadb
client = chromadb.PersistentClient(payload["path"], chromadb.Settings(anonymized_telemetry=False))
found = client.get_collection(payload["name"]).query(query_embeddings=[payload["vector"]], n_results=payload["n"])
json.dump(found["ids"][0], sys.stdout)
"""


def subprocess_per_call(path: str, vector: list[float]) -> Any:
    request = json.dumps({"path": path, "name": NAME, "vector": vector, "n": NEAREST})
    done = subprocess.run(
        [sys.executable, "-c", SEED], input=request, capture_output=True, encoding="utf-8", timeout=60, check=True
    )
    return json.loads(done.stdout)


def answer_once(connection: Any, path: str, vector: list[float]) -> None:
    connection.send(open_query_close(path, vector))


def process_per_call(method: str, path: str, vector: list[float]) -> Any:
    context: Any = multiprocessing.get_context(method)
    here, there = context.Pipe()
    worker = context.Process(target=answer_once, args=(there, path, vector))
    worker.start()
    there.close()
    answer = here.recv()
    worker.join()
    return answer


# -------------------------------------------------------------------------------------------------------- measuring


class Measured(NamedTuple):
    """The seconds of each call of one way, in the order of the rounds."""

    name: str
    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def line(self, base: Measured) -> str:
        """Its median in ms, the ratio to the median of `base`, and the ratios' quartiles."""
        ratios = sorted(mine / other for mine, other in zip(self.seconds, base.seconds))
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        times = f"{self.median / base.median:8.2f} times ({low:.2f} to {high:.2f})"
        return f"{self.name:<44} {1000 * self.median:9.2f} ms {times}"


def take_turns(ways: Mapping[str, Callable[..., Any]], rounds: int) -> dict[str, Measured]:
    """Each way once a round. All must answer alike."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    for vector in vectors(rounds + 2, seed=1):
        answers = {}
        for name, way in ways.items():
            began = time.perf_counter()
            answers[name] = way(vector)
            took[name].append(time.perf_counter() - began)
        if len({tuple(answer) for answer in answers.values()}) > 1:
            sys.exit(f"benchmark.py: expected every way to answer alike, saw {answers}")
    return {name: Measured(name, seconds[2:]) for name, seconds in took.items()}  # the first ones warm up


def vectors(number: int, *, seed: int = 0) -> list[list[float]]:
    import numpy

    rows: list[list[float]] = numpy.random.default_rng(seed).random((number, DIMENSION), numpy.float32).tolist()
    return rows


def difference(mine: Measured, other: Measured) -> tuple[float, float, float]:
    """The median of the paired differences in ms, and the interval that holds it with 95%."""
    each = sorted(1000 * (first - second) for first, second in zip(mine.seconds, other.seconds))
    reach = math.ceil(0.98 * math.sqrt(len(each)))
    middle = len(each) // 2
    return statistics.median(each), each[max(0, middle - reach)], each[min(len(each) - 1, middle + reach)]


def fill(path: str, rows: int) -> None:
    with client_at(path) as client:
        notes = client.create_collection(NAME)
        found = vectors(rows)
        for first in range(0, rows, 5_000):
            part = found[first : first + 5_000]
            notes.add(ids=[str(first + number) for number in range(len(part))], embeddings=part)


CHECKED, STRICT, SEEDS = (
    "isolated.py, checked worker",
    "isolated.py, fresh=True, preload=CHROMADB",
    "subprocess.run per call",
)
HERE, SERVER = "in this process", "chroma run, HttpClient"


def all_ways(path: str) -> list[Measured]:
    checked = isolated.Isolated(open_store, path, reads={"query"})
    strict = isolated.Isolated(open_store, path, reads={"query"}, fresh=True, preload=isolated.CHROMADB)
    pool: Any = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1)  # type: ignore[call-overload]
    copy = f"{path}-copy"
    shutil.copytree(path, copy)  # a second client on one path would share the first one's state
    here = client_at(copy)
    with checked, strict, pool, here, json_lines(path) as lines, pipe(path) as piped, chroma_server(path) as (http, _):
        fast = take_turns(
            {
                HERE: lambda vector: ask(here, vector),
                CHECKED: lambda vector: checked.call("query", vector),
                "a worker, JSON lines": lines,
                "a worker, multiprocessing.Pipe": piped,
                SERVER: lambda vector: ask(http, vector),
            },
            FAST_ROUNDS,
        )
        slow = take_turns(
            {
                HERE: lambda vector: ask(here, vector),
                "open, query, close in this process": lambda vector: open_query_close(path, vector),
                STRICT: lambda vector: strict.call("query", vector),
                "pool with max_tasks_per_child=1": lambda vector: pool.submit(open_query_close, path, vector).result(),
                "spawn per call": lambda vector: process_per_call("spawn", path, vector),
                "honest_worker.py": lambda vector: honest_worker.call(  # type: ignore[no-untyped-call]
                    "query", path, NAME, query_embeddings=[vector], n_results=NEAREST
                )["ids"][0],
                SEEDS: lambda vector: subprocess_per_call(path, vector),
            },
            SLOW_ROUNDS,
        )
    print(f"one query of {ROWS} x {DIMENSION}; medians of {FAST_ROUNDS} rounds, and of {SLOW_ROUNDS} of the slow ways")
    for each in (*fast.values(), *list(slow.values())[1:]):
        print(each.line(fast[HERE] if each.name in fast else slow[HERE]))
    return [*fast.values(), *list(slow.values())[1:]]


def within_bounds(measured: Sequence[Measured]) -> bool:
    by_name = {each.name: each for each in measured}
    checked, server_costs = by_name[CHECKED], by_name[SERVER]
    added, low, high = difference(checked, by_name[HERE])
    beside, least, most = difference(checked, server_costs)
    cheaper, strictly = (by_name[SEEDS].median / by_name[name].median for name in (CHECKED, STRICT))
    print(f"a checked call adds {added:.2f} ms ({low:.2f} to {high:.2f}; bound: {MOST_ADDED} ms)")
    print(f"beside HttpClient it costs {beside:+.2f} ms ({least:+.2f} to {most:+.2f}; bound: 0)")
    print(f"{SEEDS} costs {cheaper:.0f} times a checked call (bound: {LEAST_CHEAPER})")
    print(f"{SEEDS} costs {strictly:.1f} times the strictest form (bound: {LEAST_CHEAPER_STRICT})")
    return added <= MOST_ADDED and beside <= 0 and cheaper >= LEAST_CHEAPER and strictly >= LEAST_CHEAPER_STRICT


# ------------------------------------------------------------------------------------ sizes, callers, forms of payload


def by_size(folder: str) -> None:
    print("\na checked call and one in this process, by the size of the collection:")
    for rows in (100, 1_000, ROWS):
        path = os.path.join(folder, f"size-{rows}")
        fill(path, rows)
        shutil.copytree(path, f"{path}-copy")
        with isolated.Isolated(open_store, path, reads={"query"}) as checked, client_at(f"{path}-copy") as here:
            ways = {
                HERE: lambda vector, here=here: ask(here, vector),
                CHECKED: lambda vector, it=checked: it.call("query", vector),
            }
            took = take_turns(ways, 100)
        added, low, high = difference(took[CHECKED], took[HERE])
        print(f"{rows:>8} rows {1000 * took[HERE].median:8.2f} ms, {added:+.2f} ms ({low:+.2f} to {high:+.2f})")


def call_often(path: str, ready: Any, results: Any) -> None:
    with isolated.Isolated(open_store, path, reads={"query"}) as checked:
        asked = vectors(100)
        checked.call("query", asked[0])
        ready.wait()
        took = []
        for vector in asked:
            began = time.perf_counter()
            checked.call("query", vector)
            took.append(time.perf_counter() - began)
        results.put(took)


def by_callers(path: str) -> None:
    print("\na checked call, by the number of processes that call at once:")
    context = multiprocessing.get_context("spawn")
    for callers in (1, 2, 4):
        ready, results = context.Barrier(callers), context.Queue()
        processes = [context.Process(target=call_often, args=(path, ready, results)) for _ in range(callers)]
        for process in processes:
            process.start()
        took = sorted(second for _ in processes for second in results.get())
        for process in processes:
            process.join()
        print(
            f"{callers:>8} {1000 * statistics.median(took):8.2f} ms, "
            f"95th percentile {1000 * took[-len(took) // 20]:.2f} ms"
        )


def echo_size(pipe: Any, folder: str) -> None:
    """The other end: decodes what comes, and answers how many numbers it got."""
    import numpy

    while True:
        form = pipe.recv_bytes().decode()
        if form == "end":
            return
        data = pipe.recv_bytes()
        if form in ("raw bytes", "shared memory", ".npy file, its name"):
            found = decode_arrays(form, data, folder)
        elif form == "base64 in JSON":
            found = numpy.frombuffer(base64.b64decode(json.loads(data)["rows"]), numpy.float32)
        else:
            found = json.loads(data) if form == "JSON of lists" else pickle.loads(data)
        pipe.send(len(found) if form != "raw bytes" else found.size // DIMENSION)


def decode_arrays(form: str, data: bytes, folder: str) -> Any:
    import numpy

    if form == "raw bytes":
        return numpy.frombuffer(data, numpy.float32)
    if form == "shared memory":
        segment = shared_memory.SharedMemory(data.decode())
        copy = numpy.frombuffer(segment.buf, numpy.float32, ROWS * DIMENSION).reshape(-1, DIMENSION).copy()
        segment.close()
        return copy
    return numpy.load(os.path.join(folder, data.decode()))


def payloads(folder: str) -> None:
    import numpy

    rows = numpy.random.default_rng(2).random((ROWS, DIMENSION), numpy.float32)

    def in_shared_memory() -> bytes:
        segment = shared_memory.SharedMemory(create=True, size=rows.nbytes)
        segments.append(segment)
        numpy.frombuffer(segment.buf, numpy.float32, rows.size)[:] = rows.ravel()
        return segment.name.encode()

    def in_a_file() -> bytes:
        numpy.save(os.path.join(folder, "rows.npy"), rows)
        return b"rows.npy"

    segments: list[shared_memory.SharedMemory] = []
    forms: dict[str, Callable[[], bytes]] = {
        "raw bytes": rows.tobytes,
        "pickle of the array": lambda: pickle.dumps(rows, 5),
        ".npy file, its name": in_a_file,
        "shared memory": in_shared_memory,
        "base64 in JSON": lambda: json.dumps({"rows": base64.b64encode(rows).decode()}).encode(),
        "pickle of lists": lambda: pickle.dumps(rows.tolist()),
        "JSON of lists": lambda: json.dumps(rows.tolist()).encode(),
    }
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    worker = context.Process(target=echo_size, args=(there, folder))
    worker.start()
    print(f"\n{ROWS} x {DIMENSION} float32 to another process, encoded, sent and decoded:")
    base = 0.0
    for form, encode in forms.items():
        took, size = [], 0
        for _ in range(4):
            began = time.perf_counter()
            data = encode()
            here.send_bytes(form.encode())
            here.send_bytes(data)
            here.recv()
            took.append(time.perf_counter() - began)
            size = len(data)
            while segments:
                segments[-1].close()
                segments.pop().unlink()
        base = base or statistics.median(took[1:])
        middle = statistics.median(took[1:])
        print(f"{form:<24} {size / 1e6:6.1f} MB {1000 * middle:9.1f} ms {middle / base:8.1f} times")
    here.send_bytes(b"end")
    worker.join()


# --------------------------------------------------------------------------------------------------------------- plot


def plot(measured: Sequence[Measured], path: Path) -> None:
    """Writes the medians as an SVG of bars on a logarithmic scale, fastest first."""
    bars = sorted(measured, key=lambda each: each.median)
    lowest, decades = -3.0, 4.0  # from 1 ms to 10 s
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {40 + 26 * len(bars)}" font-family="sans-serif">'
    ]
    lines.append("<title>One query of chromadb, by the way it is asked</title>")
    for power in range(int(decades) + 1):
        x = 330 + 340 * power / decades
        lines.append(f'<line x1="{x:.0f}" y1="8" x2="{x:.0f}" y2="{14 + 26 * len(bars)}" stroke="#8884"/>')
        label = f"{10**power} ms" if power < 3 else f"{10 ** (power - 3)} s"
        lines.append(
            f'<text x="{x:.0f}" y="{32 + 26 * len(bars)}" font-size="12" fill="#888" '
            f'text-anchor="middle">{label}</text>'
        )
    for number, each in enumerate(bars):
        y = 12 + 26 * number
        width = 340 * (math.log10(each.median) - lowest) / decades
        colour = "#d9480f" if "isolated.py" in each.name else "#748ffc"
        lines.append(f'<text x="322" y="{y + 14}" font-size="13" fill="#888" text-anchor="end">{each.name}</text>')
        lines.append(f'<rect x="330" y="{y}" width="{max(1, width):.0f}" height="18" fill="{colour}"/>')
        lines.append(
            f'<text x="{336 + width:.0f}" y="{y + 14}" font-size="12" fill="#888">{1000 * each.median:.3g} ms</text>'
        )
    path.write_text("\n".join([*lines, "</svg>"]) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmark.py isolation", description=__doc__)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write the medians there, as SVG")
    parser.add_argument("--answer-lines", metavar="PATH", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer_lines:
        answer_lines(options.answer_lines)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "db")
        fill(path, ROWS)
        measured = all_ways(path)
        good = within_bounds(measured)
        by_size(folder)
        by_callers(path)
        payloads(folder)
    if options.plot:
        plot(measured, options.plot)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
