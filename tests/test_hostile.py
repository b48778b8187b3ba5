"""The verifier where nobody would want to run: it proves what it proves elsewhere, or says why not, and leaves nothing.

Every run has a mark in its environment, which all that it starts inherits, and a temporary directory of its own, which
must be empty afterwards. Every test first sees the exact outcome, and then that nothing is left.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional

import pytest
from conftest import new_ground

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from conftest import Ground

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what is left is counted on Linux only")

ROOT = Path(__file__).resolve().parent.parent
VERIFIER = ROOT / "scripts" / "verify-recipes.py"
FIXTURES = ROOT / "tests" / "fixtures"
BY_HAND = ROOT / "recipes" / "sp_communicate_not_wait.py"
RULES = ("sp-communicate-not-wait", "thread-no-pool-for-long-running-work", "proc-main-guard")  # as they are printed
COMMUNICATE, QUICK, GUARD = RULES
NOBODY = 65534  # a user without rights
BOUND = 120  # seconds for one run, however loaded the machine is
SOON = 10  # seconds in which all that a killed one has started must be gone
SEED = int(os.environ.get("HANGPROOF_SEED") or random.SystemRandom().randrange(1 << 32))

Changes = dict[str, Optional[str]]  # of the environment; None removes a variable

# ------------------------------------------------------------------------------------------------------- running


class Ended(NamedTuple):
    status: int
    out: str
    err: str


def verifier(*arguments: str, python: Sequence[str] = (sys.executable,), tree: Path = ROOT) -> list[str]:
    return [*python, str(tree / "scripts" / "verify-recipes.py"), *arguments]


def begin(ground: Ground, argv: Sequence[str], changes: Mapping[str, str | None] | None = None, **options: Any) -> Any:
    """Starts `argv` as the leader of a session, far from our terminal, with pipes to read what it says."""
    changed = {**ground.environment, **(changes or {})}
    environment = {name: value for name, value in changed.items() if value is not None}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    text = {"encoding": "utf-8", "errors": "backslashreplace"}
    options = {"cwd": ground.temporary, **pipes, **text, **options}
    return subprocess.Popen(argv, env=environment, start_new_session=True, **options)


def end(child: subprocess.Popen[str]) -> Ended:
    """Its status and what it said. What is left of it and holds a pipe exceeds the bound, and fails the test."""
    try:
        out, err = child.communicate(timeout=BOUND)
    finally:
        child.kill()
    return Ended(child.returncode, out, err)


def run(ground: Ground, argv: Sequence[str], changes: Mapping[str, str | None] | None = None, **options: Any) -> Ended:
    ended = end(begin(ground, argv, changes, **options))
    assert left(ground) == []
    return ended


def left(ground: Ground) -> list[str]:
    """What is left of it; in its temporary directory not even an empty directory may be."""
    return ground.remains() + [f"in TMPDIR: {name}" for name in os.listdir(ground.temporary)]


def left_soon(ground: Ground) -> list[str]:
    """The same, for those who end by themselves because their owner was killed, and need a moment for that."""
    give_up = time.monotonic() + SOON
    while time.monotonic() < give_up and (ground.remains(grace=0) or os.listdir(ground.temporary)):
        time.sleep(0.05)
    return left(ground)


def environments(ground: Ground) -> dict[int, dict[bytes, bytes]]:
    """The environment of each process with our mark, as it was when it was started."""
    found = {}
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            variables = (path / "environ").read_bytes().split(b"\0") if path.name.isdecimal() else []
            if ground.mark.encode() in variables:
                found[int(path.name)] = dict(each.partition(b"=")[::2] for each in variables)
    return found


def rows(ended: Ended) -> list[str]:
    """Status, rule and remark of each rule, without the time that it took."""
    return [re.sub(r" +[0-9.]+s$", "", line) for line in ended.out.splitlines()[1:-1]]


def assert_holds(ended: Ended, *rules: str, checks: str = r"[1-9]\d* checks", quiet: bool = True) -> None:
    """Exactly these rules hold, and there is nothing else to be said about them."""
    said = f"{ended.status}\n{ended.out}\n{ended.err[-2000:]}"
    assert not (quiet and ended.err), said
    assert ended.status == 0, said
    first, last = ended.out.splitlines()[0], ended.out.splitlines()[-1]
    assert re.fullmatch(rf"CPython 3\.\d+\.\d+t? on linux, {len(rules)} rules?", first), said
    assert len(rows(ended)) == len(rules), said
    for row, rule in zip(rows(ended), rules):
        assert re.fullmatch(rf"ok +{rule} +{checks}", row), said
    assert re.fullmatch(rf"{len(rules)} ok, 0 skipped, 0 failed in [0-9.]+s", last), said


def newest_python() -> str:
    """The newest Python of this machine that the repository's script knows; otherwise ours."""
    listed = subprocess.run(
        ["bash", str(ROOT / "scripts" / "pythons.sh")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=BOUND,
        check=True,
    )
    return (listed.stdout.splitlines() or [sys.executable])[-1]


# ------------------------------------------------------------------------------------------- where the output goes


def head(ground: Ground, argv: Sequence[str]) -> tuple[str, Ended]:
    """`argv | head -1`: what head printed, and how `argv` ended."""
    child = begin(ground, argv)
    with subprocess.Popen(["head", "-1"], stdin=child.stdout, stdout=subprocess.PIPE, encoding="utf-8") as reader:
        child.stdout.close()  # or we would be a reader, too
        first, _ = reader.communicate(timeout=BOUND)
    ended = end(child)
    assert left(ground) == []
    return first, ended


def test_output_closed_early(ground: Ground) -> None:
    first, ended = head(ground, verifier(QUICK))
    assert re.fullmatch(r"CPython 3\.\d+\.\d+t? on linux, 1 rule\n", first)
    assert (ended.status, ended.err) == (-signal.SIGPIPE, "")


def test_json_output_closed_early(ground: Ground) -> None:
    first, ended = head(ground, verifier("--format", "json", QUICK))
    assert (first, ended.err) == ("{\n", "")
    assert ended.status in (0, -signal.SIGPIPE)  # it is written at once, so perhaps before head has gone


def test_output_closed_at_once(ground: Ground) -> None:
    each = ([QUICK], ["--format", "json", QUICK], ["--list"])
    together = [begin(ground, verifier(*arguments)) for arguments in each]
    for child in together:
        child.stdout.close()
    for child in together:
        assert end(child)[::2] == (-signal.SIGPIPE, ""), child.args
    assert left(ground) == []


def test_output_of_a_recipe_by_hand_closed_early(ground: Ground) -> None:
    first, ended = head(ground, [sys.executable, str(BY_HAND)])
    assert first.startswith(COMMUNICATE)
    assert (ended.status, ended.err) == (-signal.SIGPIPE, "")


@pytest.mark.parametrize("which", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_standard_descriptor_closed(ground: Ground, which: str) -> None:
    shutil.copy(FIXTURES / "sp_broken_half_works.py", ground.recipes)
    each = ([QUICK], ["--recipes", str(ground.recipes)], ["nothing-of-that-name"])
    shell = ["sh", "-c", f'exec "$@" {which}', "sh"]
    together = [begin(ground, [*shell, *verifier(*arguments)]) for arguments in each]
    holds, fails, misused = [end(child) for child in together]
    if "1>&-" in which:
        assert holds == (0, "", "")
        assert fails == (1, "", "")
    else:
        assert_holds(holds, QUICK)
        assert rows(fails)[0].startswith("fail  sp-broken-half-works")
        assert fails[::2] == (1, "")
    assert misused[:2] == (2, "")
    assert len(misused.err.splitlines()) == ("2>&-" not in which)
    assert left(ground) == []


@pytest.mark.parametrize("arguments", [[QUICK], ["--format", "json", QUICK], ["--list"]], ids=" ".join)
def test_output_to_a_full_device(ground: Ground, arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        ended = run(ground, verifier(*arguments), stdout=full)
    assert ended.err == "verify-recipes.py: cannot write to standard output: No space left on device\n"
    assert ended.status == 2


def test_output_of_a_recipe_by_hand_to_a_full_device(ground: Ground) -> None:
    with open("/dev/full", "wb") as full:
        ended = run(ground, [sys.executable, str(BY_HAND)], stdout=full)
    assert ended.err == f"{BY_HAND.name}: cannot write to standard output: No space left on device\n"
    assert ended.status == 2


def test_errors_to_a_full_device(ground: Ground) -> None:
    with open("/dev/full", "wb") as full:
        assert_holds(run(ground, verifier(QUICK), stderr=full)._replace(err=""), QUICK)
        assert run(ground, verifier("nothing-of-that-name"), stderr=full)[:2] == (2, "")


def test_standard_input_is_never_read(ground: Ground) -> None:
    data = b"somebody else's line\n" * 1000
    together = []
    for argv in (verifier(COMMUNICATE), [sys.executable, str(BY_HAND)]):
        reader, writer = os.pipe()
        os.write(writer, data)
        os.close(writer)
        together.append((reader, begin(ground, argv, stdin=reader)))
    for reader, child in together:
        ended = end(child)
        assert (ended.status, ended.err) == (0, ""), ended.out
        with open(reader, "rb") as rest:
            assert rest.read() == data
    assert left(ground) == []


# ------------------------------------------------------------------------------------- where temporary files could go


class Place(NamedTuple):
    """A value of TMPDIR, {} standing for the ground's folder; whether the supervisor can use it; and rules to prove."""

    value: str | None
    usable: bool
    rules: tuple[str, ...] = (QUICK,)


PLACES = {
    "as it should be": Place("{}/t", True),
    "unset": Place(None, False),
    "empty": Place("", False),
    "no directory": Place("{}/absent", False),
    "a file": Place("{}/file", False),
    "unwritable for root, too": Place("/proc", False),
    "with spaces and other letters": Place("{}/ä  ö", True, (QUICK, GUARD)),
    "too long for a socket": Place("{}/" + "/".join(4 * [50 * "l"]), False, (QUICK, GUARD)),
    "relative": Place("t", True),
    "the current directory": Place(".", True),
}


def test_temporary_directory() -> None:
    with ThreadPoolExecutor(len(PLACES)) as pool:
        outcomes = {name: pool.submit(prove_with_temporary_directory, place) for name, place in PLACES.items()}
    for name, outcome in outcomes.items():
        print(name)  # shown when the test fails
        outcome.result()


def prove_with_temporary_directory(place: Place) -> None:
    with new_ground() as ground:
        folder = ground.temporary.parent
        (folder / "file").touch()
        value = place.value and place.value.format(folder)
        cwd = ground.temporary if value == "." else folder
        expected = cwd / str(value) if place.usable else Path("/tmp")
        if not value or value.endswith(("/absent", "/file", "/proc")):
            assert not place.usable
        else:
            (cwd / value).mkdir(parents=True, exist_ok=True)
        child = begin(ground, verifier(*place.rules), {"TMPDIR": value}, cwd=cwd)
        homes: set[Path] = set()  # a supervisor's directories; that of a recipe is around those of its functions
        while child.poll() is None:
            values = (os.fsdecode(variables.get(b"TMPDIR", b"")) for variables in environments(ground).values())
            homes.update(Path(value).parent for value in values if "/hp-" in value)
            time.sleep(0.1)
        assert_holds(end(child), *place.rules)
        assert len([home for home in homes if home.parent == expected.resolve()]) >= len(place.rules), homes
        assert [home for home in homes if home.exists()] == []
        if value and value != "/proc" and (cwd / value).is_dir():
            assert os.listdir(cwd / value) == []
        assert left(ground) == []


@pytest.mark.parametrize("size", [0, 1024])
def test_no_room_for_any_file(ground: Ground, size: int) -> None:
    """As on a disk that is full: no file may grow beyond this size."""
    ended = run(ground, verifier(QUICK), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
    assert (ended.status, ended.err) == (1, "")
    assert rows(ended)[0] == f"fail  {QUICK} not proven"
    why = "No usable temporary directory" if size == 0 else "File too large"
    assert f"it could not be run: [Errno {2 if size == 0 else 27}] {why}" in ended.out


# ------------------------------------------------------------------------------------------------ how Python is set


def test_locale(ground: Ground) -> None:
    locales = ("C", "POSIX", "xx_YY.UTF-8")
    together = [begin(ground, verifier(QUICK), {"LC_ALL": name, "LANG": name}) for name in locales]
    for child in together:
        assert_holds(end(child), QUICK)
    assert left(ground) == []


@pytest.mark.parametrize("changes", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}])
def test_output_that_takes_ascii_only(ground: Ground, changes: Changes) -> None:
    shutil.copy(FIXTURES / "sp_broken_half_works.py", ground.recipes)
    folder = str(shutil.copytree(ground.recipes, ground.recipes.parent / "Rezepte für später"))
    changes = {"PYTHONUTF8": "0", **changes}
    ended = run(ground, verifier("--recipes", folder), changes)
    misused = run(ground, verifier("--recipes", f"{folder} fehlt"), changes)
    assert (ended.status, ended.err) == (1, "")
    assert rows(ended)[0].startswith("fail  sp-broken-half-works")
    assert "/sp_broken_half_works.py" in rows(ended)[-1]
    assert (misused.status, len(misused.err.splitlines())) == (2, 1)


HARMLESS = {
    "PYTHONASYNCIODEBUG": "1",
    "PYTHONBREAKPOINT": "os.abort",
    "PYTHONCASEOK": "1",
    "PYTHONCOERCECLOCALE": "0",
    "PYTHONDEBUG": "1",
    "PYTHONDEVMODE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONEXECUTABLE": sys.executable,  # with another value Python names that as its own path, even with -I
    "PYTHONFAULTHANDLER": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONINTMAXSTRDIGITS": "640",
    "PYTHONIOENCODING": "ascii",
    "PYTHONLEGACYWINDOWSFSENCODING": "1",
    "PYTHONLEGACYWINDOWSSTDIO": "1",
    "PYTHONMALLOC": "malloc",
    "PYTHONNODEBUGRANGES": "1",
    "PYTHONNOUSERSITE": "1",
    "PYTHONOLDPARSER": "1",
    "PYTHONOPTIMIZE": "2",
    "PYTHONPATH": "{}/evil",
    "PYTHONPYCACHEPREFIX": "{}/t/bytecode",
    "PYTHONSAFEPATH": "1",
    "PYTHONSTARTUP": "{}/evil/json.py",
    "PYTHONTRACEMALLOC": "5",
    "PYTHONUNBUFFERED": "1",
    "PYTHONUTF8": "0",
    "PYTHONWARNDEFAULTENCODING": "1",
    "PYTHONWARNINGS": "error",
    "PYTHON_BASIC_REPL": "1",
    "PYTHON_COLORS": "1",
    "PYTHON_CONTEXT_AWARE_WARNINGS": "1",
    "PYTHON_CPU_COUNT": "1",
    "PYTHON_DISABLE_REMOTE_DEBUG": "1",
    "PYTHON_FROZEN_MODULES": "off",
    "PYTHON_GIL": "1",
    "PYTHON_HISTORY": "{}/t/history",
    "PYTHON_JIT": "1",
    "PYTHON_LAZY_IMPORTS": "all",
    "PYTHON_PATHCONFIG_WARNINGS": "1",
    "PYTHON_THREAD_INHERIT_CONTEXT": "1",
    "PYTHON_TLBC": "1",
}
NOISY = {  # Python itself then writes to standard error
    "PYTHONDUMPREFS": "1",
    "PYTHONINSPECT": "1",
    "PYTHONMALLOCSTATS": "1",
    "PYTHONPROFILEIMPORTTIME": "1",
    "PYTHONTHREADDEBUG": "1",
    "PYTHONVERBOSE": "2",
}
DEADLY = {  # Python then does not start, or leaves files behind by itself
    "PYTHONDUMPREFSFILE": "{}/t/references",
    "PYTHONHASHSEED": "nonsense",
    "PYTHONHOME": "{}/absent",
    "PYTHONMALLOC": "nonsense",
    "PYTHONPERFSUPPORT": "1",
    "PYTHONPLATLIBDIR": "absent",
    "PYTHONUSERBASE": "{}/evil",
    "PYTHON_GIL": "nonsense",
    "PYTHON_PERF_JIT_SUPPORT": "1",
}


EVIL = ("argparse", "difflib", "json", "kit", "linux", "selectors", "supervisor")


def with_evil(ground: Ground, variables: dict[str, str]) -> dict[str, str]:
    """Those variables, with a folder to put on Python's path in which every module ends the program."""
    evil = ground.recipes.parent / "evil"
    evil.mkdir()
    for name in EVIL:
        (evil / f"{name}.py").write_text(f"raise SystemExit('evil {name}')\n")
    return {name: value.format(ground.recipes.parent) for name, value in variables.items()}


def test_every_variable_of_python_that_changes_how_it_behaves(ground: Ground) -> None:
    assert_holds(run(ground, verifier(COMMUNICATE, QUICK), with_evil(ground, HARMLESS)), COMMUNICATE, QUICK)


def test_every_variable_of_python_that_makes_it_talk(ground: Ground) -> None:
    ended = run(ground, verifier(QUICK), with_evil(ground, NOISY))
    assert ended.status in (0, 1)  # PYTHONINSPECT makes of it what it likes
    assert_holds(ended._replace(status=0), QUICK, quiet=False)


def test_variables_that_python_was_told_to_ignore_reach_no_recipe(ground: Ground) -> None:
    changes = with_evil(ground, {**HARMLESS, **NOISY, **DEADLY})
    assert_holds(run(ground, verifier(*RULES, python=[sys.executable, "-I"]), changes), *RULES)


def test_no_variable_of_python_is_forgotten() -> None:
    named: set[str] = set()
    for python in {sys.executable, newest_python()}:
        said = subprocess.run([python, "--help-env"], capture_output=True, encoding="utf-8", timeout=BOUND, check=False)
        named.update(re.findall(r"^(PYTHON\w+)", said.stdout, re.MULTILINE))
    assert named <= {*HARMLESS, *NOISY, *DEADLY}


def test_options_of_python(ground: Ground) -> None:
    each = ("-O", "-OO", "-I", "-S", "-bb -W error", "-X dev -u")
    together = {options: begin(ground, verifier(QUICK, python=[sys.executable, *options.split()])) for options in each}
    for options, child in together.items():
        print(options)  # shown when the test fails
        assert_holds(end(child), QUICK)
    assert left(ground) == []


def test_newest_python_without_docstrings(ground: Ground) -> None:
    """From 3.14 on ast.parse() leaves them out, too."""
    assert_holds(run(ground, verifier(QUICK, python=[newest_python(), "-OO"])), QUICK)


# ------------------------------------------------------------------------------------------ what is inherited


def test_caller_ignores_sigchld(ground: Ground) -> None:
    ignore = lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # noqa: E731
    by_hand = begin(ground, [sys.executable, str(BY_HAND)], preexec_fn=ignore)
    assert_holds(end(begin(ground, verifier(*RULES), preexec_fn=ignore)), *RULES)
    ended = end(by_hand)
    assert (ended.status, ended.err) == (0, ""), ended.out
    assert left(ground) == []


def test_caller_ignores_sigint(ground: Ground) -> None:
    """As `nohup` and a shell's `&` do: then Ctrl-C is for others."""
    ignore = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731
    child = begin(ground, verifier(QUICK), preexec_fn=ignore)
    first = child.stdout.readline()
    os.killpg(child.pid, signal.SIGINT)
    time.sleep(0.2)
    os.killpg(child.pid, signal.SIGINT)
    ended = end(child)
    assert_holds(ended._replace(out=first + ended.out), QUICK)
    assert left(ground) == []


def test_caller_blocks_signals(ground: Ground) -> None:
    block = lambda: signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # noqa: E731
    assert_holds(run(ground, verifier(QUICK), preexec_fn=block), QUICK)
    child = begin(ground, verifier(QUICK), preexec_fn=block)
    child.stdout.readline()
    child.terminate()
    assert end(child)[::2] == (-signal.SIGTERM, "verify-recipes.py: interrupted\n")
    assert left(ground) == []


def test_few_descriptors(ground: Ground) -> None:
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))  # noqa: E731
    assert_holds(run(ground, verifier("--jobs", "100", *RULES), preexec_fn=limit), *RULES)


def test_core_files_are_wanted(ground: Ground) -> None:
    """A stuck half is ended by SIGABRT, which would dump a core wherever the machine has set that up."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    if most == 0:
        pytest.skip("this machine's hard limit on core files is 0")
    wanted = lambda: resource.setrlimit(resource.RLIMIT_CORE, (most, most))  # noqa: E731
    child = begin(ground, verifier(QUICK), preexec_fn=wanted)
    limits: dict[bytes, set[str]] = {}
    while child.poll() is None:
        for pid in environments(ground):
            with contextlib.suppress(OSError):
                argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                core = re.search(r"^Max core file size +(\S+)", Path(f"/proc/{pid}/limits").read_text(), re.MULTILINE)
                if b"--function" in argv and core:
                    limits.setdefault(argv[argv.index(b"--function") + 1], set()).add(core[1])
        time.sleep(0.01)
    assert_holds(end(child), QUICK)
    assert {b"pool_stopped_in_atexit", b"thread_stopped_in_atexit"} <= limits.keys()
    # 1 byte is the supervisor's choice; the other is seen between fork and exec, in what was forked from it.
    assert all("1" in seen for seen in limits.values()), limits
    assert left(ground) == []


def test_umask_that_forbids_everything(ground: Ground, nobody: Nobody) -> None:
    argv = ["sh", "-c", 'umask 0777 && exec "$@"', "sh"]
    assert_holds(run(ground, [*argv, *nobody.verifier(QUICK)], **nobody.options), QUICK)


def test_directory_that_was_removed(ground: Ground) -> None:
    argv = ["sh", "-c", 'mkdir "$0" && cd "$0" && rmdir "../$0" && exec "$@"']
    together = [
        begin(ground, [*argv, "one", *verifier(QUICK)]),
        begin(ground, [*argv, "other", *verifier(QUICK)], {"TMPDIR": "/proc"}),
    ]
    for child in together:
        assert_holds(end(child), QUICK)
    assert left(ground) == []


def test_directory_that_cannot_be_read(ground: Ground, nobody: Nobody) -> None:
    locked = 'mkdir locked && (cd locked && chmod 0 . && "$@"); status=$?; rmdir locked; exit $status'
    argv = ["sh", "-c", locked, "sh"]
    assert_holds(run(ground, [*argv, *nobody.verifier(QUICK)], **nobody.options), QUICK)


def test_environment_that_lacks_something(ground: Ground) -> None:
    kept = {ground.mark.partition("=")[0], "TMPDIR"}
    nothing: Changes = {name: None for name in ground.environment if name not in kept}
    each: list[Changes] = [{"HOME": None}, {"PATH": None}, {"PATH": ""}, nothing]
    together = [(changes, begin(ground, verifier(COMMUNICATE, QUICK), changes)) for changes in each]
    for changes, child in together:
        print(changes)  # shown when the test fails
        assert_holds(end(child), COMMUNICATE, QUICK)
    assert left(ground) == []


# ----------------------------------------------------------------------------- where the kernel says or allows less


WITHOUT_PROC = {
    "empty": ("--mount", 'mount -t tmpfs none /proc && exec "$@"'),
    "of another namespace": ("--pid --fork --kill-child", 'exec "$@"'),  # its numbers are other processes
}


@pytest.fixture
def without_proc(request: pytest.FixtureRequest) -> list[str]:
    """A command before a command, which then sees a /proc that tells nothing about it."""
    options, program = WITHOUT_PROC[getattr(request, "param", "empty")]
    rights = [] if os.geteuid() == 0 else ["--map-root-user"]
    argv = ["unshare", *rights, *options.split(), "sh", "-c", program, "sh"]
    try:
        itself = [*argv, "sh", "-c", "test /proc/self -ef /proc/$$ || echo nothing"]
        tried = subprocess.run(itself, capture_output=True, encoding="utf-8", timeout=BOUND, check=False)
    except FileNotFoundError:
        pytest.skip("unshare is not installed here")
    if tried.returncode:
        pytest.skip(f"no namespace can be made here: {tried.stderr.strip()}")
    assert tried.stdout == "nothing\n"
    return argv


@pytest.mark.parametrize("without_proc", WITHOUT_PROC, indirect=True)
def test_proc_tells_nothing(ground: Ground, without_proc: list[str]) -> None:
    ended = run(ground, [*without_proc, *verifier(*RULES)])
    hanging = {COMMUNICATE: 3, QUICK: 2}
    assert_holds(ended, *RULES, checks=r"[1-9]\d* checks(, [1-9] calibrated)?")
    for row, rule in zip(rows(ended), RULES):
        assert row.endswith(f", {hanging[rule]} calibrated" if rule in hanging else " checks"), row


class Nobody(NamedTuple):
    """How to run as an ordinary user: options of Popen, a Python that this user can run, and a copy of the tree."""

    options: dict[str, Any]
    python: str
    tree: Path

    def verifier(self, *arguments: str) -> list[str]:
        return verifier(*arguments, python=[self.python], tree=self.tree)


@pytest.fixture
def nobody(ground: Ground) -> Iterator[Nobody]:
    if os.geteuid() != 0:
        yield Nobody({}, sys.executable, ROOT)
        return
    tree = copy_tree(ground.recipes.parent / "tree")
    ground.recipes.parent.chmod(0o755)
    ground.temporary.chmod(0o1777)
    options = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    python = next((python for python in (sys.executable, "/usr/bin/python3") if can_run(python, options)), None)
    if python is None:
        pytest.skip("an ordinary user cannot run any Python here")
    before = set(os.listdir("/dev/shm"))
    yield Nobody(options, python, tree)
    for name in set(os.listdir("/dev/shm")) - before:  # a test that fails because of it cleans up all the same
        with contextlib.suppress(FileNotFoundError):
            if os.stat(f"/dev/shm/{name}").st_uid == NOBODY:
                os.unlink(f"/dev/shm/{name}")


def can_run(python: str, options: dict[str, Any]) -> bool:
    asked = [python, "-c", "import sys; sys.exit(sys.version_info < (3, 9))"]
    try:
        return subprocess.run(asked, cwd="/", timeout=BOUND, check=False, **options).returncode == 0
    except OSError:
        return False


def copy_tree(to: Path) -> Path:
    """What is needed to prove the rules, as an installer would copy it."""
    for part in ("recipes", "scripts"):
        shutil.copytree(ROOT / part, to / part, ignore=shutil.ignore_patterns("__pycache__"))
    return to


def test_ordinary_user(ground: Ground, nobody: Nobody) -> None:
    assert_holds(run(ground, nobody.verifier(*RULES), **nobody.options), *RULES)


def test_ordinary_user_leaves_no_shared_memory(ground: Ground, nobody: Nobody) -> None:
    """What is killed while it makes a semaphore leaves it, whatever a tracker does: it takes a /dev/shm of its own."""
    namespaces = subprocess.run(["unshare", "--map-current-user", "--mount", "true"], check=False, **nobody.options)
    if namespaces.returncode:
        pytest.skip("an ordinary user can make no namespace here")
    shutil.copy(FIXTURES / "proc_leaks_shared_memory.py", ground.recipes)
    ended = run(ground, nobody.verifier("--recipes", str(ground.recipes)), **nobody.options)
    assert ended.status == 1
    assert "declared returns 1; observed returns 1, leaves 1 segment (psm_" in ended.out


# ------------------------------------------------------------------------------------------------- where it runs


def test_two_at_once(ground: Ground) -> None:
    both = [begin(ground, verifier(*RULES)) for _ in range(2)]
    for child in both:
        assert_holds(end(child), *RULES)
    assert left(ground) == []


def test_copy_that_may_not_change(ground: Ground) -> None:
    tree = copy_tree(ground.recipes.parent / "ein  Ort, für später")
    paths = [tree, *tree.rglob("*")]
    for path in paths:
        path.chmod(path.stat().st_mode & ~0o222)

    def state() -> dict[Path, tuple[int, int]]:
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in [tree, *tree.rglob("*")]}

    before = state()
    try:
        beside = begin(ground, verifier(QUICK, tree=tree), cwd=tree / "recipes")
        assert_holds(end(begin(ground, verifier(*RULES, tree=tree), cwd="/")), *RULES)
        assert_holds(end(beside), QUICK)
        assert left(ground) == []
        assert state() == before
    finally:
        for path in paths:
            path.chmod(path.stat().st_mode | 0o200)


# ------------------------------------------------------------------------------------------------- ended from outside


class Way(NamedTuple):
    """A way to end it, what is then to be seen (status, and what it says), and how often that is tried."""

    send: Callable[[Any, random.Random], None]
    status: int
    err: str = ""
    times: int = 10


def signalled(signum: int) -> Callable[[Any, random.Random], None]:
    return lambda child, _: child.send_signal(signum)


def ctrl_c(child: Any, _: random.Random) -> None:
    """What a terminal does: the signal goes to the whole process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGINT)


def ctrl_c_twice(child: Any, chance: random.Random) -> None:
    ctrl_c(child, chance)
    time.sleep(chance.uniform(0, 0.05))
    if child.poll() is None:
        ctrl_c(child, chance)


def ctrl_c_until_it_ends(child: Any, chance: random.Random) -> None:
    while child.poll() is None:
        ctrl_c(child, chance)
        time.sleep(0.001)


WAYS = {
    "SIGINT": Way(signalled(signal.SIGINT), 130, "interrupted\n"),
    "SIGTERM": Way(signalled(signal.SIGTERM), -signal.SIGTERM, "interrupted\n"),
    "SIGHUP": Way(signalled(signal.SIGHUP), -signal.SIGHUP, "interrupted\n"),
    "SIGKILL": Way(signalled(signal.SIGKILL), -signal.SIGKILL),
    "Ctrl-C": Way(ctrl_c, 130, "interrupted\n", times=5),
    "Ctrl-C twice": Way(ctrl_c_twice, 130, "interrupted\n"),
    "Ctrl-C until it ends": Way(ctrl_c_until_it_ends, 130, "interrupted\n", times=5),
}


def end_at_moments(ground: Ground, argv: Sequence[str], way: Way, seconds: float, **options: Any) -> None:
    """Runs `argv` again and again, and ends it at moments spread over `seconds`, counted from its first line: by then
    it is ready for signals. A run that was over before must have held; that may be no more than half of them."""
    chance = random.Random(SEED)
    print(f"HANGPROOF_SEED={SEED}")  # shown when the test fails
    moments = [(number + chance.random()) * seconds / way.times for number in range(way.times)]
    chances = [random.Random(chance.random()) for _ in moments]

    def end_at(moment: float, chance: random.Random) -> tuple[int, str, bool]:
        child = begin(ground, argv, {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}, **options)
        child.stdout.readline()
        time.sleep(moment)
        way.send(child, chance)
        sent = time.monotonic()
        ended = end(child)  # the supervisors have its standard error, so this waits for them, too
        said = re.sub(r"^[a-z_-]+\.py: ", "", ended.err)
        return ended.status, said, time.monotonic() - sent < SOON

    with ThreadPoolExecutor(10) as pool:
        ended = list(pool.map(end_at, moments, chances))
    assert set(ended) <= {(way.status, way.err, True), (0, "", True)}
    assert len([status for status, _, _ in ended if status]) >= way.times / 2
    assert left_soon(ground) == []


@pytest.mark.parametrize("name", WAYS)
def test_verifier_is_ended(ground: Ground, name: str) -> None:
    rules = (
        RULES if name in ("SIGTERM", "SIGKILL") else (COMMUNICATE, QUICK)
    )  # the third is dear: whole programs, pools
    end_at_moments(ground, verifier(*rules), WAYS[name], seconds=2.0)


@pytest.mark.parametrize("name", WAYS)
def test_recipe_by_hand_is_ended(ground: Ground, name: str) -> None:
    end_at_moments(ground, [sys.executable, str(BY_HAND)], WAYS[name], seconds=1.5)


@pytest.mark.parametrize("by_hand", [False, True], ids=["verifier", "by hand"])
def test_half_that_never_ends_dies_with_its_owner(ground: Ground, by_hand: bool) -> None:
    recipe = Path(shutil.copy(FIXTURES / "thread_fixed_half_polls_for_ever.py", ground.recipes))
    argv = [sys.executable, str(recipe)] if by_hand else verifier("--recipes", str(ground.recipes))
    end_at_moments(ground, argv, WAYS["SIGKILL"]._replace(times=5), seconds=2.0)


def test_verifier_of_an_ordinary_user_is_killed(ground: Ground, nobody: Nobody) -> None:
    end_at_moments(ground, nobody.verifier(GUARD), WAYS["SIGKILL"], seconds=1.0, **nobody.options)


@pytest.mark.parametrize("seconds", [0.1, 4.0])
def test_verifier_without_proc_is_killed(ground: Ground, without_proc: list[str], seconds: float) -> None:
    """At the start, too: what it has just forked is then in no process group of its own yet."""
    end_at_moments(ground, [*without_proc, *verifier(*RULES)], WAYS["SIGKILL"]._replace(times=5), seconds)


# --------------------------------------------------------------------------------------------------- wrong use

WRONG = {
    "thread-no-pol": r"'thread-no-pol' is none: did you mean thread-no-pool-for-long-running-work\?",
    "proc-main-gaurd thread": r"'proc-main-gaurd' is none: did you mean proc-main-guard\?",
    "zzz": r"'zzz' is none: --list shows what there is",
    "--python nosuch": r"'nosuch' is none that runs\. Found: .*\b{version}\b.*",
    "--python {file}": r"--python takes a path, a command or a version; '.*/file' is none that runs\. Found: .+",
    "--jobs 0": r"argument --jobs/-j: takes a number above 0, not 0",
    "--jobs many": r"argument --jobs/-j: invalid number value: 'many'",
    "--timeout x": r"argument --timeout: invalid number value: 'x'",
    "--timeout 0": r"argument --timeout: takes a number above 0, not 0",
    "--timeout nan": r"argument --timeout: takes a number above 0, not nan",
    "--require chromadb thread": r"--require takes what a chosen rule needs; none needs chromadb",
    "--recipes {folder}/absent": r"--recipes takes a directory with recipes; .*/absent is none",
    "--recipes {file}": r"--recipes takes a directory with recipes; .*/file is none",
    "--recipes {folder}/t": r"there is no recipe in .*/t: expected files such as sp_timeout_always\.py",
    "--format xml": r"argument --format: invalid choice: '?xml'? \(choose from '?text'?, '?json'?, '?github'?\)",
    "--unheard-of": r"unrecognized arguments: --unheard-of",
}


@pytest.mark.parametrize("arguments", WRONG)
def test_wrong_use(ground: Ground, arguments: str) -> None:
    folder = ground.temporary.parent
    (folder / "file").touch()
    words = [word.format(folder=folder, file=folder / "file") for word in arguments.split()]
    path = os.pathsep.join((os.path.dirname(sys.executable), "/usr/bin", "/bin"))
    ended = run(ground, verifier(*words), {"PATH": path, "PYENV_ROOT": str(folder), "HOME": None, "COLUMNS": "200"})
    assert (ended.status, ended.out) == (2, "")
    said = [line for line in ended.err.splitlines() if not re.match(r"usage: | {10}", line)]
    expected = WRONG[arguments].replace("{version}", re.escape(".".join(map(str, sys.version_info[:3]))))
    assert len(said) == 1
    assert re.fullmatch(rf"verify-recipes\.py: (error: )?.*{expected}", said[0])
