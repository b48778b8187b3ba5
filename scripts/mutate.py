"""Break every recipe on purpose, and see that its proof notices.

    python scripts/mutate.py [RULE ...] [--python PATH]

Two mutants per declared function: one with its counterpart's outcome, one with its counterpart's body. A broken half's
counterpart is the next fixed one, a fixed half's the broken one before it; a check, which has none, gets an outcome
that cannot hold. Each mutant is proven by itself and must fail, by an outcome other than declared.

Exit status: 0 every mutant fails, 1 one survives or there is none, 2 wrong use.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

RECIPES = Path(__file__).resolve().parent.parent / "recipes"
MODULES = ("kit.py", "supervisor.py", "linux.py", "run_tree.py", "isolated.py")
KINDS = ("broken", "fixed", "check", "shows")
IMPOSSIBLE = '__import__("kit").returns("what no function returns")'
INVALID = ("NameError", "SyntaxError", "TypeError", "IndentationError")  # the mutant is wrong, not the code in it


class Part(NamedTuple):
    """One declared function or program: the places of its outcome and of its body in the source."""

    name: str
    kind: str
    outcome: tuple[int, int]
    body: tuple[int, int]


class Mutant(NamedTuple):
    recipe: Path
    function: str
    what: str
    source: str


def parts(source: str) -> list[Part]:
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def place(first: ast.expr | ast.stmt, last: ast.expr | ast.stmt) -> tuple[int, int]:
        assert last.end_lineno and last.end_col_offset is not None
        return starts[first.lineno - 1] + first.col_offset, starts[last.end_lineno - 1] + last.end_col_offset

    found = []
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            name, calls, body = node.name, node.decorator_list, place(node.body[0], node.body[-1])
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value.args:
            program = node.value.args[0]
            name, calls, body = ast.unparse(node.targets[0]), [node.value.func], place(program, program)
        else:
            continue
        for call in calls:
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in KINDS:
                found.append(Part(name, call.func.id, place(call.args[0], call.args[0]), body))
    return found


def counterpart(all_parts: list[Part], number: int) -> Part | None:
    part = all_parts[number]
    if part.kind == "broken":
        following = [other for other in all_parts[number:] if other.kind == "fixed"]
        return (following or [other for other in all_parts if other.kind == "fixed"])[0]
    if part.kind == "fixed":
        return next(other for other in reversed(all_parts[:number]) if other.kind == "broken")
    return None


def mutants(recipe: Path) -> Iterator[Mutant]:
    source = recipe.read_text(encoding="utf-8")
    encoded, found = source.encode(), parts(source)

    def replaced(place: tuple[int, int], text: bytes) -> str:
        return (encoded[: place[0]] + text + encoded[place[1] :]).decode()

    for number, part in enumerate(found):
        other = counterpart(found, number)
        if other is None:
            yield Mutant(recipe, part.name, "an outcome that cannot hold", replaced(part.outcome, IMPOSSIBLE.encode()))
            continue
        outcome, body = encoded[slice(*other.outcome)], encoded[slice(*other.body)]
        yield Mutant(recipe, part.name, f"the outcome of {other.name}", replaced(part.outcome, outcome))
        yield Mutant(recipe, part.name, f"the body of {other.name}", replaced(part.body, body))


def survives(mutant: Mutant, python: str) -> str:
    """Why the mutant is not taken for what it is; empty when its proof fails as it should."""
    with tempfile.TemporaryDirectory(prefix="hp-") as folder:
        for module in MODULES:
            if mutant.recipe.with_name(module).exists():
                shutil.copy(mutant.recipe.with_name(module), folder)
        path = Path(folder, mutant.recipe.name)
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
    recipes = {path.stem.replace("_", "-"): path for path in sorted(RECIPES.glob("*.py")) if path.name not in MODULES}
    unknown = [rule for rule in options.rules if rule not in recipes]
    if unknown:
        parser.error(f"RULE takes one of {', '.join(recipes)}; {unknown[0]!r} is none")
    made = [mutant for rule in options.rules or recipes for mutant in mutants(recipes[rule])]
    with ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
        verdicts = list(pool.map(lambda mutant: survives(mutant, options.python), made))
    alive = [(mutant, why) for mutant, why in zip(made, verdicts) if why]
    for mutant, why in alive:
        print(f"survives: {mutant.recipe.name}, {mutant.function} with {mutant.what}: {why}")
    print(f"{len(made)} mutants, {len(alive)} survive")
    return 0 if made and not alive else 1


if __name__ == "__main__":
    sys.exit(main())
