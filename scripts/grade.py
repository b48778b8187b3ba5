"""Run an answer to one of the tasks in evals/ against its adversaries, and say which of them it survives.

    python scripts/grade.py TASK DIRECTORY

The answer is DIRECTORY/answer.py, with whatever else it imports beside it. A task is a folder of evals/: request.md is
all that the author of an answer is told, adversaries.py holds functions declared like those of a recipe, each with the
rule that it is about. They run as recipes do, below a supervisor, so that no answer can hang, leak or flood the grader.

Exit status: 0 it survives all of them, 1 it does not, 2 wrong use.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "recipes"))

import rules  # noqa: E402
import supervisor  # noqa: E402

BOUND = 60  # seconds for each adversary
KIT = ("kit.py", "console.py", "linux.py", "supervisor.py")


class Adversary(NamedTuple):
    """What one adversary is about, and how the answer fared with it. `saw` is empty when it did as expected."""

    name: str
    about: str
    saw: str


class WrongUse(Exception):
    pass


def grade(task: Path, answer: Path, python: str = sys.executable) -> list[Adversary]:
    """Runs the answer in the folder `answer` against every adversary of the task, in their order."""
    source = (task / "adversaries.py").read_text(encoding="utf-8")
    ours = [(ROOT / "recipes" / name).read_text(encoding="utf-8") for name in KIT]
    theirs = [(path.name, path.read_text(encoding="utf-8")) for path in sorted(answer.glob("*.py"))]
    about = abouts(source)
    run = supervisor.Run(
        (python,),
        bound=BOUND * (len(about) + 1),
        files=(("adversaries.py", source), *theirs, *zip(KIT, ours)),
        arguments=("--timeout", str(BOUND)),
        reply=True,
    )
    seen = supervisor.finish(supervisor.start(run))
    results = {result["name"]: result for result in map(parse, seen.answer.splitlines()) if result}
    never = f"never ran: {seen.stopped or seen.status}\n{seen.output[-2000:]}"
    return [Adversary(name, text, verdict(results.get(name), never)) for name, text in about.items()]


def abouts(source: str) -> dict[str, str]:
    """The first line of each adversary's docstring, by its name, in order: the rule, and what it does."""
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    declared = [node for node in functions if any(map(rules.is_declaration, node.decorator_list))]
    return {node.name: (ast.get_docstring(node) or "").partition("\n")[0] for node in declared}


def parse(line: str) -> dict[str, Any] | None:
    try:
        return dict(json.loads(line))
    except ValueError:  # cut off, or written by two processes at once: it counts as never reported
        return None


def verdict(result: dict[str, Any] | None, never: str) -> str:
    if result is None:
        return never
    return "" if result["status"] == "ok" else str(result["reason"])


def find_task(name: str) -> Path:
    tasks = {path.parent.name: path.parent for path in sorted((ROOT / "evals").glob("*/*/adversaries.py"))}
    if name not in tasks:
        near = difflib.get_close_matches(name, tasks, 1)
        raise WrongUse(
            f"TASK is one of {', '.join(tasks)}, not {name}" + (f"; did you mean {near[0]}?" if near else "")
        )
    return tasks[name]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", metavar="TASK")
    parser.add_argument("answer", metavar="DIRECTORY", type=Path, help="holds answer.py")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the answer (this one)")
    options = parser.parse_args()
    try:
        task = find_task(options.task)
        if not (options.answer / "answer.py").is_file():
            raise WrongUse(f"DIRECTORY holds answer.py; {options.answer} does not")
    except WrongUse as error:
        print(f"grade.py: {error}", file=sys.stderr)
        return 2
    results = grade(task, options.answer, options.python)
    for adversary in results:
        print(f"{'fail' if adversary.saw else 'ok  '}  {adversary.name:<40} {adversary.about}")
        if adversary.saw:
            print("      " + adversary.saw.replace("\n", "\n      "))
    survived = sum(not adversary.saw for adversary in results)
    print(f"{survived} of {len(results)} adversaries survived")
    return 0 if survived == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
