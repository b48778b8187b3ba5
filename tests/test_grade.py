"""The graders are right: about an answer as one first writes it, one by the rules, and one with a single fault."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
ANSWERS = ROOT / "tests" / "answers"
sys.path.insert(0, str(ROOT / "scripts"))

import quoting  # noqa: E402
import rules  # noqa: E402

# Whom each answer does not survive.
FALLS_TO = {
    ("run-build", "right"): set[str](),
    ("run-build", "wrong_in_one_way"): {"odd_bytes_are_no_failure"},
    ("run-build", "naive"): {
        "failure_says_why",
        "nothing_survives_the_timeout",
        "nothing_ignores_the_timeout",
        "nothing_escapes_the_timeout",
        "nothing_survives_success",
        "success_is_no_timeout",
        "daemon_does_not_hold_it_up",
        "input_is_empty",
        "odd_bytes_are_no_failure",
        "locale_does_not_decide",
        "nothing_survives_an_interrupt",
        "nothing_survives_the_end_of_the_caller",
    },
    ("git-names", "right"): set[str](),
    ("git-names", "wrong_in_one_way"): {
        "option_is_refused",
        "option_with_an_answer_is_refused",
        "all_is_refused",
    },
    ("git-names", "naive"): {
        "option_is_refused",
        "option_with_an_answer_is_refused",
        "all_is_refused",
        "environment_does_not_decide",
    },
    ("many-conversions", "right"): set[str](),
    ("many-conversions", "wrong_in_one_way"): {"eight_run_at_once"},
    ("many-conversions", "naive"): {
        "failure_says_why",
        "failure_ends_the_others",
        "failure_ends_the_trees_of_the_others",
        "interrupt_ends_all",
        "input_is_empty",
        "odd_bytes_are_no_failure",
        "success_does_not_wait_for_what_it_left",
    },
    ("process-map", "right"): set[str](),
    ("process-map", "wrong_in_one_way"): {"lock_of_a_thread_is_not_inherited"},
    ("process-map", "naive"): {
        "dead_worker_is_a_failure",
        "worker_that_left_is_a_failure",
        "failure_ends_the_others",
        *(() if sys.version_info >= (3, 14) else ("lock_of_a_thread_is_not_inherited",)),  # fork was the default
    },
}


def grade(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", str(ROOT / "scripts" / "grade.py"), *arguments]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=600, check=False
    )


def answer(folder: Path, task: str, name: str) -> Path:
    """A folder with this answer and what it took from the pack: a module to copy, and a rule's fixed code."""
    folder.mkdir()
    shutil.copy(ANSWERS / task / f"{name}.py", folder / "answer.py")
    shutil.copy(ROOT / "recipes" / "run_tree.py", folder)
    fanout = rules.read_rule(ROOT / "recipes" / "sp_bound_child_fanout.py")
    (folder / "fixed.py").write_text(quoting.definition(fanout, "run_all"), encoding="utf-8")
    return folder


Graded = dict[tuple[str, str], "Future[subprocess.CompletedProcess[str]]"]


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graded]:
    """All of them, several at once: much of grading is waiting."""
    folder = tmp_path_factory.mktemp("answers")
    with ThreadPoolExecutor(4) as pool:
        yield {
            (task, name): pool.submit(grade, task, str(answer(folder / f"{task} {name}", task, name)))
            for task, name in FALLS_TO
        }


@pytest.mark.parametrize(("task", "name"), FALLS_TO)
def test_grade_is_right(graded: Graded, task: str, name: str) -> None:
    done = graded[task, name].result()
    fell = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("fail ")}
    assert fell == FALLS_TO[task, name], done.stdout + done.stderr
    assert done.returncode == (1 if fell else 0)
    assert done.stdout.splitlines()[-1].endswith(" adversaries survived")


HOSTILE = {
    "hangs at import": "import threading\nthreading.Event().wait()",
    "exits": "import os\nos._exit(0)",
    "floods": "while True:\n    print('x' * 1000)",
    "deletes its directory": "import os, shutil\nshutil.rmtree(os.path.dirname(os.path.abspath(__file__)))",
    "is no Python": "def",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_grader_survives_any_answer(tmp_path: Path, name: str) -> None:
    (tmp_path / "answer.py").write_text(HOSTILE[name], encoding="utf-8")
    done = grade("git-names", str(tmp_path))
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[-1] == "0 of 13 adversaries survived"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(["run-biuld", "."], "did you mean run-build?"), (["run-build", "nowhere"], "DIRECTORY holds answer.py")],
)
def test_wrong_use_is_explained(arguments: list[str], complaint: str) -> None:
    done = grade(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
