"""The verifier's command line, on small recipes that are written here."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from rules import MODULES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it was proven on Linux only")

ROOT = Path(__file__).resolve().parent.parent
VERIFIER = ROOT / "scripts" / "verify-recipes.py"
VERSION = ".".join(map(str, sys.version_info[:3]))
MINOR = f"3.{sys.version_info[1]}"
SECONDS = r"\d+\.\ds"

# ------------------------------------------------------------------------------------------------- recipes to prove

HEAD = '''\
"""{claim}

Because of this.

Scope: nowhere else.
Symptom: something is wrong.
Look for: what is wrong.
Sources: none.
"""
'''

IMPORTS = """
import os, signal, subprocess, sys, threading
from kit import *
"""

HALVES = """
@broken(raises(ValueError, "no"))
def fails():
    raise ValueError("no")

@fixed(returns(1))
def works():
    return 1
"""

ONE_CHECK = """
@shows(returns(1))
def works():
    return 1
"""

FOOT = """
if __name__ == "__main__":
    main()
"""

WRONG = HALVES.replace("return 1", 'print("in other words", flush=True)\n    sys.exit(3)')


def needing(*needs: str) -> str:
    """A PEP 723 block."""
    return f"\n# /// script\n# dependencies = {json.dumps(needs)}\n# ///\n"


class Rules:
    """A folder of recipes, and the verifier that proves them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "some recipes"
        self.folder.mkdir()
        for module in (ROOT / "recipes").glob("*.py"):
            if module.stem in MODULES:
                shutil.copy(module, self.folder)

    def write(self, name: str, halves: str = HALVES, *, claim: str = "This is the claim.", block: str = "") -> Path:
        path = self.folder / f"{name}.py"
        path.write_text(HEAD.format(claim=claim) + block + IMPORTS + halves + FOOT, encoding="utf-8")
        return path

    def command(self, *arguments: object) -> list[str]:
        return [sys.executable, str(VERIFIER), "--recipes", str(self.folder), *map(str, arguments)]

    def verify(
        self, *arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            cwd=cwd or self.folder,
            env=env,
            timeout=120,
            check=False,
        )

    def document(self, *arguments: object, status: int = 1) -> dict[str, Any]:
        done = self.verify("--format", "json", *arguments)
        assert (done.returncode, done.stderr) == (status, "")
        document = json.loads(done.stdout)
        assert isinstance(document, dict)
        return document

    def refusal(self, *arguments: object) -> str:
        """What the verifier says to wrong use."""
        done = self.verify(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        return done.stderr


@pytest.fixture
def rules(tmp_path: Path) -> Rules:
    return Rules(tmp_path)


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    """Rules that end in each of the ways in which a rule can end."""
    rules = Rules(tmp_path_factory.mktemp("five"))
    rules.write("thread_other", ONE_CHECK, claim="Claim of another.")
    rules.write("sp_first_rule_again", ONE_CHECK)
    rules.write("iso_absent", block=needing("hangproof-no-such>=1.2,<2"))
    rules.write("sp_first_rule", claim="Claim of the first.")
    rules.write("proc_wrong", WRONG)
    return rules


IDS = ["sp-first-rule", "sp-first-rule-again", "thread-other", "proc-wrong", "iso-absent"]


def verdicts(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The status of each rule, in the order of the lines."""
    return {rule: status for status, rule in re.findall(r"^(ok|skip|fail) +(\S+)", done.stdout, re.MULTILINE)}


def listed(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert (done.returncode, done.stderr) == (0, "")
    return [line.split()[0] for line in done.stdout.splitlines()]


# ------------------------------------------------------------------------------------------------------------- text


def test_line_per_rule(five: Rules) -> None:
    done = five.verify()
    assert re.fullmatch(
        rf"""CPython {VERSION} on linux, 5 rules
ok    sp-first-rule               2 checks                       {SECONDS}
ok    sp-first-rule-again         1 check                        {SECONDS}
ok    thread-other                1 check                        {SECONDS}
fail  proc-wrong                  1 of 2 checks                  {SECONDS}
      works: declared returns 1; observed exits with status 3
      \| in other words
      rerun: {re.escape(shlex.quote(sys.executable))} proc_wrong\.py
skip  iso-absent                  needs hangproof-no-such>=1\.2,<2 \(pip install 'hangproof-no-such>=1\.2,<2'\) 0\.0s
3 ok, 1 skipped, 1 failed in {SECONDS}
""",
        done.stdout,
    ), done.stdout
    assert (done.returncode, done.stderr) == (1, "")


def test_line_per_check(five: Rules) -> None:
    done = five.verify("--verbose", "sp-first-rule", "proc-wrong")
    assert re.fullmatch(
        rf"""CPython {VERSION} on linux, 2 rules
ok    sp-first-rule               2 checks                       {SECONDS}
      ok   broken fails: raises ValueError: no \(\d\.\d+s\)
      ok   fixed works: returns 1 \(\d\.\d+s\)
fail  proc-wrong                  1 of 2 checks                  {SECONDS}
      ok   broken fails: raises ValueError: no \(\d\.\d+s\)
      works: declared returns 1; observed exits with status 3
      \| in other words
      rerun: {re.escape(shlex.quote(sys.executable))} proc_wrong\.py
1 ok, 0 skipped, 1 failed in {SECONDS}
""",
        done.stdout,
    ), done.stdout
    assert five.verify("-v", "sp-first-rule").stdout.count("\n") == 5


def test_one_rule_and_one_check(rules: Rules) -> None:
    rules.write("hang_alone", ONE_CHECK)
    done = rules.verify()
    lines = done.stdout.splitlines()
    assert lines[0] == f"CPython {VERSION} on linux, 1 rule"
    assert re.fullmatch(rf"ok    hang-alone                  1 check                        {SECONDS}", lines[1])
    assert (done.returncode, len(lines)) == (0, 3)


def test_rerun_can_be_typed(five: Rules) -> None:
    for cwd in (five.folder.parent, Path("/")):
        said = five.verify("proc-wrong", cwd=cwd).stdout
        (line,) = re.findall(r"^      rerun: (.*)$", said, re.MULTILINE)
        assert Path(shlex.split(line)[1]).is_absolute() == (cwd == Path("/"))
        done = subprocess.run(["sh", "-c", line], cwd=cwd, capture_output=True, encoding="utf-8", check=False)
        assert (done.returncode, done.stdout.splitlines()[-1:]) == (1, ["1 ok, 0 skipped, 1 failed"]), done.stderr


ELSEWHERE = """
sys.platform = "elsewhere"

@check(returns(1), linux="there is no /proc")
def on_linux():
    return 1
"""


def test_skipped_and_calibrated_checks_are_said(rules: Rules) -> None:
    stuck = "\n@broken(hangs(at='wait()'))\ndef stuck():\n    threading.Event().wait()\n"
    rules.write("hang_elsewhere", ELSEWHERE + HALVES + stuck)
    done = rules.verify("--verbose")
    lines = done.stdout.splitlines()
    assert re.fullmatch(rf"ok    hang-elsewhere              4 checks, 1 skipped, 1 calibrated {SECONDS}", lines[1])
    assert "      skip check on_linux: Linux only: there is no /proc (0.0s)" in lines
    (stuck_line,) = [line for line in lines if "stuck" in line]
    assert re.fullmatch(r"      ok   broken stuck: hangs at `wait\(\)` \(\d+\.\d+s, calibrated\)", stuck_line)
    assert done.returncode == 0


def test_rule_with_nothing_to_check_is_skipped_and_proves_nothing(rules: Rules) -> None:
    rules.write("hang_elsewhere", ELSEWHERE.replace("@check", "@shows"))
    done = rules.verify()
    assert re.fullmatch(
        rf"""CPython {VERSION} on linux, 1 rule
skip  hang-elsewhere              Linux only: there is no /proc  {SECONDS}
0 ok, 1 skipped, 0 failed in {SECONDS}
""",
        done.stdout,
    ), done.stdout
    assert done.returncode == 1


# -------------------------------------------------------------------------------------------------------- selection


def test_list_has_claims_and_runs_nothing(five: Rules) -> None:
    done = five.verify("--list")
    assert listed(done) == IDS
    lines = done.stdout.splitlines()
    assert lines[0] == "sp-first-rule                            Claim of the first."
    assert lines[2] == "thread-other                             Claim of another."


def test_list_of_the_real_rules() -> None:
    done = subprocess.run([sys.executable, VERIFIER, "--list"], capture_output=True, encoding="utf-8", check=True)
    assert "Read a child's pipes with communicate(); never wait() on output that nobody reads." in done.stdout
    recipes = {path.stem for path in (ROOT / "recipes").glob("*.py")} - set(MODULES)
    assert sorted(listed(done)) == sorted(recipe.replace("_", "-") for recipe in recipes)


def test_list_has_a_line_for_what_cannot_be_read(rules: Rules) -> None:
    rules.write("sp_first_rule")
    rules.write("sp_wrong", "def")
    assert rules.verify("--list").stdout.splitlines()[1:] == ["sp-wrong"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (["sp-first-rule"], [0]),
        (["sp_first_rule"], [0]),
        (["sp-first-rule-again"], [1]),
        (["sp-first"], [0, 1]),
        (["sp"], [0, 1]),
        (["proc", "thread"], [2, 3]),
        (["proc-wrong", "sp-first-rule"], [0, 3]),
        (["sp-first-rule", "sp-first"], [0, 1]),
        (["sp", "sp", "sp-first-rule"], [0, 1]),
    ],
    ids=str,
)
def test_selection(five: Rules, wanted: list[str], expected: list[int]) -> None:
    assert listed(five.verify("--list", *wanted)) == [IDS[place] for place in expected]


@pytest.mark.parametrize(
    ("wanted", "shown", "hint"),
    [
        ("sp-first-rules", "sp-first-rules", "did you mean sp-first-rule?"),
        ("first-rule-again", "first-rule-again", "did you mean sp-first-rule-again?"),
        ("sp_first_rule.py", "sp-first-rule.py", "did you mean sp-first-rule?"),
        ("recipes/sp_first_rule.py", "recipes/sp-first-rule.py", "did you mean sp-first-rule?"),
        ("../../0", "../../0", "--list shows what there is"),
    ],
)
def test_unknown_rule_is_wrong_use(five: Rules, wanted: str, shown: str, hint: str) -> None:
    said = five.refusal("sp", wanted)
    message = f"RULE takes an id, the beginning of ids, or a chapter; {shown!r} is none: {hint}"
    assert said == f"verify-recipes.py: {message}\n"


def test_selected_rule_is_proven_alone(five: Rules) -> None:
    done = five.verify("sp_first_rule")
    assert (done.returncode, verdicts(done)) == (0, {"sp-first-rule": "ok"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jobs", "0"], "argument --jobs/-j: takes a number above 0, not 0"),
        (["-j", "-2"], "argument --jobs/-j: takes a number above 0, not -2"),
        (["-j", "1.5"], "argument --jobs/-j: invalid number value: '1.5'"),
        (["--timeout", "0"], "argument --timeout: takes a number above 0, not 0"),
        (["--timeout", "nan"], "argument --timeout: takes a number above 0, not nan"),
        (["--timeout", "inf"], "argument --timeout: takes a number above 0, not inf"),
        (["--timeout", "soon"], "argument --timeout: invalid number value: 'soon'"),
        (["--format", "xml"], "argument --format: invalid choice: 'xml'"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
        (["--require", "psutil"], "--require takes what a chosen rule needs; none needs psutil"),
        (
            ["sp", "--require", "hangproof-no-such"],
            "--require takes what a chosen rule needs; none needs hangproof-no-such",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_is_said(five: Rules, arguments: list[str], message: str) -> None:
    assert message in five.refusal(*arguments)


def test_folder_without_recipes_is_wrong_use(rules: Rules, tmp_path: Path) -> None:
    expected = f"there is no recipe in {rules.folder}: expected files such as sp_timeout_always.py"
    assert rules.refusal() == f"verify-recipes.py: {expected}\n"
    rules.folder = tmp_path / "none"
    done = rules.verify(cwd=tmp_path)
    expected = f"--recipes takes a directory with recipes; {rules.folder} is none"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"verify-recipes.py: {expected}\n")


def test_number_of_jobs_changes_no_verdict(five: Rules) -> None:
    one, eight = (five.document("--jobs", number) for number in (1, 8))
    for document in (one, eight):
        assert [rule.pop("seconds") >= 0 for rule in document["rules"]] == 5 * [True]
        assert all(check.pop("seconds") > 0 for rule in document["rules"] for check in rule["checks"])
    assert one == eight
    assert [rule["rule"] for rule in one["rules"]] == IDS


def test_timeout_stops_a_half(rules: Rules) -> None:
    rules.write("sp_endless", HALVES.replace("return 1", "while True: pass"))
    done = rules.verify("--timeout", "1")
    assert "      works: declared returns 1; observed did not end in 1 s at `while True: pass`\n" in done.stdout
    assert done.returncode == 1


# ---------------------------------------------------------------------------------------------- nothing taken on trust


IN_PROVER = "if '--function' not in sys.argv: "
OTHERWISE = {
    "sp-fewer": ("del works", "never reported: works; it exited with status 0"),
    "sp-more": ("again = works", "reported more than the 2 functions it declares: fails, works, again"),
    "sp-exits-at-once": (IN_PROVER + "os._exit(0)", "never reported: fails, works; it exited with status 0"),
    "sp-exits-at-last": (IN_PROVER + "atexit.register(os._exit, 5)", "all reported, but then it exited with status 5"),
    "sp-killed": (IN_PROVER + "atexit.register(signal.raise_signal, 9)", "all reported, but then signal 9 ended it"),
    "sp-leaves-a-process": (
        IN_PROVER + "subprocess.Popen(['sleep', 'infinity'])",
        "running it leaves a process: sleep infinity",
    ),
    "sp-leaves-a-file": (IN_PROVER + "open('left', 'w').close()", "running it leaves a file: d/left"),
}


def blocks(done: subprocess.CompletedProcess[str]) -> dict[str, list[str]]:
    """The lines of each rule, without what is quoted in them."""
    lines = [line for line in done.stdout.splitlines()[1:-1] if not line.startswith("      |")]
    starts = [number for number, line in enumerate(lines) if not line.startswith("      ")] + [len(lines)]
    found = [lines[start:end] for start, end in zip(starts, starts[1:])]
    return {block[0].split()[1]: block for block in found}


@pytest.fixture(scope="module")
def otherwise(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    rules = Rules(tmp_path_factory.mktemp("otherwise"))
    for rule, (more, _) in OTHERWISE.items():
        rules.write(rule.replace("-", "_"), f"{HALVES}\nimport atexit\n{more}\n")
    return blocks(rules.verify())


@pytest.mark.parametrize("rule", OTHERWISE)
def test_recipe_that_does_otherwise_than_it_says(rule: str, otherwise: dict[str, list[str]]) -> None:
    line, *reasons = otherwise[rule]
    assert re.fullmatch(rf"fail  {rule:<27} not proven                     {SECONDS}", line)
    rerun = f"      rerun: {shlex.quote(sys.executable)} {rule.replace('-', '_')}.py"
    assert reasons == [f"      {OTHERWISE[rule][1]}", rerun]


# ---------------------------------------------------------------------------------------------------------- formats


def test_json_has_schema_1(five: Rules) -> None:
    document = five.document()
    assert list(document) == ["schema", "interpreters", "rules", "summary"]
    assert document["schema"] == 1
    here = {"implementation": "cpython", "version": list(sys.version_info[:3]), "platform": "linux"}
    assert document["interpreters"] == [{**here, "free_threaded": False}]
    assert document["summary"] == {"ok": 3, "skip": 1, "fail": 1}
    found = {rule["rule"]: rule for rule in document["rules"]}
    assert list(found) == IDS
    fields = ["rule", "python", "status", "reasons", "checks", "seconds"]
    assert all(list(rule) == fields and rule["python"] == VERSION for rule in found.values())
    first = found["sp-first-rule"]
    assert (first["status"], first["reasons"]) == ("ok", [])
    for check in first["checks"]:
        assert 0 < check.pop("seconds") < first["seconds"]
    rest = {"status": "ok", "reason": "", "floor": None, "calibrated": False}
    assert first["checks"] == [
        {"name": "fails", "kind": "broken", "declared": "raises ValueError: no", **rest},
        {"name": "works", "kind": "fixed", "declared": "returns 1", **rest},
    ]
    reason = "declared returns 1; observed exits with status 3\n| in other words"
    assert (found["proc-wrong"]["status"], found["proc-wrong"]["reasons"]) == ("fail", [f"works: {reason}"])
    assert found["proc-wrong"]["checks"][1]["reason"] == reason
    assert found["iso-absent"]["checks"] == []
    assert found["iso-absent"]["reasons"][0].startswith("needs hangproof-no-such>=1.2,<2 (pip install ")


def paths_in(document: object) -> list[str]:
    return re.findall(r"(?<![\w.>])/[\w.-]+/[\w./-]*", json.dumps(document))


def test_json_of_rules_that_hold_has_no_path_and_no_name_of_the_host(five: Rules) -> None:
    document = five.document("sp", "thread", "iso", status=0)
    assert paths_in(document) == []
    assert not re.search(rf"\b{re.escape(os.uname().nodename)}\b", json.dumps(document))


FAILS_WITH_PATHS = {
    "a traceback": HALVES.replace("return 1", "raise LookupError('other')"),
    "a process that is left": HALVES.replace(
        "return 1", "subprocess.Popen([sys.executable, '-c', 'import os; os.read(os.pipe()[0], 1)'])"
    ),
    "a hang": HALVES.replace("return 1", "threading.Event().wait()"),
}


@pytest.mark.parametrize("how", FAILS_WITH_PATHS)
def test_json_of_a_rule_that_fails_has_no_path(rules: Rules, how: str) -> None:
    rules.write("sp_fails", FAILS_WITH_PATHS[how])
    document = rules.document()
    assert document["summary"] == {"ok": 0, "skip": 0, "fail": 1}
    assert paths_in(document) == []


PATHS = "/usr/lib/x.py, '/some where/y.py', PATH=/usr/bin:/home/someone/z, https://example.org/a/b, 3/4"


def test_path_is_cut_down_to_its_last_part_in_json_only(rules: Rules) -> None:
    rules.write("sp_fails", HALVES.replace("return 1", f"raise LookupError({PATHS!r})"))
    (reason,) = rules.document()["rules"][0]["reasons"]
    cut = "x.py, 'y.py', PATH=z, https://example.org/a/b, 3/4"
    assert reason.splitlines()[0] == f"works: declared returns 1; observed raises LookupError: {cut}"
    assert f"observed raises LookupError: {PATHS}\n" in rules.verify().stdout


def test_github_gets_an_error_at_the_line(rules: Rules, tmp_path: Path) -> None:
    path = rules.write("sp_wrong", WRONG.replace("in other words", "100% in\\nother words"))
    (line,) = [number for number, text in enumerate(path.read_text().splitlines(), 1) if text == "def works():"]
    rules.write("sp_right")
    rules.write("sp_silent", HALVES + "del works\n")
    done = rules.verify("--format", "github", cwd=tmp_path)
    shown = [text for text in done.stdout.splitlines() if text.startswith("::")]
    reason = "works: declared returns 1; observed exits with status 3%0A| 100%25 in%0A| other words"
    title = f"on CPython {VERSION}"
    assert shown == [
        f"::error file=some recipes/sp_silent.py,line=1,title=sp-silent {title}::never reported: works; it exited with "
        "status 0",
        f"::error file=some recipes/sp_wrong.py,line={line},title=sp-wrong {title}::{reason}",
    ]
    assert verdicts(done) == {"sp-right": "ok", "sp-silent": "fail", "sp-wrong": "fail"}
    assert done.returncode == 1


# ----------------------------------------------------------------------------------------------------------- floors

FLOORS = """
@broken(raises(AttributeError, "since_the_next"))
def fails():
    os.since_the_next

@fixed(returns(3), since=(3, 9))
def present_everywhere():
    return os.waitstatus_to_exitcode(768)

@fixed(returns(True), since=(3, 13), before=raises(AttributeError, "process_cpu_count"))
def process_cpu_count():
    return os.process_cpu_count() > 0

@fixed(returns(None), since=(99, 1), before=raises(AttributeError, "since_the_next"))
def in_a_later_python():
    os.since_the_next

@fixed(returns(3), since=(99, 1), before=raises(AttributeError, "waitstatus"))
def too_high():
    return os.waitstatus_to_exitcode(768)
"""


def test_floors_are_present_or_absent_or_wrong(rules: Rules) -> None:
    rules.write("sp_floors", FLOORS)
    rules.write("sp_none")
    done = rules.verify("--floors")
    lines = done.stdout.splitlines()
    here = "present" if sys.version_info >= (3, 13) else "absent"
    names = ["present_everywhere", "process_cpu_count", "in_a_later_python", "too_high"]
    rest = list(zip(names, ["3.9", "3.13", "99.1", "99.1"], ["present", here, "absent", "fail"]))
    expected = [f"floor {name:<40} {since:<5} {state:<8} {VERSION:<8} sp-floors" for name, since, state in rest]
    assert lines[-5:-1] == expected
    assert [line for line in lines if line.startswith("floor")] == expected
    assert done.returncode == 1


# ------------------------------------------------------------------------------------------------------ interpreters


@pytest.fixture(scope="session")
def other_python() -> Path:
    """An interpreter of another version."""
    done = subprocess.run(
        ["bash", ROOT / "scripts" / "pythons.sh"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    for line in done.stdout.splitlines():
        if version_of(Path(line)) != VERSION:
            return Path(line)
    pytest.skip("there is no other Python")


def version_of(python: Path) -> str:
    program = "import sys; print(*sys.version_info[:3], sep='.')"
    return subprocess.run([python, "-c", program], capture_output=True, encoding="utf-8", check=True).stdout.strip()


class Pythons:
    """The interpreters that can be found: those that are put on PATH here, or where pyenv keeps its own."""

    def __init__(self, folder: Path) -> None:
        self._path, self._pyenv = folder / "bin", folder / "pyenv"
        self._path.mkdir()
        self.environment = {
            "PATH": str(self._path),  # without bash, so that scripts/pythons.sh is not asked
            "PYENV_ROOT": str(self._pyenv),
            "HOME": str(folder),
        }

    def on_path(self, name: str, python: Path) -> Path:
        (self._path / name).symlink_to(python)
        return self._path / name

    def in_pyenv(self, name: str, python: Path) -> Path:
        folder = self._pyenv / "versions" / "some" / "bin"
        folder.mkdir(parents=True)
        (folder / name).symlink_to(python)
        return folder / name

    def imitate(self, name: str, version: tuple[int, int, int], implementation: str = "cpython") -> None:
        """What describes itself so, and can do nothing else."""
        described = json.dumps(["/nowhere/python", implementation, version, "linux", False, []])
        path = self._path / name
        path.write_text(f"#!/bin/sh\necho '{described}'\n")
        path.chmod(0o755)


@pytest.fixture
def pythons(tmp_path: Path) -> Pythons:
    return Pythons(tmp_path)


HERE = Path(sys.executable)


def test_python_by_path_command_and_version(rules: Rules, pythons: Pythons) -> None:
    rules.write("iso_absent", block=needing("hangproof-no-such>=1"))  # so that little is to be done
    link = pythons.on_path(f"python{MINOR}", HERE)
    for name in (HERE, link, link.name, MINOR, VERSION, "3"):
        done = rules.verify("--python", name, env=pythons.environment)
        assert done.stdout.startswith(f"CPython {VERSION} on linux, 1 rule\nskip "), (name, done.stderr)


def test_python_that_only_pyenv_has(rules: Rules, pythons: Pythons, other_python: Path) -> None:
    rules.write("sp_wrong", WRONG)
    version = version_of(other_python)
    minor = version.rpartition(".")[0]
    link = pythons.in_pyenv(f"python{minor}", other_python)
    for name in (minor, version):
        done = rules.verify("--python", name, env=pythons.environment)
        assert done.stdout.startswith(f"CPython {version} on linux, 1 rule\n"), done.stderr
        assert f"      rerun: {shlex.quote(str(link))} sp_wrong.py\n" in done.stdout


def test_unknown_python_is_wrong_use_and_the_known_are_said(rules: Rules, pythons: Pythons) -> None:
    rules.write("sp_right")
    pythons.on_path(f"python{MINOR}", HERE)
    for name in ("3.99", f"{VERSION}0", "/nowhere/python", "python"):
        done = rules.verify("--python", name, env=pythons.environment)
        said = f"--python takes a path, a command or a version; {name!r} is none that runs. Found: {VERSION}"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"verify-recipes.py: {said}\n")


def test_python_that_is_too_old_is_wrong_use(rules: Rules, pythons: Pythons) -> None:
    rules.write("sp_right")
    pythons.imitate("python3.8", (3, 8, 20))
    done = rules.verify("--python", "3.8", env=pythons.environment)
    said = "--python takes Python 3.9 or newer; 3.8 is CPython 3.8.20"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"verify-recipes.py: {said}\n")


def test_matrix_of_two_pythons(rules: Rules, pythons: Pythons, other_python: Path) -> None:
    rules.write("sp_right")
    rules.write("sp_wrong", WRONG)
    rules.write("iso_absent", block=needing("hangproof-no-such>=1"))
    other = version_of(other_python)
    done = rules.verify("--python", HERE, "--python", other_python, "--python", HERE, env=pythons.environment)
    lines = done.stdout.splitlines()
    assert lines[0] == f"CPython {VERSION}, CPython {other} on linux, 3 rules"
    rows = [line for line in lines[1:-6] if not line.startswith("      ")]
    shape = [
        ("ok", "sp-right", "2 checks"),
        ("fail", "sp-wrong", "1 of 2 checks"),
        ("skip", "iso-absent", "needs hang"),
    ]
    for row, ((status, rule, said), version) in zip(rows, [(each, v) for each in shape for v in (VERSION, other)]):
        assert row.startswith(f"{status:<5} {rule:<27} {version:<9}{said}")
    assert len(rows) == 6
    assert f"      rerun: {shlex.quote(str(other_python))} sp_wrong.py" in lines
    first, second = max(4, len(VERSION)), max(4, len(other))
    assert lines[-5:-1] == [
        f"{'':<27} {VERSION:<{first}} {other:<{second}}",
        f"{'sp-right':<27} {'ok':<{first}} ok",
        f"{'sp-wrong':<27} {'fail':<{first}} fail",
        f"{'iso-absent':<27} {'skip':<{first}} skip",
    ]
    assert lines[-1].startswith("2 ok, 2 skipped, 2 failed in ")
    assert (done.returncode, done.stderr) == (1, "")


def test_no_matrix_of_one_python(rules: Rules) -> None:
    rules.write("sp_right")
    done = rules.verify("--python", HERE, "--python", HERE)
    assert len(done.stdout.splitlines()) == 3


def test_all_pythons_are_those_on_path_and_in_pyenv(rules: Rules, pythons: Pythons, other_python: Path) -> None:
    rules.write("sp_right")
    pythons.on_path("python3", HERE)
    pythons.on_path(f"python{MINOR}", HERE)
    pythons.in_pyenv("python3.99", other_python)
    pythons.imitate("python3.8", (3, 8, 20))
    pythons.imitate("python3.10", (3, 10, 16), "pypy")
    pythons.imitate("python3-config", (3, 11, 1))
    done = rules.verify("--all-pythons", env=pythons.environment)
    other = version_of(other_python)
    both = sorted([VERSION, other], key=lambda version: [int(part) for part in version.split(".")])
    assert done.stdout.startswith(f"CPython {both[0]}, CPython {both[1]} on linux, 1 rule\n")
    found = {version.rpartition(".")[0] for version in both}
    missing = ", ".join(each for each in [f"3.{minor}" for minor in range(9, 16)] if each not in found)
    assert done.stderr == f"verify-recipes.py: not found here, so not proven: Python {missing}\n"
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("2 ok, 0 skipped, 0 failed in ")


def test_no_python_at_all_proves_nothing(rules: Rules, pythons: Pythons) -> None:
    rules.write("sp_right")
    done = rules.verify("--all-pythons", env=pythons.environment)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr


def test_script_tells_of_more_pythons(rules: Rules, pythons: Pythons, tmp_path: Path) -> None:
    """With bash at hand, and the usual tools, the script of the repository is asked."""
    rules.write("sp_right")
    for tool in ("bash", "sort", "cut", "id", "ls", "dirname", "readlink", "sed", "grep", "cat", "env"):
        found = shutil.which(tool)
        if found:
            pythons.on_path(tool, Path(found))
    folder = tmp_path / "kept" / "root" / "usr" / "bin"
    folder.mkdir(parents=True)
    (folder / "python3.99").symlink_to(HERE)
    env = {**pythons.environment, "HANGPROOF_PYTHONS": str(tmp_path / "kept")}
    done = rules.verify("--all-pythons", env=env)
    assert done.stdout.startswith(f"CPython {VERSION} on linux, 1 rule\n"), done.stderr
    assert done.returncode == 0


# ------------------------------------------------------------------------------------------------------------ needs

PYTEST = pytest.__version__


MET = [">=1.2", f"=={PYTEST}", f"=={PYTEST.split('.')[0]}", ">=7.1.2,<1000"]
OTHER = [">=1000", "<2", "==2", f">=2,<{PYTEST}"]


@pytest.fixture(scope="module")
def needy(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    rules = Rules(tmp_path_factory.mktemp("needs"))
    for kind, every in (("met", MET), ("other", OTHER)):
        for number, bounds in enumerate(every):
            rules.write(f"iso_{kind}_{number}", ONE_CHECK, block=needing("pytest" + bounds))
    return rules


@pytest.mark.parametrize("arguments", [(), ("--require", "pytest")], ids=str)
def test_need_of_another_version_is_a_skip_or_where_required_a_failure(
    needy: Rules, arguments: tuple[str, ...]
) -> None:
    done = needy.verify(*arguments)
    found = blocks(done)
    assert [found[f"iso-met-{number}"][0][:5] for number in range(len(MET))] == ["ok   "] * len(MET)
    for number, bounds in enumerate(OTHER):
        reason, rule = f"needs pytest{bounds}, not {PYTEST} (pip install 'pytest{bounds}')", f"iso-other-{number}"
        if arguments:
            assert found[rule][0] == f"fail  {rule:<27} {'not proven':<30} 0.0s"
            assert found[rule][1] == f"      {reason}"
        else:
            assert found[rule] == [f"skip  {rule:<27} {reason} 0.0s"]
    count = "4 ok, 0 skipped, 4 failed in " if arguments else "4 ok, 4 skipped, 0 failed in "
    assert done.stdout.splitlines()[-1].startswith(count)
    assert done.returncode == (1 if arguments else 0)


def test_only_the_need_that_is_absent_is_said(rules: Rules) -> None:
    rules.write("iso_absent", block=needing("pytest>=2", "hangproof-no-such>=1,<2"))
    done = rules.verify("--require", "pytest")
    reason = "needs hangproof-no-such>=1,<2 (pip install 'hangproof-no-such>=1,<2')"
    assert f"skip  iso-absent                  {reason} 0.0s\n" in done.stdout
    assert done.returncode == 1  # since nothing is proven


def test_required_need_that_is_absent_is_a_failure(five: Rules) -> None:
    done = five.verify("--require", "hangproof-no-such", "iso", "sp-first-rule")
    assert verdicts(done) == {"sp-first-rule": "ok", "iso-absent": "fail"}
    assert re.search(
        rf"^fail  iso-absent                  not proven                     {SECONDS}$", done.stdout, re.M
    )
    assert done.returncode == 1


MALFORMED = [
    '# dependencies = ["pytest>=1.2"]\n# requires-python = ">=3.9"',
    '# dependencies = [\n#   "pytest>=1.2",\n# ]',
    '# dependencies = "pytest"',
    "# dependencies = [pytest]",
    '# dependencies = ["pytest>=1.2" "x"',
    '# dependencies = ["pytest>=1.2"; "x"]',
    '# dependencies = ["pytest"]',
    '# dependencies = ["pytest~=1.2"]',
    '# dependencies = ["pytest>="]',
    '# dependencies = ["pytest>=."]',
    '# dependencies = ["pytest,"]',
    "# dependencies = [\"pytest>=1.2 ; python_version > '3'\"]",
    "#",
]


def write_block(rules: Rules, name: str, block: str) -> None:
    rules.write(name, ONE_CHECK, block=f"\n# /// script\n{block}\n# ///\n")


@pytest.fixture(scope="module")
def malformed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    rules = Rules(tmp_path_factory.mktemp("malformed"))
    for number, block in enumerate(MALFORMED):
        write_block(rules, f"iso_malformed_{number}", block)
    return blocks(rules.verify())


@pytest.mark.parametrize("number", range(len(MALFORMED)), ids=MALFORMED)
def test_malformed_block_is_a_failure(number: int, malformed: dict[str, list[str]]) -> None:
    line, *reasons = malformed[f"iso-malformed-{number}"]
    assert line[:5] == "fail "
    assert re.fullmatch(r"      its (PEP 723 block|need) .*", reasons[0])


def test_need_that_is_no_text_is_a_failure(rules: Rules) -> None:
    write_block(rules, "iso_number", "# dependencies = [1]")
    done = rules.verify()
    assert (done.returncode, verdicts(done), done.stderr) == (1, {"iso-number": "fail"}, "")


# ---------------------------------------------------------------------------------------------------------- terminal


class Shown:
    """What the verifier writes to a terminal, on one of its streams, or on both; the other one is a file."""

    def __init__(self, rules: Rules, streams: tuple[str, ...], *arguments: str, **environment: str) -> None:
        unset = ("NO_COLOR", "TERM", *environment)
        inherited = {name: value for name, value in os.environ.items() if name not in unset}
        master, slave = pty.openpty()
        with open(rules.folder / "log", "w+", encoding="utf-8") as log:
            child = subprocess.Popen(
                rules.command(*arguments),
                stdin=subprocess.DEVNULL,
                stdout=slave if "stdout" in streams else log,
                stderr=slave if "stderr" in streams else log,
                env={**inherited, "TERM": "xterm", **environment},
            )
            os.close(slave)
            self.terminal = "".join(read_terminal(master)).replace("\r\n", "\n")
            self.status = child.wait()
            log.seek(0)
            self.file = log.read()
        os.close(master)


def read_terminal(fd: int) -> Iterator[str]:
    with contextlib.suppress(OSError):  # EIO: nobody has the other end any more
        while True:
            yield os.read(fd, 4096).decode()


COLOURS = {"ok": 32, "skip": 33, "fail": 31}


def test_status_is_coloured_on_a_terminal(five: Rules) -> None:
    shown = Shown(five, ("stdout",))
    found = re.findall(r"^(\x1b\[\d+m\w+ *\x1b\[0m) ([a-z-]+)", shown.terminal, re.MULTILINE)
    statuses = ["ok", "ok", "ok", "fail", "skip"]
    assert found == [(f"\x1b[{COLOURS[status]}m{status:<5}\x1b[0m", rule) for status, rule in zip(statuses, IDS)]
    assert shown.terminal.count("\x1b") == 10
    assert (shown.status, shown.file) == (1, "")


@pytest.mark.parametrize(
    "environment",
    [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"NO_COLOR": "1", "TERM": "dumb"}],
    ids=lambda value: " ".join(value),
)
def test_no_colour_where_it_is_not_wanted(five: Rules, environment: dict[str, str]) -> None:
    shown = Shown(five, ("stdout",), "sp-first-rule", **environment)
    assert shown.terminal.splitlines()[1].startswith("ok    sp-first-rule   ")
    assert "\x1b" not in shown.terminal


def test_empty_no_color_is_as_if_it_were_not_set(five: Rules) -> None:
    """https://no-color.org: "when present and not an empty string"."""
    shown = Shown(five, ("stdout",), "sp-first-rule", NO_COLOR="")
    assert shown.terminal.splitlines()[1].startswith("\x1b[32mok   \x1b[0m sp-first-rule   ")


def test_no_colour_in_a_file(five: Rules) -> None:
    shown = Shown(five, ("stderr",), "sp-first-rule")
    assert shown.file.splitlines()[1].startswith("ok    sp-first-rule   ")
    assert "\x1b" not in shown.file


def test_json_has_no_colour_on_a_terminal(five: Rules) -> None:
    shown = Shown(five, ("stdout",), "--format", "json", "sp-first-rule")
    assert json.loads(shown.terminal)["summary"] == {"ok": 1, "skip": 0, "fail": 0}


def test_progress_on_a_terminal(five: Rules) -> None:
    shown = Shown(five, ("stderr",), "--jobs", "1", "sp", "thread")
    clear = "\r\x1b[K"
    states = [state for state in shown.terminal.split(clear) if state]
    assert states == ["1 of 3, last sp-first-rule", "2 of 3, last sp-first-rule-again"]
    assert shown.terminal.endswith(clear)
    assert verdicts_of(shown.file) == {"sp-first-rule": "ok", "sp-first-rule-again": "ok", "thread-other": "ok"}


def test_progress_leaves_no_trace_between_the_lines(five: Rules) -> None:
    shown = Shown(five, ("stdout", "stderr"), "--jobs", "1", "sp", "thread")
    assert "1 of 3, last sp-first-rule\r\x1b[K\x1b[32mok   " in shown.terminal
    left = re.sub(r"[^\n]*\r\x1b\[K", "", shown.terminal)
    assert re.sub(r"\x1b\[\d*m", "", left).splitlines()[0] == f"CPython {VERSION} on linux, 3 rules"
    assert "last" not in left


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}], ids=["dumb"])
def test_no_progress_on_a_dumb_terminal(five: Rules, environment: dict[str, str]) -> None:
    assert Shown(five, ("stderr",), "--jobs", "1", "sp", **environment).terminal == ""


def test_no_progress_in_a_file(five: Rules) -> None:
    shown = Shown(five, ("stdout",), "--jobs", "1", "sp")
    assert shown.file == ""
    assert "of 2, last" not in shown.terminal


def verdicts_of(text: str) -> dict[str, str]:
    return {rule: status for status, rule in re.findall(r"^(ok|skip|fail) +(\S+)", text, re.MULTILINE)}
