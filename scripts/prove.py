"""Prove all of it, for long enough to be believed: every Python, idle and under load, again and again.

    python scripts/prove.py --once    what `make check` runs: every Python idle, the newest under load, mutants
    python scripts/prove.py           three rounds of every Python, idle and under load; mutants on every Python

Without --once it can be interrupted and goes on where it was: build/proven.json says what has held for the sources as
they are now, and any change to them starts it anew.

Exit status: 0 all of it holds, 1 some of it does not, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PROVEN = ROOT / "build" / "proven.json"
CLAIMED = [f"3.{minor}" for minor in range(9, 16)]
ADVERSARIES = ROOT / "tests" / "test_run_tree.py"
ISOLATION = ROOT / "build" / "iso"  # where scripts/verify-iso.sh makes an environment for each Python with wheels
BUSY_LOOPS = 4
ROUNDS = 3
SEEDS, EVENTS = (1, 2, 3), 700

# A busy loop that ends with whoever holds the other end of its standard input.
BUSY = """\
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
while True:
    pass
"""


class Step(NamedTuple):
    """One thing to prove: a script of ours, or `-m` with a module, and its arguments, under so many busy loops, run by
    that Python."""

    name: str
    script: str
    arguments: tuple[str, ...]
    loops: int = 0
    python: str = sys.executable


def steps(pythons: list[str], once: bool) -> Iterator[Step]:
    every = tuple(argument for python in pythons for argument in ("--python", python))
    newest = ("--python", pythons[-1])
    if once:
        yield Step("every Python, idle", "verify-recipes.py", every)
        yield Step(f"the newest Python, {BUSY_LOOPS} busy loops", "verify-recipes.py", newest, BUSY_LOOPS)
        yield Step("mutants on the newest Python", "mutate.py", newest)
        return
    for number in range(1, ROUNDS + 1):
        yield Step(f"round {number}: every Python, idle", "verify-recipes.py", every)
        yield Step(f"round {number}: every Python, {BUSY_LOOPS} busy loops", "verify-recipes.py", every, BUSY_LOOPS)
    for python in pythons:
        yield Step(f"mutants on {python}", "mutate.py", ("--python", python))
    adversaries = ("pytest", "-q", str(ADVERSARIES), "--rounds", "100")
    yield Step(f"run_tree and its adversaries, 100 rounds, {BUSY_LOOPS} busy loops", "-m", adversaries, BUSY_LOOPS)
    yield from isolation()


def isolation() -> Iterator[Step]:
    """What needs chromadb and faiss."""
    pythons = [str(path) for path in sorted(ISOLATION.glob("3.*/bin/python"), key=lambda path: len(str(path)))]
    if not pythons:
        sys.exit(f"prove.py: expected environments in {ISOLATION.relative_to(ROOT)}: make verify-iso makes them")
    every: tuple[str, ...] = ("iso", "--require", "chromadb", "--require", "faiss-cpu")
    every += tuple(argument for python in pythons for argument in ("--python", python))
    for number in range(1, ROUNDS + 1):
        yield Step(f"round {number}: iso, idle", "verify-recipes.py", every)
        yield Step(f"round {number}: iso, {BUSY_LOOPS} busy loops", "verify-recipes.py", every, BUSY_LOOPS)
    rules = [path.stem.replace("_", "-") for path in sorted((ROOT / "recipes").glob("iso_*.py"))]
    yield Step("mutants of iso", "mutate.py", (*rules, "--python", pythons[-1]))
    for seed in SEEDS:
        arguments = ("isolation", "--events", str(EVENTS), "--seed", str(seed))
        yield Step(f"isolated.py under {EVENTS} events, seed {seed}", "soak.py", arguments, python=pythons[0])
    yield Step("four writers", "soak.py", ("writers",), python=pythons[-1])
    yield Step("two readers", "soak.py", ("readers",), python=pythons[-1])
    yield Step("what isolation costs", "benchmark.py", ("isolation", "--python", pythons[-1]))


def find_pythons() -> list[str]:
    """The paths that scripts/pythons.sh lists, oldest first. Exits when a version that the pack claims is missing."""
    done = subprocess.run(
        [ROOT / "scripts" / "pythons.sh"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        encoding="utf-8", timeout=300, check=True,
    )  # fmt: skip
    pythons = done.stdout.splitlines()
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    found = {run_quietly([python, "-c", ask]) for python in pythons}
    missing = [version for version in CLAIMED if version not in found]
    if missing:
        sys.exit(
            f"prove.py: expected Python {', '.join(CLAIMED)}; {', '.join(missing)} is missing: "
            "scripts/pythons.sh --install brings the newer ones on Debian, pyenv the others"
        )
    return pythons


def run_quietly(command: list[str]) -> str:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=60, check=True
    )
    return done.stdout.strip()


@contextlib.contextmanager
def busy(loops: int) -> Iterator[None]:
    command = [sys.executable, "-c", BUSY]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(loops)]
    try:
        yield
    finally:
        for child in running:
            child.kill()
            child.communicate(timeout=60)


def holds(step: Step) -> bool:
    began = time.monotonic()
    script = step.script if step.script == "-m" else str(ROOT / "scripts" / step.script)
    command = [step.python, "-B", script, *step.arguments]
    with busy(step.loops):
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=3600, check=False
        )
    last = (done.stdout.strip().splitlines() or ["nothing"])[-1]
    print(
        f"{'ok  ' if done.returncode == 0 else 'fail'}  {step.name}: {last} ({time.monotonic() - began:.0f}s)",
        flush=True,
    )
    if done.returncode:
        wrong = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("ok  ")]
        print("\n".join(wrong), flush=True)
    return done.returncode == 0


def sources() -> str:
    """A digest of all that is proven, and of what proves it."""
    digest = hashlib.sha256()
    for path in sorted([*ROOT.glob("recipes/*.py"), *ROOT.glob("scripts/*.*"), ADVERSARIES]):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def load_proven(now: str) -> list[str]:
    if not PROVEN.exists():
        return []
    kept = json.loads(PROVEN.read_text(encoding="utf-8"))
    return list(kept["steps"]) if kept["sources"] == now else []


def save_proven(now: str, names: list[str]) -> None:
    PROVEN.parent.mkdir(exist_ok=True)
    new = PROVEN.with_suffix(".new")
    new.write_text(json.dumps({"sources": now, "steps": names}, indent=1), encoding="utf-8")
    os.replace(new, PROVEN)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--once", action="store_true", help="the short form")
    once = parser.parse_args().once
    now = sources()
    proven = [] if once else load_proven(now)
    failed = 0
    for step in steps(find_pythons(), once):
        if step.name in proven:
            print(f"ok    {step.name}: held before")
        elif holds(step):
            proven.append(step.name)
            if not once:
                save_proven(now, proven)
        else:
            failed += 1
    print("all of it holds" if not failed else f"{failed} of it do not hold")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("prove.py: interrupted; what has held is kept", file=sys.stderr)
        sys.exit(130)
