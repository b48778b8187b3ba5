"""The measured comparisons: both sides in one run, and the ratio between them.

    python scripts/benchmark.py verify      what a run of the verifier costs, against the least that it could
    python scripts/benchmark.py run_tree    what run_tree() costs beside subprocess.run()
    python scripts/benchmark.py isolation   what each way to isolate chromadb costs; --plot FILE draws it

The least that a run could take is its longest recipe alone, or its CPU time shared by all cores, whichever is more.

Exit status: 0 within the bounds that it prints, 1 beyond one of them, 2 wrong use.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MOST = 1.3  # times the least
LONGEST_ALONE = 4.0  # seconds
CALLS = 100


class Cost(NamedTuple):
    """A run's wall-clock time and CPU time, in seconds, and what it printed."""

    wall: float
    cpu: float
    output: str


def cost(command: list[str]) -> Cost:
    """Runs the command, whose status must be 0. Its CPU time includes its children's, as far as they were reaped."""
    began = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, encoding="utf-8") as child:
        assert child.stdout is not None
        output = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)  # the only way to learn what this one child used
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"benchmark.py: expected {' '.join(command)} to succeed, its status is {child.returncode}:\n{output}")
    return Cost(time.monotonic() - began, usage.ru_utime + usage.ru_stime, output)


def verify(python: str) -> int:
    command = [python, "-B", str(ROOT / "scripts" / "verify-recipes.py"), "--format", "json"]
    cost(command)  # writes the bytecode of the standard library, if nobody has yet
    alone, together = cost([*command, "--jobs", "1"]), cost(command)
    seconds = rule_seconds(alone.output)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    dearest = sorted(seconds, key=lambda id: -seconds[id])
    longest = seconds[dearest[0]]
    least = max(longest, together.cpu / cores)
    print(f"{len(seconds)} rules on {cores} cores: {together.wall:.1f} s, {together.cpu:.1f} s of CPU")
    print(f"longest recipe alone: {longest:.1f} s (bound: {LONGEST_ALONE:.1f} s)")
    print(f"least: {least:.1f} s; ratio: {together.wall / least:.2f} (bound: {MOST})")
    for id in dearest[:8]:
        print(f"  {id:<40} {seconds[id]:.1f} s alone, {rule_seconds(together.output)[id]:.1f} s among the others")
    return 0 if together.wall <= MOST * least and longest <= LONGEST_ALONE else 1


def rule_seconds(report: str) -> dict[str, float]:
    results: list[dict[str, Any]] = json.loads(report)["rules"]
    return {str(result["rule"]): float(result["seconds"]) for result in results}


COMPARE = """\
import json, subprocess, sys, time
from run_tree import run_tree
calls = {
    "subprocess.run": lambda: subprocess.run(["true"], stdin=subprocess.DEVNULL, timeout=60, check=True),
    "a Python": lambda: subprocess.run([sys.executable, "-IS", "-c", ""], stdin=subprocess.DEVNULL, timeout=60),
    "run_tree": lambda: run_tree(["true"], timeout=60, check=True),
}
took = {name: [] for name in calls}
for _ in range(int(sys.argv[1])):
    for name, call in calls.items():
        began = time.perf_counter()
        call()
        took[name].append(time.perf_counter() - began)
print(json.dumps(took))
"""


def run_tree(python: str) -> int:
    done = subprocess.run(
        [python, "-c", COMPARE, str(CALLS)],
        stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=600, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "recipes")},
    )  # fmt: skip
    took: dict[str, list[float]] = json.loads(done.stdout)
    base = statistics.median(took["subprocess.run"])
    for name, seconds in took.items():
        middle = statistics.median(seconds)
        print(
            f"{name:<16} {1000 * middle:6.1f} ms, the median of {len(seconds)} calls; {middle / base:5.1f} times run()"
        )
    return 0


def isolation(python: str, options: list[str]) -> int:
    found = subprocess.run([python, "-c", "import chromadb, numpy"], stdin=subprocess.DEVNULL, capture_output=True)
    if found.returncode:
        print(f"benchmark.py: expected chromadb with {python}: pip install 'chromadb>=1.5.2,<2'", file=sys.stderr)
        return 2
    script = str(ROOT / "scripts" / "benchmark_isolation.py")
    return subprocess.run([python, script, *options], stdin=subprocess.DEVNULL, timeout=1800).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("verify", "run_tree", "isolation"))
    parser.add_argument("--python", default=sys.executable, help="the interpreter to measure on (default: this one)")
    parser.add_argument("--plot", metavar="FILE", help="isolation only: write the medians there, as SVG")
    options = parser.parse_args()
    if options.what == "isolation":
        return isolation(options.python, ["--plot", options.plot] if options.plot else [])
    return {"verify": verify, "run_tree": run_tree}[options.what](options.python)


if __name__ == "__main__":
    sys.exit(main())
