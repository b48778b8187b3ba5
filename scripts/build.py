"""Write what is generated from the recipes: the Markdown between markers, and what each skill's directory holds.

    python scripts/build.py             write it
    python scripts/build.py --check     write nothing; show what is stale, and fail
    python scripts/build.py --new ID    begin a recipe, which fails until it is written

Generated text stands between `<!-- NAME: ARGUMENT -->` and `<!-- /NAME -->`, in references/*.md and in each SKILL.md:

    rule: ID           the rule, as `verify-recipes.py --explain ID` prints it
    code: ID NAME      one half, function or class of that recipe, complete with its imports
    file: NAME         a module of recipes/, whole
    contents           the headings of this file
    core: CHAPTER      the chapter's core rules: symptom, id, what to do
    rarer              the other rules: symptom, id

The lines `  version: "1.2.3"` and `Version 1.2.3.` get the version from pyproject.toml.

A skill's directory holds copies, because what installs it takes that one directory and no links. Stale copies are
removed. Nothing is written while anything is wrong with a recipe or a marker.

Exit status: 0 all is as it should be, 1 something is stale or wrong, 2 wrong use.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Callable, NamedTuple

import quoting
import rules

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
LONGEST_HEADLINE = 60  # characters
COMMAND = "python3 scripts/build.py"
MARKER = re.compile(r"<!-- (?P<name>\w+)(?:: (?P<argument>[^\n]+?))? -->(?P<text>.*?)<!-- /(?P=name) -->", re.DOTALL)
REFERENCES = {
    "sp": "subprocess.md",
    "thread": "threads.md",
    "proc": "processes.md",
    "hang": "debugging-hangs.md",
    "iso": "isolation.md",
}

# What a match of these failures costs is known from the field for longest; SKILL.md gives each its claim.
CORE = frozenset(
    f"{chapter}-{name}"
    for chapter, names in {
        "sp": "argv-not-shell check-and-capture timeout-always kill-the-process-tree communicate-not-wait "
        "popen-only-when-needed close-stdin explicit-env-and-cwd explicit-text-encoding no-preexec-fn "
        "bound-child-fanout drop-legacy-apis async-children",
        "thread": "cannot-be-killed own-and-join size-and-bound never-wait-on-a-future for-io-not-cpu "
        "share-by-message no-pool-for-long-running-work explicit-shutdown",
        "proc": "choose-start-method main-guard top-level-and-picklable inherit-dont-ship message-pass "
        "expect-a-broken-pool stop-cooperatively bound-and-chunk",
        "iso": "wrap-both-paths open-in-the-worker never-fork-a-client verify-the-reset fresh-state-per-test "
        "honest-worker private-reply-channel one-writer pay-the-import-once check-the-generation ship-arrays-raw "
        "publish-atomically leave-open-databases-alone check-the-dimension serve-when-many prove-the-clean-state",
    }.items()
    for name in names.split()
)


class Skill(NamedTuple):
    """What is copied into a skill's directory, beside its authored SKILL.md.

    longest: the most characters that SKILL.md may have.
    checklist: whether it has a section "Review checklist", which then names each core rule.
    """

    name: str
    chapters: tuple[str, ...]
    modules: tuple[str, ...]
    scripts: tuple[str, ...]
    longest: int
    checklist: bool


SKILLS = (
    Skill(
        "python-subprocess-and-concurrency",
        ("sp", "thread", "proc", "hang"),
        ("kit", "console", "supervisor", "linux", "run_tree"),
        ("verify-recipes.py", "rules.py", "quoting.py"),
        longest=15_000,
        checklist=True,
    ),
    Skill(
        "subprocess-isolation-for-process-state-clients",
        ("iso",),
        ("kit", "console", "supervisor", "linux", "honest_worker", "isolated", "chroma_server"),
        ("verify-recipes.py", "rules.py", "quoting.py"),
        longest=12_000,
        checklist=False,
    ),
)


class Wrong(Exception):
    """Something that has to be put right by hand before anything can be generated."""


class Pack(NamedTuple):
    """The sources that everything is generated from."""

    root: Path
    by_id: dict[str, rules.Rule]
    version: str

    @classmethod
    def read(cls, root: Path) -> Pack:
        found = rules.find_rules(root / "recipes")
        faults = [f"{rule.path.name} {fault}" for rule in found for fault in rule.faults]
        if faults or not found:
            raise Wrong("\n".join(faults) or f"there is no recipe in {root / 'recipes'}")
        version = re.search(r'^version = "(.+)"$', (root / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
        if not version:
            raise Wrong('pyproject.toml has no line of the form: version = "1.2.3"')
        return cls(root, {rule.id: rule for rule in found}, version[1])

    def rule(self, id: str) -> rules.Rule:
        if id not in self.by_id:
            near = difflib.get_close_matches(id, self.by_id, 1)
            raise Wrong(f"{id} is no rule" + (f"; did you mean {near[0]}?" if near else ""))
        return self.by_id[id]


# ------------------------------------------------------------------------------------- the text between the markers


def expand(pack: Pack, path: Path) -> str:
    """The text of this Markdown file with everything generated in it made anew.

    Raises Wrong for a marker that is unknown, not closed, or names nothing.
    """
    text = path.read_text(encoding="utf-8")

    def render(found: re.Match[str]) -> str:
        name, argument = found["name"], found["argument"] or ""
        try:
            if name not in RENDERERS:
                raise Wrong(f"a marker is one of {', '.join(RENDERERS)}, not {name}")
            generated = RENDERERS[name](pack, argument)
        except Wrong as error:
            line = text.count("\n", 0, found.start()) + 1
            raise Wrong(f"{path.relative_to(pack.root)}:{line}: {error}") from None
        opening = f"<!-- {name}: {argument} -->" if argument else f"<!-- {name} -->"
        return f"{opening}\n{generated.strip()}\n<!-- /{name} -->"

    expanded = MARKER.sub(render, text)
    single = re.search(r"<!-- /?\w+(: [^\n]+?)? -->", MARKER.sub("", text))
    if single:
        raise Wrong(f"{path.relative_to(pack.root)}: {single[0]} has no counterpart")
    expanded = re.sub(r'^(  version: "|Version ).+("|\.)$', rf"\g<1>{pack.version}\g<2>", expanded, flags=re.MULTILINE)
    return expanded.replace(CONTENTS, f"<!-- contents -->\n{contents(expanded)}\n<!-- /contents -->")


CONTENTS = "<!-- contents -->\n\n<!-- /contents -->"


def contents(text: str) -> str:
    """A list of links to the headings, as GitHub and mkdocs name their anchors; not to what stands in code."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^(##|###) (.+)$", prose, re.MULTILINE)
    return "\n".join(
        f"{'  ' * (len(level) - 2)}- [{heading}](#{re.sub(r'[^a-z0-9 -]', '', heading.lower()).replace(' ', '-')})"
        for level, heading in headings
    )


def code(pack: Pack, argument: str) -> str:
    id, _, name = argument.partition(" ")
    rule = pack.rule(id)
    half = next((half for half in rule.halves if half.name == name), None)
    try:
        return f"```python\n{quoting.quoted(rule, half) if half else quoting.definition(rule, name)}\n```"
    except KeyError:
        raise Wrong(f"{rule.path.name} defines no {name!r}") from None


def whole_file(pack: Pack, argument: str) -> str:
    path = pack.root / "recipes" / argument
    if not path.is_file():
        raise Wrong(f"recipes/ has no {argument}")
    return f"```python\n{path.read_text(encoding='utf-8').strip()}\n```"


def core_rules(pack: Pack, chapter: str) -> str:
    chosen = [rule for rule in pack.by_id.values() if rule.chapter == chapter and rule.id in CORE]
    return "\n".join(f"- {headline(rule)}: `{rule.id}`: {clause(rule)}" for rule in chosen)


def rarer_rules(pack: Pack, _: str) -> str:
    covered = {chapter for skill in SKILLS for chapter in skill.chapters}
    chosen = [rule for rule in pack.by_id.values() if rule.chapter in covered and rule.id not in CORE]
    return "\n".join(f"- {headline(rule)}: `{rule.id}`" for rule in chosen)


def headline(rule: rules.Rule) -> str:
    """The first sentence of the symptom."""
    return re.split(r"[.;](?= |$)", " ".join(rule.sections["Symptom"].split()))[0]


def clause(rule: rules.Rule) -> str:
    """The claim's first clause."""
    return re.split(r"[,;:] |\.$", rule.claim)[0]


RENDERERS: dict[str, Callable[[Pack, str], str]] = {
    "rule": lambda pack, argument: quoting.explain(pack.rule(argument)),
    "code": code,
    "file": whole_file,
    "contents": lambda pack, argument: "",
    "core": core_rules,
    "rarer": rarer_rules,
}


# --------------------------------------------------------------------------------------------- what there should be


def generated(pack: Pack) -> dict[Path, bytes]:
    """Every generated file and what it should hold: the texts with markers in them, and the copies for each skill."""
    texts = {path: expand(pack, path).encode() for path in sorted((pack.root / "references").glob("*.md"))}
    files = dict(texts)
    for skill in SKILLS:
        folder = pack.root / "skill" / skill.name
        body = folder / "SKILL.md"
        files[body] = expand(pack, body).encode()
        for path in copied(pack, skill):
            files[folder / path.relative_to(pack.root)] = texts.get(path) or path.read_bytes()
    return files


def copied(pack: Pack, skill: Skill) -> Iterator[Path]:
    """The files that this skill gets copies of."""
    for chapter in skill.chapters:
        reference = pack.root / "references" / REFERENCES[chapter]
        if reference.exists():
            yield reference
    yield from (rule.path for rule in pack.by_id.values() if rule.chapter in skill.chapters)
    yield from (pack.root / "recipes" / f"{module}.py" for module in skill.modules)
    yield from (pack.root / "scripts" / script for script in skill.scripts)


def present(pack: Pack) -> set[Path]:
    """The files in the skills' directories, except what Python left there."""
    found = (path for skill in SKILLS for path in (pack.root / "skill" / skill.name).rglob("*"))
    return {path for path in found if path.is_file() and "__pycache__" not in path.parts}


def faults(pack: Pack, files: dict[Path, bytes]) -> Iterator[str]:
    """What is wrong with the sources although it can be generated: parity, completeness, lengths."""
    references = {path: data.decode() for path, data in files.items() if path.parent == pack.root / "references"}
    quoted = Counter(id for text in references.values() for id in re.findall(r"<!-- rule: (\S+) -->", text))
    for rule in pack.by_id.values():
        reference = f"references/{REFERENCES[rule.chapter]}"
        if quoted[rule.id] != 1:
            yield f"{rule.id} is quoted {quoted[rule.id]} times: one <!-- rule: {rule.id} --> belongs in {reference}"
        block = quoting.explain(rule)
        if len(block) > quoting.LONGEST_BLOCK:
            yield f"{rule.id}: its Markdown has {len(block)} characters, of at most {quoting.LONGEST_BLOCK}"
        if len(headline(rule)) > LONGEST_HEADLINE:
            yield f"{rule.id}: the first sentence of its Symptom has more than {LONGEST_HEADLINE} characters"
        for listing in quoting.listed(rule, quoting.shown(rule)):
            missing = quoting.undefined(listing)
            if missing:
                yield f"{rule.id}: its quoted code uses {', '.join(sorted(missing))}, which nothing defines"
    for skill in SKILLS:
        yield from body_faults(skill, files[pack.root / "skill" / skill.name / "SKILL.md"].decode())


def body_faults(skill: Skill, body: str) -> Iterator[str]:
    lengths = {"characters": (len(body), skill.longest), "lines": (body.count("\n"), 450)}
    description = re.search(r"^description: (.+)$", body, re.MULTILINE)
    lengths["characters of description"] = (len(description[1]) if description else 0, 400)
    name = f"{skill.name}/SKILL.md"
    yield from (f"{name} has {seen} {what}, of at most {most}" for what, (seen, most) in lengths.items() if seen > most)
    if skill.checklist:
        checklist = body.partition("\n## Review checklist\n")[2].partition("\n## ")[0]
        named = set(re.findall(r"`([a-z]+-[a-z0-9-]+)`", checklist))
        core = {id for id in CORE if id.partition("-")[0] in skill.chapters}
        yield from (f"the review checklist of {name} never names {id}" for id in sorted(core - named))


# -------------------------------------------------------------------------------------------------------- commands


def build(pack: Pack) -> int:
    files = generated(pack)
    for path, data in files.items():
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            print(f"wrote {path.relative_to(pack.root)}")
    for path in sorted(present(pack) - files.keys()):
        path.unlink()
        print(f"removed {path.relative_to(pack.root)}")
    return report(pack, list(faults(pack, files)), files)


def check(pack: Pack) -> int:
    files = generated(pack)
    found = list(faults(pack, files))
    for path, data in files.items():
        name = str(path.relative_to(pack.root))
        now = path.read_bytes() if path.exists() else b""
        if now != data:
            found.append(f"{name} is stale; run: {COMMAND}\n{difference(name, now, data)}")
    for path in sorted(present(pack) - files.keys()):
        found.append(f"{path.relative_to(pack.root)} comes from nothing; run: {COMMAND}")
    return report(pack, found, files)


def difference(name: str, now: bytes, wanted: bytes) -> str:
    before, after = (data.decode(errors="replace").splitlines(keepends=True) for data in (now, wanted))
    return "".join(difflib.unified_diff(before, after, name, f"{name} (generated)", n=1)).rstrip()


def report(pack: Pack, found: list[str], files: dict[Path, bytes]) -> int:
    for fault in found:
        print(fault, file=sys.stderr)
    state = f"{len(found)} faults" if found else "all up to date"
    print(f"{len(pack.by_id)} rules, {len(files)} generated files: {state}")
    return 1 if found else 0


RECIPE = '''\
"""TODO: the claim, an imperative that names its alternative, in at most 90 characters.

TODO: why: what happens inside, and what nobody is told.

Scope: TODO: when it is not needed, and what it does not reach.
Symptom: TODO: the exact message, or what one sees.
Look for: TODO: what in source code should make a reviewer stop.
Sources: TODO: https://docs.python.org/3/
"""

from kit import broken, fixed, main, raises, returns


@broken(raises(OSError, "TODO: the telling part of the message"))
def show_the_failure():
    raise NotImplementedError("write the code that fails")


@fixed(returns("TODO: what it comes back with"))
def show_what_works():
    raise NotImplementedError("write the code that works")


if __name__ == "__main__":
    main()
'''


def begin(root: Path, id: str) -> int:
    """Writes a recipe to start from, and its marker at the end of its chapter. Raises Wrong for an id that cannot be
    one, or that is there."""
    chapter, path = id.partition("-")[0], root / "recipes" / f"{id.replace('-', '_')}.py"
    if chapter not in REFERENCES or not re.fullmatch(r"[a-z]+(-[a-z0-9]+)+", id):
        raise Wrong(f"an id is a chapter ({', '.join(REFERENCES)}) and words, such as sp-close-stdin; {id!r} is none")
    if path.exists():
        raise Wrong(f"recipes/{path.name} is there already")
    path.write_text(RECIPE, encoding="utf-8")
    reference = root / "references" / REFERENCES[chapter]
    with reference.open("a", encoding="utf-8") as file:
        file.write(f"\n<!-- rule: {id} -->\n<!-- /rule -->\n")
    print(
        f"wrote recipes/{path.name}, and a marker at the end of references/{reference.name}: move it where it belongs"
    )
    print(f"then: python3 scripts/verify-recipes.py {id}; it fails until the recipe is written")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="write nothing; show what is stale, and fail")
    mode.add_argument("--new", metavar="ID", help="begin a recipe, which fails until it is written")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to work on (default: this one)")
    options = parser.parse_args()
    try:
        if options.new:
            return begin(options.root, options.new)
        pack = Pack.read(options.root)
        return check(pack) if options.check else build(pack)
    except Wrong as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 2 if options.new else 1


if __name__ == "__main__":
    sys.exit(main())
