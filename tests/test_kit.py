"""What a recipe may declare, what is then observed, and what is said about it: the kit, by itself and by hand."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "recipes"))

import kit
import linux
import supervisor
from kit import dies, exits, hangs, leaves, prints, raises, returns, spins
from rules import MODULES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RECIPES = Path(kit.__file__).parent
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it was proven on Linux only")

# --------------------------------------------------------------------------------------------------- declarations


class Own(Exception):
    class Inner(Exception):
        pass


def anything() -> None:
    pass


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: returns(1) & exits(0), "an outcome has one end, not two: returns 1; exits with status 0"),
        (
            lambda: prints("a") & leaves(1) & hangs(at="x") & dies("SIGKILL"),
            "an outcome has one end, not two: hangs at",
        ),
        (lambda: hangs(at=""), "hangs(at=...) takes a part of the line where it hangs, not an empty text"),
        (lambda: spins("", times=2, at="x"), "spins() takes a text, how often it comes at least (2 or more), and"),
        (lambda: spins("a", times=2, at=""), "spins() takes a text, how often it comes at least (2 or more), and"),
        (lambda: spins("a", times=1, at="x"), "spins() takes a text, how often it comes at least (2 or more), and"),
        (lambda: returns({1}), "returns() takes plain values, not a set: return its parts instead"),
        (lambda: returns(object()), "returns() takes plain values, not a object: return its parts instead"),
        (lambda: returns([1, (2, {"a": {3}})]), "returns() takes plain values, not a set: return its parts instead"),
        (lambda: returns({frozenset(): 1}), "returns() takes plain values, not a frozenset: return its parts instead"),
        (lambda: returns(1j), "returns() takes plain values, not a complex: return its parts instead"),
        (lambda: kit.broken(prints("a")), "an outcome takes an end: hangs, spins, returns, raises, dies or exits"),
        (lambda: kit.broken(exits(0) | leaves(1)), "an outcome takes an end: hangs, spins, returns, raises, dies or"),
        (lambda: kit.broken(hangs(at="x") & leaves(1)), "what hangs or spins is killed with all that it started: it"),
        (lambda: kit.broken(spins("a", times=2, at="x") & leaves(files=1)), "what hangs or spins is killed with all"),
        (
            lambda: kit.fixed(returns(1), since=(3, 12)),
            "the floor (3, 12) takes before=: what happens on older Pythons",
        ),
        (lambda: kit.fixed(returns(1), before=exits(1)), "before= goes with a floor above 3.9: since=(3, N)"),
        (lambda: kit.fixed(returns(1), since=(3, 9), before=exits(1)), "before= goes with a floor above 3.9: since="),
        (lambda: kit.fixed(returns(1), since=(3, 12), before=prints("a")), "an outcome takes an end: hangs, spins,"),
    ],
)
def test_declaration_that_could_not_be_proven(declare: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError) as raised:
        declare()
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (hangs(at="child.wait()"), "hangs at `child.wait()`"),
        (spins("again", times=3, at="pool.map("), "never ends, stands at `pool.map(`, and repeats `again`"),
        (returns((1, "a", None)), "returns (1, 'a', None)"),
        (returns("x" * 100), "returns '" + "x" * 76 + "..."),
        (raises(OSError, "Bad file"), "raises OSError: Bad file"),
        (raises(Own.Inner, ""), f"raises {__name__}.Own.Inner"),
        (raises(json.JSONDecodeError, ""), "raises json.decoder.JSONDecodeError"),
        (dies("SIGKILL"), "dies of SIGKILL"),
        (exits(3), "exits with status 3"),
        (exits(0) & prints("a\n") & prints("b"), "exits with status 0, prints 'a\\n', prints 'b'"),
        (leaves(1) & returns(1), "returns 1, leaves 1 process"),
        (returns(1) & leaves(2, files=1, segments=3), "returns 1, leaves 2 processes and 1 file and 3 segments"),
    ],
)
def test_outcome_says_itself(outcome: kit.Outcome, text: str) -> None:
    assert str(outcome) == text


def test_and_adds_what_comes_with_it_and_narrows_the_range() -> None:
    both = (
        leaves(1, files=2) & prints("a") & exits(0, since=(3, 10), until=(3, 13)) & leaves(1, segments=4) & prints("b")
    )
    assert both == kit.Outcome(kit.Exits(0), ("a", "b"), kit.Left(2, 2, 4), (3, 10), (3, 13))
    narrower = kit.Outcome(since=(3, 11)) & both & kit.Outcome(until=(3, 12))
    assert (narrower.since, narrower.until) == ((3, 11), (3, 12))


def test_or_keeps_alternatives_in_order() -> None:
    first, second, third = exits(1), exits(2), exits(3)
    for choice in (first | second | third, first | (second | third), (first | second) | third):
        assert choice == kit.Choice((first, second, third))


def test_exactly_one_alternative_holds_on_a_version() -> None:
    old, new, newest = exits(1, until=(3, 11)), exits(2, since=(3, 13)), exits(3, since=(3, 15))
    choice = old | new | newest
    expected = {9: old, 11: old, 12: None, 13: new, 14: new, 15: None, 16: None}
    assert {minor: choice.on((3, minor)) for minor in expected} == expected
    assert kit.Choice((exits(1),)).on((3, 9)) == kit.Choice((exits(1),)).on((99, 0)) == exits(1)


def declared(half: Any) -> kit.Proof:
    assert isinstance(half.proof, kit.Proof)
    return half.proof


def test_floor_holds_on_both_sides() -> None:
    absent = raises(AttributeError, "shutdown")
    proof = declared(kit.fixed(returns(1), since=(3, 13), before=absent)(kit.program("")))
    expected = {9: absent.end, 12: absent.end, 13: returns(1).end, 15: returns(1).end}
    found = {minor: proof.choice.on((3, minor)) for minor in expected}
    assert {minor: outcome and outcome.end for minor, outcome in found.items()} == expected
    assert proof.floor == (3, 13)


def test_floor_with_alternatives_above_it() -> None:
    choice = returns(1, until=(3, 13)) | returns(2, since=(3, 14))
    proof = declared(kit.fixed(choice, since=(3, 12), before=exits(1))(kit.program("")))
    found = {minor: proof.choice.on((3, minor)) for minor in range(9, 16)}
    ends = [outcome and str(outcome.end) for outcome in found.values()]
    assert ends == 3 * ["exits with status 1"] + 2 * ["returns 1"] + 2 * ["returns 2"]


def test_presence_on_the_oldest_python_needs_no_before() -> None:
    proof = declared(kit.fixed(returns(1), since=(3, 9))(kit.program("")))
    assert (proof.floor, proof.choice) == ((3, 9), kit.Choice((returns(1),)))
    assert declared(kit.fixed(returns(1))(kit.program(""))).floor is None


@pytest.mark.parametrize("kind", ["broken", "fixed", "check", "shows"])
def test_declaring_gives_the_function_itself(kind: str) -> None:
    declare = getattr(kit, kind)(exits(0), posix="a reason", linux="another")
    assert declare(anything) is anything
    assert pickle.loads(pickle.dumps(anything)) is anything
    expected = kit.Proof(kind, kit.Choice((exits(0),)), None, "a reason", "another")
    assert declared(anything) == expected
    assert declare(kit.program("pass")) == kit.Program("pass", expected)


# ------------------------------------------------------------------------------------- what was seen, and what meets it


def seen(reply: tuple[str, ...] = (), at: str | None = None, whole: bool = False, **observed: Any) -> kit.Seen:
    counted = observed.pop("counted", kit.Left._fields)
    return kit.Seen(supervisor.Observed(counted=counted, **observed), reply, at, whole)


SEEN = {
    "hang": (seen(stopped="hang", at="child.wait()"), "hangs at `child.wait()`"),
    "hang elsewhere": (seen(stopped="hang", at="other.wait()"), "hangs at `other.wait()`"),
    "hang nowhere": (seen(stopped="hang"), "hangs"),
    "spin": (seen(stopped="spin", at="child.wait()"), "never ends at `child.wait()`"),
    "timer": (
        seen(stopped="timer", at="child.wait()", detail="pid 3 (x in poll)"),
        "waits on a timer: pid 3 (x in poll); hold a half with a blocked read or `sleep infinity` instead",
    ),
    "late": (seen(stopped="late", at="child.wait()", seconds=5.4), "did not end in 5 s at `child.wait()`"),
    "flood": (seen(stopped="flood", output="x" * 1000), "floods its output: 1000 bytes and more"),
    "failed": (seen(stopped="failed", detail="no room"), "could not be run: no room"),
    "returned": (seen(("returned", "1"), status=0), "returns 1"),
    "returned another": (seen(("returned", "True"), status=0), "returns True"),
    "returned, then exited": (seen(("returned", "1"), status=3), "returns 1, then exits with status 3"),
    "returned, then killed": (seen(("returned", "1"), status=-9), "returns 1, then dies of SIGKILL"),
    "raised": (seen(("raised", "OSError", "Bad file"), status=1), "raises OSError: Bad file"),
    "raised another": (seen(("raised", "OSError", "no"), status=1), "raises OSError: no"),
    "raised a subclass": (
        seen(("raised", "BrokenPipeError", "Bad file"), status=1),
        "raises BrokenPipeError: Bad file",
    ),
    "program raised": (seen(("raised", "OSError", "Bad file"), status=1, whole=True), "raises OSError: Bad file"),
    "exited 0": (seen(status=0), "exits with status 0"),
    "exited 1": (seen(status=1), "exits with status 1"),
    "exited 3": (seen(status=3), "exits with status 3"),
    "killed": (seen(status=-9), "dies of SIGKILL"),
    "killed otherwise": (seen(status=-50), "dies of signal 50"),
}


@pytest.mark.parametrize("name", SEEN)
def test_run_says_itself(name: str) -> None:
    run, text = SEEN[name]
    assert str(run) == text


@pytest.mark.parametrize(
    ("outcome", "names"),
    [
        (hangs(at="child.wait()"), ["hang"]),
        (spins("a", times=2, at="child"), ["spin"]),
        (returns(1), ["returned"]),
        (returns(True), ["returned another"]),
        (raises(OSError, "Bad"), ["raised", "program raised"]),
        (raises(BrokenPipeError, "Bad"), ["raised a subclass"]),
        (exits(0), ["exited 0"]),
        (exits(1), ["program raised", "exited 1"]),
        (exits(3), ["exited 3"]),
        (dies("SIGKILL"), ["returned, then killed", "killed"]),
        (dies("SIGTERM"), []),
    ],
    ids=str,
)
def test_outcome_is_met_by_nothing_else(outcome: kit.Outcome, names: list[str]) -> None:
    assert [name for name, (run, _) in SEEN.items() if outcome.met(run)] == names


def test_all_that_is_declared_to_be_printed_must_be() -> None:
    run = seen(status=0, output="one and two")
    assert (exits(0) & prints("one") & prints("two")).met(run)
    assert not (exits(0) & prints("one") & prints("three")).met(run)


def seen_left(kind: str, number: int, **observed: Any) -> kit.Seen:
    observed[kind] = ("x",) * number
    return seen(status=0, **observed)


@pytest.mark.parametrize("kind", ["processes", "files", "segments"])
def test_what_is_left_is_counted(kind: str) -> None:
    for number in range(4):
        outcome = exits(0) & leaves(**{kind: number})
        runs = [seen_left(kind, left) for left in range(4)]
        assert [outcome.met(run) for run in runs] == [left == number for left in range(4)]
        assert outcome.met(seen_left(kind, 1, counted=()))  # nobody can tell


def test_what_is_left_is_said() -> None:
    run = seen(status=0, processes=("sleep 1", "sleep 2"), files=("t/a",), segments=("psm_1",))
    assert str(run) == "exits with status 0, leaves 2 processes and 1 file and 1 segment (sleep 1, sleep 2, t/a, psm_1)"


# ------------------------------------------------------------------------------------------------------- real runs

HEAD = '''\
"""What can be observed of a function is."""

import atexit, json, os, signal, subprocess, sys, tempfile, threading
from kit import *

BLOCKED = os.pipe()

class Own(Exception):
    class Inner(Exception):
        pass

class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError

def block():
    os.read(BLOCKED[0], 1)
'''

FOOT = """
if __name__ == "__main__":
    main()
"""

RIGHT = r'''
@check(returns((None, True, 1, -1.5, "\u00e9\n\udcff", b"\xff", (1,), [], {"a": [()]})))
def value():
    return (None, True, 1, -1.5, "\u00e9\n\udcff", b"\xff", (1,), [], {"a": [()]})

@check(returns(None))
def nothing():
    pass

@check(returns((["recipe.py"], [], [], 0o22)))
def program_in_a_clean_state():
    files = os.listdir() + os.listdir(tempfile.gettempdir())
    python = [name for name in os.environ if name.startswith("PYTHON")]
    python = [name for name in python if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")]
    return [os.path.basename(each) for each in sys.argv], files, python, os.umask(0)

@check(raises(EOFError, "EOF when reading a line"))
def nothing_on_standard_input():
    input()

@check(exits(0))
def leave_at_once():
    os._exit(0)

@check(exits(3))
def leave_with_a_status():
    sys.exit(3)

@check(exits(1) & prints("last words"))
def leave_with_a_text():
    sys.exit("last words")

@check(raises(KeyboardInterrupt, ""))
def interrupted():
    raise KeyboardInterrupt

@check(raises(Own.Inner, "mine"))
def class_of_its_own():
    raise Own.Inner("mine")

@check(raises(json.JSONDecodeError, "line 1 column 1"))
def class_of_a_module():
    json.loads("")

@check(raises(ValueError, "second"))
def message_of_two_lines():
    raise ValueError("first\nsecond")

@check(dies("SIGKILL"))
def killed():
    os.kill(os.getpid(), signal.SIGKILL)

@check(dies("SIGSEGV"))
def crashed():
    os.kill(os.getpid(), signal.SIGSEGV)

@check(returns(0) & prints("from the child") & prints("and its errors"))
def child_that_prints():
    return subprocess.call("echo from the child; echo and its errors >&2", shell=True)

@check(returns("parent"))
def child_comes_back_first():
    if os.fork() == 0:
        return "child"
    os.wait()
    return "parent"

@check(returns("parent"))
def child_comes_back_last():
    if os.fork() == 0:
        os.close(BLOCKED[1])
        block()  # until the parent, too, has closed it at its end
        return "child"
    return "parent"

@check(raises(ValueError, "parent"))
def child_raises_first():
    if os.fork() == 0:
        raise KeyError("child")
    os.wait()
    raise ValueError("parent")

@check(returns(None) & leaves(1))
def child_left():
    subprocess.Popen(["sleep", "infinity"])

@check(exits(0) & leaves(2))
def daemon_and_its_child_left():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            subprocess.Popen(["sleep", "infinity"])
            block()
    else:
        os.wait()
    os._exit(0)

@check(returns(None))
def zombie_is_not_left():
    subprocess.Popen(["true"])

@check(returns(None) & leaves(files=3))
def files_left():
    open("here", "w").close()
    open(os.path.join(tempfile.mkdtemp(), "there"), "w").close()
    tempfile.mkstemp()

@check(returns(None) & leaves(files=3))
def empty_folder_and_links_left():
    tempfile.mkdtemp()
    os.symlink("nowhere", "link")
    os.symlink("/", "folder")

@check(returns(None) & leaves(1, files=1))
def child_and_its_file_left():
    subprocess.Popen(["sleep", "infinity"], stdout=open("log", "w"))

@check(hangs(at="os.read(BLOCKED"))
def stuck_in_another_function():
    block()

@check(hangs(at="threading.Event().wait()"))
def stuck_at_exit():
    threading.Thread(target=lambda: threading.Event().wait()).start()

@check(hangs(at="threading.Event().wait()"))
def stuck_in_main_beside_a_thread():
    threading.Thread(target=block).start()
    threading.Event().wait()

@check(spins("again", times=5, at="child.wait()"))
def child_that_repeats():
    child = subprocess.Popen("while echo again; do sleep 0.02; done", shell=True)
    child.wait()

program_exits = check(exits(0) & prints("done"))(program("print('done')"))
program_leaves_at_once = check(exits(4))(program("import os; os._exit(4)"))
program_leaves_with_a_text = check(exits(1) & prints("last words"))(program("raise SystemExit('last words')"))
program_raises = check(raises(ValueError, "told"))(program("raise ValueError('it was told')"))
program_raises_and_exits = check(exits(1))(program("raise ValueError('it was told')"))
program_raises_its_own = check(raises(Own, "mine"))(program("class Own(Exception): pass\nraise Own('mine')"))
program_raises_a_modules = check(raises(json.JSONDecodeError, "line 1"))(program("import json; json.loads('')"))
program_raises_without_a_message = check(raises(KeyError, ""))(program("raise KeyError"))
program_raises_two_lines = check(raises(ValueError, "second"))(program("raise ValueError('first\\nsecond')"))
program_raises_from = check(raises(LookupError, "last"))(program("""
try:
    raise OSError("first")
except OSError as error:
    raise LookupError("last") from error
"""))
program_raises_while_handling = check(raises(LookupError, "last"))(program("""
try:
    raise OSError("first")
except OSError:
    raise LookupError("last")
"""))
program_prints_a_traceback = check(exits(0) & prints("OSError: printed"))(program("""
import traceback
try:
    raise OSError("printed")
except OSError:
    traceback.print_exc()
"""))
program_has_an_error = check(exits(1) & prints("SyntaxError: "))(program("def"))
program_interrupted = check(dies("SIGINT"))(program("raise KeyboardInterrupt"))
program_hangs = check(hangs(at="threading.Lock()"))(program("""
import threading
lock = threading.Lock()
for lock in [threading.Lock()] * 2: lock.acquire()
"""))
program_leaves_a_child = check(exits(0) & leaves(1))(program("""
import subprocess
subprocess.Popen(["sleep", "infinity"])
"""))
'''

SEGMENT = """
@check(returns(None) & leaves(segments=1))
def segment_left():
    open("/dev/shm/hangproof-test", "w").close()
"""

WRONG = r'''
@check(returns(1))
def another_type():
    return True

@check(returns([1]))
def no_plain_value():
    return {1}

@check(returns({"a": 1, "b": 2}))
def another_order():
    return {"b": 2, "a": 1}

@check(raises(ValueError, "b"))
def another_message():
    raise ValueError("a")

@check(raises(ValueError, ""))
def message_where_none_was_declared():
    raise ValueError("a")

@check(raises(ValueError, "a"))
def raises_and_then_exits_otherwise():
    atexit.register(os._exit, 7)
    raise ValueError("a")

@check(raises(Own, "a"))
def class_of_its_own_but_another():
    raise Own.Inner("a")

@check(returns(None))
def no_text_for_the_exception():
    raise Unspeakable

@check(returns(1))
def many_last_words():
    print(*range(9), sep="\n", flush=True)
    sys.exit("x" * 300)

@check(returns(None) & leaves(2))
def one_child_left_instead_of_two():
    subprocess.Popen(["sleep", "infinity"])

@check(returns(None) & leaves(1))
def no_child_left():
    pass

@check(hangs(at="block()  # outer"))
def stuck_below_that_line():
    block()  # outer

@check(spins("again", times=5, at="child.wait()"))
def child_that_repeats_it_less_often():
    child = subprocess.Popen("echo again; echo again; exec sleep infinity", shell=True)
    child.wait()

@check(exits(1) | returns(1))
def two_outcomes():
    return 1

@check(returns(1, since=(99, 0)) | returns(1, until=(3, 8)))
def no_outcome():
    return 1

program_raises_another = check(raises(OSError, "a"))(program("raise FileNotFoundError('a')"))
program_raises_with_another_text = check(raises(ValueError, "last"))(program("""
try:
    raise OSError("last")
except OSError:
    raise ValueError("first")
"""))
program_returns = check(returns(None))(program("pass"))
program_only_prints_a_traceback = check(raises(OSError, "printed"))(program("""
import traceback
try:
    raise OSError("printed")
except OSError:
    traceback.print_exc()
"""))
'''

HERE = f"Python 3.{sys.version_info[1]}"
REASONS = {
    "another_type": "declared returns 1; observed returns True",
    "no_plain_value": "declared returns [1]; observed returns {1}",
    "another_order": "declared returns {'a': 1, 'b': 2}; observed returns {'b': 2, 'a': 1}",
    "another_message": "declared raises ValueError: b; observed raises ValueError: a",
    "message_where_none_was_declared": "declared raises ValueError; observed raises ValueError: a",
    "raises_and_then_exits_otherwise": "declared raises ValueError: a; observed raises ValueError: a, then exits with "
    "status 7",
    "class_of_its_own_but_another": "declared raises Own: a; observed raises Own.Inner: a",
    "no_text_for_the_exception": "declared returns None; observed exits with status 1",
    "many_last_words": f"declared returns 1; observed exits with status 1\n| 4\n| 5\n| 6\n| 7\n| 8\n| {'x' * 197}...",
    "one_child_left_instead_of_two": "declared returns None, leaves 2 processes; observed returns None, leaves 1 "
    "process (sleep infinity)",
    "no_child_left": "declared returns None, leaves 1 process; observed returns None",
    "stuck_below_that_line": "declared hangs at `block()  # outer`; observed hangs at `os.read(BLOCKED[0], 1)`",
    "child_that_repeats_it_less_often": "declared never ends, stands at `child.wait()`, and repeats `again`; observed "
    "hangs at `child.wait()`\n| again\n| again",
    "two_outcomes": f"exactly one outcome must be declared for {HERE}",
    "no_outcome": f"exactly one outcome must be declared for {HERE}",
    "program_raises_another": "declared raises OSError: a; observed raises FileNotFoundError: a",
    "program_raises_with_another_text": "declared raises ValueError: last; observed raises ValueError: first",
    "program_returns": "declared returns None; observed exits with status 0",
    "program_only_prints_a_traceback": "declared raises OSError: printed; observed exits with status 0",
}


def names_in(text: str) -> list[str]:
    """The functions and programs in this text, in order."""
    return re.findall(r"^(?:def )?(\w+)(?=\(\):| = check)", text, re.MULTILINE)


def write(folder: Path, *parts: str, name: str = "recipe.py") -> Path:
    """A recipe with these parts, and the kit beside it."""
    for module in RECIPES.glob("*.py"):
        if module.stem in MODULES:
            shutil.copy(module, folder)
    path = folder / name
    path.write_text("".join((HEAD, *parts, FOOT)), encoding="utf-8")
    return path


def command(recipe: Path, *arguments: str, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Runs the recipe as its reader would."""
    return subprocess.run(
        [sys.executable, *before, recipe.name, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        cwd=recipe.parent,
        timeout=120,
    )


class Results(NamedTuple):
    right: dict[str, dict[str, Any]]
    wrong: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What the kit reports of the two recipes above, which run at the same time."""
    children, replies = [], []
    for text in (RIGHT + SEGMENT, WRONG):
        recipe = write(tmp_path_factory.mktemp("recipe"), text)
        replies.append(recipe.with_name("reply"))
        argv = [sys.executable, str(recipe), "--reply", str(replies[-1])]
        environment = {**os.environ, "PWD": str(recipe.parent)}
        children.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, cwd=recipe.parent, env=environment))
    assert [child.wait() for child in children] == [0, 0]
    found = [[json.loads(line) for line in reply.read_text().splitlines()] for reply in replies]
    right, wrong = ({result["name"]: result for result in each} for each in found)
    return Results(right, wrong)


def test_every_half_is_reported_in_order(results: Results) -> None:
    assert list(results.right) == names_in(RIGHT + SEGMENT)
    assert list(results.wrong) == names_in(WRONG) == list(REASONS)


@pytest.mark.parametrize("name", names_in(RIGHT))
def test_right_declaration_holds(name: str, results: Results) -> None:
    result = results.right[name]
    assert (result["status"], result["reason"], result["calibrated"]) == ("ok", "", False)


@pytest.mark.parametrize("name", names_in(WRONG))
def test_wrong_declaration_fails_and_says_why(name: str, results: Results) -> None:
    result, reason = results.wrong[name], REASONS[name]
    assert result["status"] == "fail", result
    said, traceback, _ = result["reason"].partition("\n|   File ")
    assert (said.partition("\n")[0] if traceback else said) == reason


def test_shared_memory_is_counted_where_it_can_be(results: Results) -> None:
    counted = supervisor.finish(supervisor.start(supervisor.Run((sys.executable, "-c", ""), 60))).counted
    assert "segments" in counted or os.geteuid() != 0
    expected = ("ok", "") if "segments" in counted else ("skip", "here nobody can tell how many segments are left")
    result = results.right["segment_left"]
    assert (result["status"], result["reason"]) == expected


# ------------------------------------------------------------------------------------- machines that do not tell


def load(path: Path) -> kit.Recipe:
    """The recipe as kit.main() would see it, in this process."""
    spec = importlib.util.spec_from_file_location("recipe", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    halves = {name: half for name, half in vars(module).items() if isinstance(getattr(half, "proof", None), kit.Proof)}
    return kit.Recipe(str(path), path.read_text(encoding="utf-8"), halves)


def prove(recipe: kit.Recipe) -> list[kit.Result]:
    results: list[kit.Result] = []
    kit.prove(recipe, list(recipe.halves), 60, results.append)
    return results


IN_ANOTHER_ORDER = """
@broken(hangs(at="threading.Event().wait()"))
def stuck():
    threading.Event().wait()

@check(returns(2))
def told():
    return 2

@fixed(returns(3))
def works():
    return 3
"""


MORE = """
@fixed(returns(4))
def slower():
    return 4

@broken(hangs(at="another line"))
def another():
    pass
"""


def test_hang_is_calibrated_where_the_kernel_does_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load(write(tmp_path, IN_ANOTHER_ORDER))
    monkeypatch.setattr(linux, "tells", lambda: False)
    results = prove(recipe)
    expected = [("works", "ok", False), ("stuck", "ok", True), ("told", "ok", False)]
    assert [(result.name, result.status, result.calibrated) for result in results] == expected
    assert results[1].seconds >= 2


def test_patience_is_ten_times_the_longest_fixed_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load(write(tmp_path, IN_ANOTHER_ORDER, MORE))
    runs: list[supervisor.Run] = []

    def start(run: supervisor.Run) -> supervisor.Supervised:
        runs.append(run)
        seconds = {"works": 0.1, "slower": 0.7}.get(run.arguments[1], 99.0)
        return supervisor.Supervised(0, -1, -1, supervisor.Observed(0, seconds=seconds))

    monkeypatch.setattr(supervisor, "start", start)
    monkeypatch.setattr(linux, "tells", lambda: False)
    prove(recipe)
    found = [(run.arguments[1], run.watch, run.hang, round(run.patience, 3)) for run in runs]
    assert found == [
        ("works", False, False, 0),
        ("slower", False, False, 0),
        ("stuck", False, True, 7),
        ("told", False, False, 0),
        ("another", False, True, 7),
    ]
    runs.clear()
    monkeypatch.setattr(linux, "tells", lambda: True)
    prove(recipe)
    found = [(run.arguments[1], run.watch, run.hang, run.patience) for run in runs]
    hangs_here = {"stuck", "another"}
    assert found == [(name, True, name in hangs_here, 0) for name in ("stuck", "told", "works", "slower", "another")]


def test_patience_is_at_least_two_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load(write(tmp_path, IN_ANOTHER_ORDER))
    runs: list[supervisor.Run] = []

    def start(run: supervisor.Run) -> supervisor.Supervised:
        runs.append(run)
        return supervisor.Supervised(0, -1, -1, supervisor.Observed(0, seconds=0.19))

    monkeypatch.setattr(supervisor, "start", start)
    monkeypatch.setattr(linux, "tells", lambda: False)
    prove(recipe)
    assert [run.patience for run in runs] == [0, 2, 0]


TO_BE_LEFT = """
@check(returns(None) & leaves(1))
def left():
    subprocess.Popen(["sleep", "infinity"])

@check(returns(1))
def nothing():
    return 1
"""


def test_what_cannot_be_counted_is_skipped_only_where_it_is_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = load(write(tmp_path, TO_BE_LEFT))
    monkeypatch.setattr(linux, "PROC", str(tmp_path / "none"))
    results = prove(recipe)
    assert [(result.name, result.status, result.reason) for result in results] == [
        ("left", "skip", "here nobody can tell how many processes are left"),
        ("nothing", "ok", ""),
    ]


def test_run_that_cannot_be_made_fails_whatever_was_to_be_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load(write(tmp_path, TO_BE_LEFT))

    def full(**_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", full)
    results = prove(recipe)
    assert [(result.name, result.status) for result in results] == [("left", "fail"), ("nothing", "fail")]
    assert all("observed could not be run: [Errno 28] No space left" in result.reason for result in results)


GATED = """
@check(returns(1), posix="fork does not exist there")
def posix_only():
    return 1

@check(returns(1), linux="it reads /proc")
def linux_only():
    return 1
"""


def test_platform_gates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load(write(tmp_path, GATED))

    def prove_on(name: str, platform: str) -> dict[str, tuple[str, str]]:
        def report(result: kit.Result) -> None:
            found[result.name] = (result.status, result.reason)

        found: dict[str, tuple[str, str]] = {}
        with monkeypatch.context() as patch:  # for as short as possible: pathlib and pytest look at them, too
            patch.setattr(os, "name", name)
            patch.setattr(sys, "platform", platform)
            kit.prove(recipe, [each for each in recipe.halves if platform != "darwin" or "linux" in each], 60, report)
        return found

    skipped_linux = {"linux_only": ("skip", "Linux only: it reads /proc")}
    skipped_posix = {"posix_only": ("skip", "POSIX only: fork does not exist there")}
    assert prove_on("nt", "win32") == {**skipped_posix, **skipped_linux}
    assert prove_on("posix", "darwin") == skipped_linux
    assert prove_on("posix", "linux") == {"posix_only": ("ok", ""), "linux_only": ("ok", "")}


DEPENDS_ON_THE_GIL = """
@check(returns("with") | raises(ValueError, "", until=(3, 8)), free_threaded=returns("without"))
def depends():
    return "with"
"""


def test_outcome_without_the_gil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load(write(tmp_path, DEPENDS_ON_THE_GIL))
    assert [result.declared for result in prove(recipe)] == ["returns 'with'"]
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    (result,) = prove(recipe)
    assert (result.status, result.reason) == ("fail", "declared returns 'without'; observed returns 'with'")


# --------------------------------------------------------------------------------------------------------- by hand

TWO = """
@broken(raises(ValueError, "no"))
def fails():
    raise ValueError("no")

@fixed(returns(("x", 1)))
def works():
    return "x", 1

whole = check(exits(0))(program("pass"))
"""


def test_recipe_proves_itself(tmp_path: Path) -> None:
    done = command(write(tmp_path, TWO, name="sp_some_rule.py"))
    version = ".".join(map(str, sys.version_info[:3]))
    assert re.fullmatch(
        rf"""sp-some-rule on cpython {re.escape(version)}, linux
What can be observed of a function is\.
ok    broken fails: raises ValueError: no \(\d\.\d s\)
ok    fixed  works: returns \('x', 1\) \(\d\.\d s\)
ok    check  whole: exits with status 0 \(\d\.\d s\)
3 ok, 0 skipped, 0 failed
""",
        done.stdout,
    ), done.stdout
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".py" and path.name != "__pycache__"] == []


def test_recipe_that_fails_says_so(tmp_path: Path) -> None:
    recipe = write(tmp_path, TWO.replace('return "x", 1', 'print("well"); sys.exit(1)'))
    done = command(recipe)
    assert done.returncode == 1
    assert re.search(
        r"^fail  fixed  works: declared returns \('x', 1\); observed exits with status 1\n      \| well \(\d\.\d s\)\n",
        done.stdout,
        re.MULTILINE,
    ), done.stdout
    assert done.stdout.endswith("\n2 ok, 0 skipped, 1 failed\n")
    chosen = command(recipe, "whole", "fails")
    assert re.findall(r"^(?:ok|fail) +\w+ +(\w+)", chosen.stdout, re.MULTILINE) == ["whole", "fails"]
    assert (chosen.returncode, chosen.stdout.splitlines()[-1]) == (0, "2 ok, 0 skipped, 0 failed")


def test_recipe_that_proves_nothing_fails(tmp_path: Path) -> None:
    pretend = "\nsys.platform = 'darwin'\nimport linux\nlinux.tells = lambda: False\n"
    done = command(write(tmp_path, GATED, pretend), "linux_only")
    assert done.stdout.splitlines()[2:] == [
        "skip  check  linux_only: Linux only: it reads /proc (0.0 s)",
        "0 ok, 1 skipped, 0 failed",
    ]
    assert done.returncode == 1


def test_function_runs_as_it_is(tmp_path: Path) -> None:
    recipe = write(tmp_path, TWO)
    done = command(recipe, "--function", "works")
    assert (done.returncode, done.stdout, done.stderr) == (0, "('returned', \"('x', 1)\")\n", "")
    done = command(recipe, "--function", "fails")
    assert (done.returncode, done.stdout) == (1, "('raised', 'ValueError', 'no')\n")
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert done.stderr.endswith('    raise ValueError("no")\nValueError: no\n')


@pytest.mark.parametrize("name", ["whole", "nothing", "Own", ""])
def test_what_is_no_function_is_not_run(tmp_path: Path, name: str) -> None:
    done = command(write(tmp_path, TWO), "--function", *([name] if name else []))
    message = f"recipe.py: --function takes one of fails, works; {name!r} is none of them\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)


def test_unknown_name_is_wrong_use(tmp_path: Path) -> None:
    done = command(write(tmp_path, TWO), "works", "work")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("recipe.py: error: NAME is one of fails, works, whole; 'work' is none of them\n")


def test_help_says_the_claim(tmp_path: Path) -> None:
    done = command(write(tmp_path, TWO), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for part in ("What can be observed of a function is.", "NAME", "--timeout SECONDS", "(60)"):
        assert part in done.stdout


def test_late_half_is_stopped_after_timeout(tmp_path: Path) -> None:
    done = command(write(tmp_path, TWO.replace('return "x", 1', "while True: pass")), "works", "--timeout", "1")
    assert (
        "fail  fixed  works: declared returns ('x', 1); observed did not end in 1 s at `while True: pass`"
        in done.stdout
    )
    assert done.returncode == 1


def test_interrupt_ends_what_runs(tmp_path: Path) -> None:
    recipe = write(tmp_path, TWO, "\n@check(returns(1))\ndef never_ends():\n    while True: pass\n")
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)  # or the child would ignore it, if we do
    try:
        child = subprocess.Popen(
            [sys.executable, recipe],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
    finally:
        signal.signal(signal.SIGINT, ours)
    assert child.stdout
    try:
        assert any(line.startswith("ok    check  whole") for line in iter(child.stdout.readline, ""))
        while not any("never_ends" in linux.command(each.pid) for each in linux.descendants(child.pid)):
            assert child.poll() is None
        started = linux.descendants(child.pid)
        child.send_signal(signal.SIGINT)
        output, errors = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    assert (child.returncode, output, errors) == (130, "", "recipe.py: interrupted\n")
    assert len(started) == 2
    now = linux.processes()
    assert [each for each in started if each.pid in now and now[each.pid].start == each.start] == []
    assert list(tmp_path.glob("hp-*")) == []


# ---------------------------------------------------------------------------------------------------------- weight

HEAVY = {"argparse", "asyncio", "concurrent", "ctypes", "dataclasses", "inspect", "json", "linux", "logging"}
HEAVY |= {"multiprocessing", "pathlib", "pickle", "random", "select", "selectors", "shutil", "signal", "socket"}
HEAVY |= {"subprocess", "supervisor", "tempfile", "threading", "traceback", "uuid"}

IMPORT = """
import os, sys
sys.path.insert(0, sys.argv[1])
def state():
    fds = sorted(os.listdir("/proc/self/fd"))
    return [dict(os.environ), os.getcwd(), sys.argv[:], sys.path[:], sys.flags, fds, sys.excepthook, sys.settrace]
before = state()
import kit
assert state() == before
print(*sorted(sys.modules))
"""


def test_import_has_no_effect_and_is_light() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", IMPORT, str(RECIPES)],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    loaded = done.stdout.split()
    assert "kit" in loaded
    assert HEAVY & set(loaded) == set()


def test_function_begins_in_a_light_interpreter(tmp_path: Path) -> None:
    recipe = write(tmp_path)
    text = "import sys\nfrom kit import *\n@check(returns(1))\ndef modules():\n    return sorted(sys.modules)\nmain()\n"
    recipe.write_text(text, encoding="utf-8")
    done = command(recipe, "--function", "modules", before=("-E", "-s", "-S", "-X", "faulthandler"))
    loaded = set(re.findall(r"'(\w+)'", done.stdout))
    assert {"kit", "faulthandler"} <= loaded
    assert HEAVY & loaded == set()
