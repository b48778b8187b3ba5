"""Every recipe in fixtures/ is wrong in one way. The verifier must say so, say why, and leave nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Callable

import pytest

if TYPE_CHECKING:
    from conftest import Ground, Verified

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what is left is counted on Linux only")

FIXTURES = Path(__file__).parent / "fixtures"
RECIPES = FIXTURES.parent.parent / "recipes"
CONTROLS = sorted((FIXTURES / "right").glob("*.py"))
COUNT = 65

REASONS = {
    # It hangs elsewhere, or where it should not, or does not hang but waits or works. First, since these take longest.
    "sp_never_ends_at_import": "never reported: text_with_a_space, list_of_arguments; it did not end in ",
    "sp_hangs_elsewhere": "declared hangs at `child.wait()`; observed hangs at `output = child.stdout.read()",
    "sp_fixed_half_hangs": "waits_for_a_reader: declared returns 0; observed hangs at `return child.wait()`",
    "thread_fixed_half_hangs_at_exit": "declared returns 1; observed hangs at `threading.Event().wait()`",
    "thread_sleep_declared_as_hang": "declared hangs at `time.sleep(30)`; observed waits on a timer: pid ",
    "thread_timed_result_declared_as_hang": "`future.result(timeout=30)`; observed waits on a timer: pid ",
    "thread_fixed_half_polls_for_ever": "declared returns 1; observed did not end in N s at `time.sleep(0.01)`",
    "sp_fixed_half_never_ends": "computes_for_ever: declared returns 0; observed did not end in N s at `",
    "sp_spins_for_a_while": "repeats `again`; observed returns None",
    "proc_respawning_pool_declared_as_hang": "workers_that_die_at_once: declared hangs at `pool.apply(`; observed did "
    "not end in N s at `return pool.apply(abs",
    "proc_respawning_pool_beside_a_poller": "workers_that_die_beside_a_poller: declared hangs at `pool.apply(`; "
    "observed did not end in N s at `return pool.apply(abs",
    # A half does otherwise than declared.
    "sp_broken_half_works": "text_with_a_space: declared raises FileNotFoundError: 'true now'; observed returns 0",
    "sp_broken_half_raises_another_type": "'/'; observed raises PermissionError: [Errno 13] Permission denied: '/'",
    "sp_broken_half_raises_a_subclass": "declared raises OSError: 'true now'; observed raises FileNotFoundError: ",
    "sp_broken_half_says_something_else": "'true now'; observed raises FileNotFoundError: [Errno 2] No such file or "
    "directory: 'nowhere'",
    "sp_broken_half_dies_otherwise": "declared dies of SIGTERM; observed dies of SIGKILL",
    "sp_returns_another_type": "declared returns 0; observed returns False",
    "sp_fails_after_it_returned": "declared returns 0; observed returns 0, then exits with status 3",
    "sp_exits_in_a_half": "leaves_before_it_returns: declared returns 0; observed exits with status 0",
    "sp_fixed_half_prints_something_else": "declared returns 0, prints 'now'; observed returns 0",
    "sp_floor_too_high": "declared raises AttributeError: waitstatus_to_exitcode; observed returns 3",
    "sp_floor_too_low": "declared returns 3; observed raises AttributeError: module 'os' has no attribute",
    "sp_two_outcomes": "either_way: exactly one outcome must be declared for Python 3.",
    # It leaves something behind.
    "sp_leaks_a_child": "child_without_an_owner: declared returns None; observed returns None, leaves 1 process (",
    "sp_leaks_a_daemon": "daemon_that_left_the_session: declared returns 0; observed returns 0, leaves 1 process (",
    "sp_leaves_less_than_declared": "declared returns 0, leaves 1 process; observed returns 0",
    "sp_leaks_a_temporary_file": "declared returns 0; observed returns 0, leaves 1 file (t/tmp",
    "proc_leaks_a_fork_worker": "forked_worker_without_an_owner: declared exits with status 0; observed exits with "
    "status 0, leaves 1 process (",
    "proc_leaks_a_spawn_worker": "spawned_worker_without_an_owner: declared exits with status 0; observed exits with "
    "status 0, leaves 1 process (",
    "proc_leaks_a_forkserver_worker": "declared exits with status 0, leaves 1 file; observed exits with status 0, "
    "leaves 1 process and 1 file (",
    "proc_leaks_shared_memory": "declared returns 1; observed returns 1, leaves 1 segment (psm_",
    "sp_forks_a_burst": "declared returns None; observed returns None, leaves 500 processes (",
    "sp_replicates_itself": "each_forks_the_next_and_exits: declared exits with status 0; observed exits with status "
    "0, leaves ",
    # It does not report what it declares, or declares nothing that could be proven.
    "sp_no_functions": "declares no function",
    "sp_no_main_call": "never calls main()",
    "sp_no_broken_half": "has no broken half",
    "sp_no_fixed_half": "has no fixed half",
    "sp_halves_do_the_same": "text_without_a_space is broken and list_of_arguments is fixed, but both declare the same",
    "sp_two_halves_of_one_name": "declares list_of_arguments twice",
    "sp_half_below_a_condition": "declares 3 functions, but only 2 of them at its top level",
    "sp_declares_no_outcome": "TypeError: check() missing 1 required positional argument: 'outcome'",
    "sp_declares_no_program": "missing 1 required positional argument: 'half'",
    "sp_exits_at_import": "never reported: text_with_a_space, list_of_arguments; it exited with status 0",
    "sp_floods_at_import": "never reported: text_with_a_space, list_of_arguments; it floods its output",
    "sp_deletes_its_file_at_import": "FileNotFoundError: [Errno 2] No such file or directory: '/",
    "sp_deletes_its_file_in_a_half": "deletes_its_file: changes or removes the recipe's own file",
    "sp_changes_cwd_at_import": "import: importing it changes the working directory",
    # Its output is not to be believed, or not to be read.
    "sp_imitates_the_protocol": "says_that_it_returned_0: declared returns 0; observed returns 1",
    "sp_prints_invalid_utf8": "prints_no_text: declared returns 0; observed returns 1",
    "sp_floods_its_output": "prints_a_hundred_megabytes: declared returns 0; observed floods its output: ",
    # Its source says that it cannot be a recipe.
    "sp_syntax_error": "syntax error in line 20: ",
    "sp_is_not_utf8": "is not UTF-8: ",
    "sp_says_no_symptom": "its text has no `Symptom: `",
    "sp_claims_too_much": "its text must begin with a claim of at most 90 characters, not 1",
    "other_chapter": "its file's name must begin with one of sp, thread, proc, hang, iso",
    "sp_imports_what_does_not_exist": "imports nowhere_to_be_found, which its PEP 723 block does not declare",
    "sp_imports_what_it_does_not_declare": "imports pytest, which its PEP 723 block does not declare",
    "sp_imports_pytest_in_a_program": "imports pytest, which its PEP 723 block does not declare",
    "iso_need_with_a_url": "its need 'pytest @ https://example.org/pytest.whl' is not a name with numeric bounds",
    "iso_need_that_is_no_text": "its need 7 is not a name with numeric bounds",
    "iso_need_in_another_form": "its PEP 723 block must have one line",
    "sp_uses_alarm": "uses alarm: ",
    "sp_uses_alarm_in_a_program": "uses alarm: ",
    "sp_uses_alarm_by_another_name": "uses alarm: ",
    "thread_uses_setitimer": "uses setitimer: ",
}


NEED_SEGMENTS = {"proc_leaks_shared_memory"}  # where they are not counted, it would really leave one


def timeout_for(name: str) -> float:
    """Little for what is stopped because its time is over, plenty for what must be found out before that."""
    return 5 if "did not end" in REASONS[name] else 20


def told(output: str) -> list[str]:
    """The reasons that the verifier gave, each with what it quotes below it."""
    lines = [line.strip() for line in output.splitlines() if line.startswith("      ")]
    text = "\n".join(line for line in lines if not line.startswith("rerun:"))
    text = re.sub(r"did not end in \d+ s", "did not end in N s", text)  # on a busy machine it is stopped later
    return re.split(r"\n(?!\|)", text) if text else []


def complaints(run: Verified, rule: str, reason: str) -> list[str]:
    """What is wrong with the verifier's answer; nothing when `rule` has failed for `reason` and for nothing else."""
    verdicts = re.findall(r"^(ok|skip|fail) +(\S+)", run.output, re.MULTILINE)
    unquoted = [line for line in run.output.splitlines() if not line.strip().startswith("|")]
    reasons = told(run.output)
    right = {
        f"exit status {run.status}, not 1": run.status == 1,
        f"verdicts {verdicts}, not that {rule} fails": verdicts == [("fail", rule)],
        "no summary of one failure": "\n0 ok, 0 skipped, 1 failed in " in run.output,
        f"reasons {reasons}, not the one that is expected: {reason}": len(reasons) == 1 and reason in reasons[0],
        "a traceback of the verifier's own": not any("Traceback" in line for line in unquoted),
        f"left: {run.remains}": not run.remains,
    }
    return [complaint for complaint, holds in right.items() if not holds]


def rule_of(name: str) -> str:
    return name.replace("_", "-")


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, verify: Callable[..., Verified]) -> dict[str, Verified]:
    """The verifier's run on each fixture that was selected: several at once, since most of them only wait."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
    chosen = {item.callspec.params.get("name") for item in items if item.module is request.module}
    names = [name for name in REASONS if name in chosen and (name not in NEED_SEGMENTS or counts_segments())]
    with ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
        found = pool.map(lambda name: verify(FIXTURES / f"{name}.py", timeout_for(name)), names)
        return dict(zip(names, found))


def counts_segments() -> bool:
    """Whether a supervisor that we start can count the shared memory that a program leaves."""
    program = "import sys, supervisor as s; print(s.finish(s.start(s.Run((sys.executable, '-c', ''), 60))).counted)"
    argv = [sys.executable, "-B", "-c", program]
    done = subprocess.run(argv, cwd=RECIPES, capture_output=True, encoding="utf-8", timeout=120, check=True)
    return "segments" in done.stdout


@pytest.mark.parametrize("name", REASONS)
def test_fails_for_its_own_reason_and_leaves_nothing(name: str, runs: dict[str, Verified]) -> None:
    if name in NEED_SEGMENTS and name not in runs:
        pytest.skip("shared memory cannot be counted here")
    assert complaints(runs[name], rule_of(name), REASONS[name]) == [], runs[name].output


def test_every_fixture_has_a_reason() -> None:
    names = {path.stem for path in FIXTURES.glob("*.py")}
    assert names == set(REASONS)
    assert len(names) == COUNT


def test_every_reason_tells_one_fixture_from_all_others(runs: dict[str, Verified]) -> None:
    if not runs:
        pytest.skip("no fixture was selected")
    for name, run in runs.items():
        said = "\n".join(told(run.output))
        assert {reason for reason in REASONS.values() if reason in said} == {REASONS[name]}


@pytest.mark.parametrize("recipe", CONTROLS, ids=lambda path: path.stem)
def test_right_recipe_passes_and_is_noticed_under_any_name(recipe: Path, verify: Callable[..., Verified]) -> None:
    run = verify(recipe)
    assert (run.status, run.remains) == (0, []), run.output
    assert re.search(rf"^ok +{rule_of(recipe.stem)} +2 checks", run.output, re.MULTILINE)
    for name, reason in REASONS.items():  # if the verifier overlooked what is wrong with that fixture
        overlooked = run._replace(output=run.output.replace(rule_of(recipe.stem), rule_of(name)))
        assert len(complaints(overlooked, rule_of(name), reason)) == 4


def test_each_fault_of_the_answer_is_noticed(verified: type[Verified]) -> None:
    output = (
        "fail  sp-x  1 of 2 checks\n      why\n      | Traceback\n      rerun: x\n0 ok, 0 skipped, 1 failed in 1s\n"
    )
    right = verified(1, output, [])
    assert complaints(right, "sp-x", "why") == []
    wrong = (
        right._replace(status=None),
        right._replace(remains=["process 1: cat"]),
        *(
            right._replace(output=output.replace(text, other))
            for text, other in (
                ("sp-x", "sp-y"),
                ("why", "because"),
                ("      why\n", "      why\n      another reason\n"),
                ("0 ok", "1 ok"),
                ("fail ", "ok    sp-y  2 checks\nfail "),
                ("      | Traceback", "Traceback (most recent call last):"),
            )
        ),
    )
    assert [len(complaints(run, "sp-x", "why")) for run in wrong] == [1] * len(wrong)


def test_remains_are_noticed(ground: Ground) -> None:
    segment = Path("/dev/shm") / f"hangproof-{uuid.uuid4()}"
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ground.environment)
    try:
        assert child.stdin and child.stdout
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()  # so that it runs: a process has no environment yet while it is being started
        (ground.temporary / "left").touch()
        (ground.recipes / "__pycache__").mkdir()
        segment.touch()
        left = ground.remains(grace=0)
    finally:
        segment.unlink()
        ground.clear()
        child.communicate()
    process = f"process {child.pid}: cat "
    assert left == [process, "file left", "file __pycache__", f"shared memory {segment.name}"]
    assert child.returncode == -9
    assert not any(remaining.startswith("process") for remaining in ground.remains(grace=0))
