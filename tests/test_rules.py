"""What is quoted from a recipe can be lifted out of it: it is complete, and it says which half fails."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import quoting  # noqa: E402
import rules  # noqa: E402

RULES = rules.find_rules(ROOT / "recipes")


def test_a_missing_name_is_noticed() -> None:
    assert quoting.undefined("import os\n\ndef f(x):\n    return os.sep + x + y\n") == {"y"}
    assert quoting.undefined("print(Z)") == {"Z"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_half_is_quoted_whole(rule: rules.Rule) -> None:
    assert rule.halves
    for half in rule.halves:
        code = quoting.quoted(rule, half)
        assert quoting.undefined(code) == set()
        assert "from kit" not in code
        assert not code.startswith("@")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_markdown_says_which_half_fails(rule: rules.Rule) -> None:
    text = quoting.explain(rule)
    assert text.startswith(f"### {rule.id}\n\n**{rule.claim}**")
    assert f"(../recipes/{rule.path.name})" in text
    labels = [
        line.partition(":")[0] for line in text.splitlines() if line.startswith(("# broken", "# fixed", "# shows"))
    ]
    assert labels == [f"# {half.kind}" for half in quoting.shown(rule)]


RECIPE = """
import json
import os
from subprocess import PIPE, Popen, run

from kit import broken, fixed, hangs, leaves, main, raises, returns

BOTH = "both"
MESSAGE = "not there"


def helper():
    return os.sep


@broken(
    hangs(at="wait()", until=(3, 9))
    | raises(OSError, MESSAGE, since=(3, 10)) & leaves(2)
)
def fails():
    return run(BOTH)


@fixed(returns({"a": [1]}))
def works():
    return Popen(BOTH, stdout=PIPE), helper()
"""


def test_one_listing_holds_both_halves_and_only_what_they_use(tmp_path: Path) -> None:
    path = tmp_path / "sp_x.py"
    path.write_text(RECIPE, encoding="utf-8")
    rule = rules.read_rule(path)
    assert list(quoting.listed(rule, quoting.shown(rule))) == [
        """import os
from subprocess import PIPE, Popen, run

BOTH = "both"

# broken: hangs at wait() (to 3.9), or raises OSError: not there (from 3.10); leaves 2 processes
def fails():
    return run(BOTH)

# fixed: returns {'a': [1]}
def helper():
    return os.sep

def works():
    return Popen(BOTH, stdout=PIPE), helper()"""
    ]


def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(ROOT / "scripts" / "verify-recipes.py"), *arguments]
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=60, check=False
    )


def test_command_line_prints_the_rule_and_its_fixed_code() -> None:
    rule = next(rule for rule in RULES if rule.id == "sp-communicate-not-wait")
    explained, fixed = ask("--explain", rule.id), ask("--fixed", "sp_communicate_not_wait")
    assert (explained.returncode, explained.stdout, explained.stderr) == (0, quoting.explain(rule), "")
    assert (fixed.returncode, fixed.stdout, fixed.stderr) == (0, quoting.fixed_code(rule), "")
    assert "communicate()" in fixed.stdout
    assert "child.wait()" not in fixed.stdout


@pytest.mark.parametrize(
    ("id", "names"),
    [
        ("proc-kill-a-stuck-worker", ["kill_workers", "map_all"]),  # called, by halves that only demonstrate them
        ("proc-one-owner-of-shared-memory", ["register", "attach"]),  # handed on by name
        (  # the halves are the code
            "sp-communicate-not-wait",
            ["communicate_reads_and_reaps", "communicate_reads_both_pipes", "communicate_writes_and_reads"],
        ),
    ],
)
def test_fixed_code_leaves_out_what_only_demonstrates(id: str, names: list[str]) -> None:
    rule = next(rule for rule in RULES if rule.id == id)
    assert re.findall(r"^def (\w+)", quoting.fixed_code(rule), re.MULTILINE) == names


@pytest.mark.parametrize("name", ["sp-communicate", "sp-comunicate-not-wait", "nonsense"])
def test_command_line_takes_whole_ids_only(name: str) -> None:
    done = ask("--explain", name)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


def claimed(rule: rules.Rule) -> set[tuple[int, int]]:
    """The versions that the rule's text names, in whatever words; not those in its sources' addresses."""
    text = " ".join([rule.claim, rule.why, *(rule.sections[name] for name in ("Scope", "Symptom", "Look for"))])
    return {(3, int(minor)) for minor in re.findall(r"(?<![\d.])3\.(\d+)\b", text)}


def backed(source: str) -> set[tuple[int, int]]:
    """The versions at which something changes, by what the recipe declares and so proves on both sides."""
    words = [word for node in ast.walk(rules.parse(source)) if isinstance(node, ast.Call) for word in node.keywords]
    versions = {
        (word.arg, ast.literal_eval(word.value))
        for word in words
        if word.arg in ("since", "until") and isinstance(word.value, ast.Tuple)
    }
    after = {(major, minor + 1) for name, (major, minor) in versions if name == "until"}
    return {version for _, version in versions} | after | {(3, 9)}


def test_a_version_that_nothing_proves_is_noticed() -> None:
    assert backed("x(since=(3, 12)) | y(until=(3, 10), before=z)") == {(3, 9), (3, 10), (3, 11), (3, 12)}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_versions_in_the_text_are_proven(rule: rules.Rule) -> None:
    assert claimed(rule) - backed(rule.source) == set()
