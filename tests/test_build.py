"""What is generated is up to date, and whatever is wrong with it is found and named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SKILL = Path("skill/python-subprocess-and-concurrency")
RECIPE = Path("recipes/sp_communicate_not_wait.py")
REFERENCE = Path("references/subprocess.md")
MARKER = "<!-- rule: sp-communicate-not-wait -->"


def run(script: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-B", str(script), *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=120, check=False, cwd=cwd,
    )  # fmt: skip


def build(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(ROOT / "scripts" / "build.py", "--root", str(root), *arguments)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of all that the generator reads and writes, in a directory whose name has a space."""
    root = tmp_path / "a tree"
    for name in ("recipes", "references", "skill", "scripts"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_all_that_is_generated_is_up_to_date() -> None:
    done = build(ROOT, "--check")
    assert (done.returncode, done.stderr) == (0, "")


FAULTS = {
    "block": (REFERENCE, "A pipe holds", "A pipe has", "-A pipe has"),
    "reference, not built": (REFERENCE, "## Many at once", "## At once", "is stale; run: python3 scripts/build.py"),
    "recipe": (RECIPE, "A pipe holds", "A pipe takes", "+A pipe takes"),
    "copy": (SKILL / RECIPE, "A pipe holds", "A pipe takes", "-A pipe takes"),
    "version": (Path("pyproject.toml"), 'version = "', 'version = "9', '+  version: "9'),
    "quoted nowhere": (REFERENCE, MARKER, "<!-- rule: sp-close-stdin -->", "is quoted 0 times"),
    "quoted twice": (REFERENCE, MARKER, f"{MARKER}\n<!-- /rule -->\n{MARKER}", "is quoted 2 times"),
    "no such rule": (REFERENCE, MARKER, "<!-- rule: sp-comunicate -->", "did you mean sp-communicate-not-wait?"),
    "no such marker": (REFERENCE, MARKER, f"<!-- rul: x --><!-- /rul -->{MARKER}", "a marker is one of rule, "),
    "no end": (REFERENCE, "<!-- /contents -->", "", "<!-- contents --> has no counterpart"),
    "undefined name": (RECIPE, "def communicate_reads", "@elsewhere\ndef communicate_reads", "uses elsewhere, which"),
    "long block": (RECIPE, "A pipe holds", "A pipe, " + "long " * 400 + "holds", "of at most 1800"),
    "recipe with a fault": (RECIPE, "Symptom:", "Symptoms:", "has no `Symptom: `"),
    "checklist": (SKILL / "SKILL.md", "No `preexec_fn`: `sp-no-preexec-fn`", "None", "never names sp-no-preexec-fn"),
    "long body": (SKILL / "SKILL.md", "# Python subp", "long " * 3000 + "\n# Python subp", "of at most 15000"),
    "description": (SKILL / "SKILL.md", 'description: "', 'description: "' + "long " * 80, "of at most 400"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_named(tree: Path, name: str) -> None:
    path, old, new, complaint = FAULTS[name]
    edit(tree / path, old, new)
    before = {file: file.read_bytes() for file in tree.rglob("*") if file.is_file()}
    done = build(tree, "--check")
    assert done.returncode == 1
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert {file: file.read_bytes() for file in tree.rglob("*") if file.is_file()} == before


def test_stale_copy_is_found_and_removed(tree: Path) -> None:
    stale = tree / SKILL / "recipes" / "sp_renamed.py"
    stale.touch()
    done = build(tree, "--check")
    assert (done.returncode, "sp_renamed.py comes from nothing" in done.stderr) == (1, True)
    assert build(tree).returncode == 0
    assert not stale.exists()
    assert build(tree, "--check").returncode == 0


def test_new_recipe_fails_until_it_is_written(tree: Path) -> None:
    began = build(tree, "--new", "sp-use-less")
    assert (began.returncode, began.stderr) == (0, "")
    proof = run(tree / "scripts" / "verify-recipes.py", "sp-use-less")
    assert proof.returncode == 1
    assert "observed raises NotImplementedError: write the code that fails" in proof.stdout
    assert build(tree, "--new", "sp-use-less").returncode == 2  # it is there already


@pytest.mark.parametrize("id", ["use-less", "sp", "sp-", "sp-Less", "sp-../x", "nope-use-less"])
def test_new_recipe_needs_an_id(tree: Path, id: str) -> None:
    done = build(tree, "--new", id)
    assert (done.returncode, done.stdout) == (2, "")
    assert "an id is a chapter" in done.stderr


def test_skill_is_valid() -> None:
    validate = Path(sys.executable).with_name("agentskills")
    if sys.version_info < (3, 11):
        pytest.skip("agentskills needs Python 3.11")
    done = subprocess.run(
        [validate, "validate", ROOT / SKILL],
        stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_skill_alone_proves_a_rule_and_stays_as_it_was(tmp_path: Path) -> None:
    alone = tmp_path / "an installed skill"
    shutil.copytree(ROOT / SKILL, alone, ignore=shutil.ignore_patterns("__pycache__"))
    before = {file: file.read_bytes() for file in alone.rglob("*") if file.is_file()}
    assert not [file for file in before if os.path.islink(file)]
    done = run(alone / "scripts" / "verify-recipes.py", "sp-communicate-not-wait", cwd=alone)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 ok, 0 skipped, 0 failed" in done.stdout
    assert {file: file.read_bytes() for file in alone.rglob("*") if file.is_file()} == before
