"""What a typed name and a strange environment do to a call of git."""

import atexit
import os
import shutil
import subprocess
import sys
import traceback

from kit import check, main, prints, returns

IDENTITY = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_CONFIG_GLOBAL": os.devnull}
IDENTITY.update(GIT_COMMITTER_NAME="a", GIT_COMMITTER_EMAIL="a@example.org", GIT_CONFIG_NOSYSTEM="1")
BESIDE = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))}


def git(repository, *arguments):
    argv = ["git", "-C", repository, *arguments]
    done = subprocess.run(
        argv, env={**os.environ, **IDENTITY}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    return done.stdout.strip()


def repository(*branches, name="a repository"):
    """Makes one with these branches beside main, until this program ends; returns its path and the commit's hash."""
    path = os.path.join(os.environ["TMPDIR"], name)
    os.mkdir(path)
    atexit.register(shutil.rmtree, path)
    git(path, "init", "--quiet", "--initial-branch=main")
    git(path, "commit", "--quiet", "--allow-empty", "--message=first")
    for branch in branches:
        git(path, "update-ref", f"refs/heads/{branch}", "HEAD")
    return path, git(path, "rev-parse", "HEAD")


def attempt(path, branch):
    """What the answer makes of it: what it returns, or "failed", with the traceback printed."""
    from answer import last_commit

    try:
        return last_commit(path, branch)
    except Exception:  # noqa: BLE001 - whatever the answer raises is its way to fail
        traceback.print_exc()
        return "failed"


def refused(branch):
    """Whether the name is refused, with nothing changed by it."""
    path, _ = repository()
    before = sorted(os.listdir(".")) + sorted(os.listdir(path))
    answer = attempt(path, branch)
    return answer, before == sorted(os.listdir(".")) + sorted(os.listdir(path))


def found(branch):
    path, commit = repository(branch)
    return attempt(path, branch) == commit


@check(returns(True))
def branch_is_found():
    """the request itself"""
    return found("main-2")


@check(returns(("failed", True)))
def unknown_branch_is_refused():
    """sp-check-and-capture: no such branch"""
    return refused("no-such-branch")


@check(returns(("failed", True)))
def empty_name_is_refused():
    """sp-check-and-capture: nothing was typed"""
    return refused("")


@check(returns(("failed", True)))
def shell_code_is_refused():
    """sp-argv-not-shell: a name that is a program for a shell"""
    return refused("main; touch pwned; echo $(touch pwned2)")


@check(returns(True))
def odd_name_is_found():
    """sp-argv-not-shell: a branch whose legal name has quotes, a semicolon and a dollar"""
    return found("it's;a'$(x)&")


@check(returns(("failed", True)))
def option_is_refused():
    """sp-end-options: a name that is an option, and one that writes a file"""
    return refused("--output=pwned")


@check(returns(("failed", True)))
def option_with_an_answer_is_refused():
    """sp-end-options: an option that git answers with status 0"""
    return refused("--git-dir")


@check(returns(("failed", True)))
def all_is_refused():
    """sp-end-options: an option that prints the hashes of all branches"""
    return refused("--all")


@check(returns(("failed", True)))
def help_is_refused():
    """sp-end-options: an option of git itself"""
    return refused("-h")


@check(returns("failed") & prints("not a git repository"))
def failure_says_why():
    """sp-check-and-capture: the path is no repository, and git says so on stderr"""
    os.environ["GIT_CEILING_DIRECTORIES"] = os.path.dirname(os.environ["TMPDIR"])
    os.mkdir("elsewhere")
    answer = attempt(os.path.abspath("elsewhere"), "main")
    os.rmdir("elsewhere")
    return answer


@check(returns(True))
def environment_does_not_decide():
    """sp-explicit-env-and-cwd: GIT_DIR names another repository, as in a hook"""
    path, commit = repository("x")
    other, _ = repository(name="other")
    git(other, "commit", "--quiet", "--allow-empty", "--message=second")
    os.environ["GIT_DIR"] = os.path.join(other, ".git")
    return attempt(path, "main") == commit


@check(returns(True))
def branch_with_umlaut_is_found():
    """sp-explicit-text-encoding: a name that is not ASCII"""
    return found("größe")


@check(returns(True))
def locale_does_not_decide():
    """sp-explicit-text-encoding: such a name, and the locale is C"""
    path, commit = repository("größe")
    ask = "import answer, sys; print(answer.last_commit(sys.argv[1], 'gr\\xf6\\xdfe'))"
    done = subprocess.run(
        [sys.executable, "-c", ask, path],
        env={**BESIDE, "LC_ALL": "C", "PYTHONUTF8": "1"}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    return done.stdout.strip() == commit


if __name__ == "__main__":
    main()
