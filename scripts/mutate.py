"""Break every recipe on purpose, and see that its proof notices.

    python scripts/mutate.py [RULE ...] [--python PATH]

Two mutants per declared function: one with its counterpart's outcome, one with its counterpart's body. A broken half's
counterpart is the next fixed one, a fixed half's the broken one before it; a check, which has none, gets an outcome
that cannot hold. Each mutant is proven by itself and must fail, by an outcome other than declared.

Exit status: 0 every mutant fails, 1 one survives or there is none, 2 wrong use.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import rules

if TYPE_CHECKING:
    from collections.abc import Iterator

RECIPES = Path(__file__).resolve().parent.parent / "recipes"
IMPOSSIBLE = '__import__("kit").returns("what no function returns")'
INVALID = (
    "NameError",
    "SyntaxError",
    "IndentationError",
    "UnboundLocalError",
)  # the mutant is wrong, not the code in it


class Mutant(NamedTuple):
    rule: rules.Rule
    function: str
    what: str
    source: str


def counterpart(halves: tuple[rules.Half, ...], number: int) -> rules.Half | None:
    kind = halves[number].kind
    if kind == "broken":
        following = [half for half in halves[number:] if half.kind == "fixed"]
        return (following or [half for half in halves if half.kind == "fixed"])[0]
    if kind == "fixed":
        return next(half for half in reversed(halves[:number]) if half.kind == "broken")
    return None


def mutants(rule: rules.Rule, version: tuple[int, int], unmet: frozenset[str]) -> Iterator[Mutant]:
    def replaced(place: rules.Place, text: str) -> str:
        source = rule.source.encode()
        return (source[: place[0]] + text.encode() + source[place[1] :]).decode()

    for number, half in enumerate(rule.halves):
        if half.floor and version < half.floor:  # below a floor another outcome holds, which is left as it is
            continue
        if unmet.intersection(needs_of(rule, half)):  # it is skipped there, whatever it does
            continue
        other = counterpart(rule.halves, number)
        if other is None:
            yield Mutant(rule, half.name, "an outcome that cannot hold", replaced(half.outcome, IMPOSSIBLE))
            continue
        outcome, body = rule.text(other.outcome), rule.text(other.body)
        yield Mutant(rule, half.name, f"the outcome of {other.name}", replaced(half.outcome, outcome))
        yield Mutant(rule, half.name, f"the body of {other.name}", replaced(half.body, body))


def needs_of(rule: rules.Rule, half: rules.Half) -> list[str]:
    """The third-party requirements of that half, as they are written."""
    whole = [name + ",".join(f"{sign}{'.'.join(map(str, bound))}" for sign, bound in bounds)
             for name, bounds in rule.needs.items()]  # fmt: skip
    return whole + [half.needs] * bool(half.needs)


def unmet_on(python: str, needs: set[str]) -> frozenset[str]:
    program = "import sys, kit; print(*(need for need in sys.argv[1:] if kit._unmet(need)), sep='\\n')"
    said = subprocess.run(
        [python, "-B", "-c", program, *sorted(needs)],
        stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=60, check=True, cwd=RECIPES,
    ).stdout  # fmt: skip
    return frozenset(said.splitlines())


def version_of(python: str) -> tuple[int, int]:
    program = "import sys; print(*sys.version_info[:2])"
    said = subprocess.run(
        [python, "-c", program], stdin=subprocess.DEVNULL, capture_output=True, encoding="ascii", timeout=60, check=True
    ).stdout
    major, minor = map(int, said.split())
    return major, minor


def survives(mutant: Mutant, python: str) -> str:
    """Why the mutant is not taken for what it is; empty when its proof fails as it should."""
    with tempfile.TemporaryDirectory(prefix="hp-") as folder:
        for module in RECIPES.glob("*.py"):
            if module.stem in rules.MODULES:
                shutil.copy(module, folder)
        path = Path(folder, mutant.rule.path.name)
        path.write_text(mutant.source, encoding="utf-8")
        done = subprocess.run(
            [python, "-B", str(path), mutant.function, "--timeout", "8"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=300,
            check=False,
        )
    said = done.stdout + done.stderr
    if done.returncode == 1 and f"{mutant.function}: declared " in said and not any(word in said for word in INVALID):
        return ""
    return f"exit status {done.returncode}:\n{said}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rules", nargs="*", metavar="RULE", help="ids of the rules to break (all)")
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="the interpreter to prove them on")
    options = parser.parse_args()
    found = {rule.id: rule for rule in rules.find_rules(RECIPES)}
    unknown = [name for name in options.rules if name not in found]
    if unknown:
        parser.error(f"RULE takes one of {', '.join(found)}; {unknown[0]!r} is none")
    version = version_of(options.python)
    chosen = [found[name] for name in options.rules or found]
    unmet = unmet_on(options.python, {need for rule in chosen for half in rule.halves for need in needs_of(rule, half)})
    made = [mutant for rule in chosen for mutant in mutants(rule, version, unmet)]
    with ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
        verdicts = list(pool.map(lambda mutant: survives(mutant, options.python), made))
    alive = [(mutant, why) for mutant, why in zip(made, verdicts) if why]
    for mutant, why in alive:
        print(f"survives: {mutant.rule.id}, {mutant.function} with {mutant.what}: {why}")
    print(f"{len(made)} mutants, {len(alive)} survive")
    return 0 if made and not alive else 1


if __name__ == "__main__":
    sys.exit(main())
