"""What is quoted from a recipe can be lifted out of it: it is complete, and it says which half fails."""

from __future__ import annotations

import builtins
import subprocess
import symtable
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import rules  # noqa: E402

RULES = rules.find_rules(ROOT / "recipes")


def undefined(code: str) -> set[str]:
    """The global names that the code uses and neither defines nor finds among the builtins."""
    tables = [symtable.symtable(code, "quoted", "exec")]
    for table in tables:  # grows while it is walked
        tables += table.get_children()
    top = {symbol.get_name() for symbol in tables[0].get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    used = {symbol.get_name() for table in tables for symbol in table.get_symbols() if symbol.is_global()}
    used |= {symbol.get_name() for symbol in tables[0].get_symbols() if symbol.is_referenced()}
    return used - top - set(dir(builtins)) - {"__file__", "__name__"}


def test_a_missing_name_is_noticed() -> None:
    assert undefined("import os\n\ndef f(x):\n    return os.sep + x + y\n") == {"y"}
    assert undefined("print(Z)") == {"Z"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_half_is_quoted_whole(rule: rules.Rule) -> None:
    assert rule.halves
    for half in rule.halves:
        code = rules.quoted(rule, half)
        assert undefined(code) == set()
        assert "from kit" not in code
        assert not code.startswith("@")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_markdown_says_which_half_fails(rule: rules.Rule) -> None:
    text = rules.explain(rule)
    broken = next(half for half in rule.halves if half.kind == "broken")
    assert text.startswith(f"### {rule.id}\n\n**{rule.claim}**\n")
    assert text.count("```python\n# broken: ") == 1
    assert text.index("# broken: " + " ".join(rule.text(broken.outcome).split())) < text.index("```python\n# fixed")
    assert f"../recipes/{rule.path.name}" in text


def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(ROOT / "scripts" / "verify-recipes.py"), *arguments]
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=60, check=False
    )


def test_command_line_prints_the_rule_and_its_fixed_code() -> None:
    rule = next(rule for rule in RULES if rule.id == "sp-communicate-not-wait")
    explained, fixed = ask("--explain", rule.id), ask("--fixed", "sp_communicate_not_wait")
    assert (explained.returncode, explained.stdout, explained.stderr) == (0, rules.explain(rule), "")
    assert (fixed.returncode, fixed.stdout, fixed.stderr) == (0, rules.fixed_code(rule), "")
    assert "communicate()" in fixed.stdout
    assert "child.wait()" not in fixed.stdout


@pytest.mark.parametrize("name", ["sp-communicate", "sp-comunicate-not-wait", "nonsense"])
def test_command_line_takes_whole_ids_only(name: str) -> None:
    done = ask("--explain", name)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
