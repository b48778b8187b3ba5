"""Start a child by its full path, with cwd= and env= of your own; inherit none of them.

PATH decides what a bare name runs, PYTHONPATH and the working directory what a Python
child imports, LD_LIBRARY_PATH which libraries it loads. A full path settles the first
program only: that one looks in PATH again. The working directory is the process's, so
any thread can change it before the fork. List what to keep in `env=`: an empty one has
no HOME and no locale. Give Python children `-I`.

Scope: what the user configures by environment gets `{**os.environ, "NAME": "x"}`, less
    what points elsewhere: GIT_DIR in a git hook, the LD_LIBRARY_PATH of a frozen
    program. Windows, by its documentation, looks a bare name up in the parent's PATH,
    and Python needs SystemRoot there.
Symptom: it works in a shell, but not under cron or in CI. A missing `cwd=` looks like a
    missing program: FileNotFoundError: [Errno 2] No such file or directory
Look for: a bare name in argv; no env= or cwd=; os.chdir() in a program with threads.
Sources: https://docs.python.org/3/library/subprocess.html
    https://github.com/pyinstaller/pyinstaller/issues/1759
"""

import contextlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import DEVNULL, CalledProcessError, check_output
from tempfile import TemporaryDirectory

from kit import broken, check, fixed, main, raises, returns

READ = {"stdin": DEVNULL, "encoding": "utf-8", "timeout": 30}
POSIX = "on Windows scripts, PATH and the paths of programs are other ones"
STARTS_DATE = ["/usr/bin/env", "date", "+ours"]
PLANTED_DATE = "#!/bin/sh\necho planted\n"
PLANTED_JSON = "dumps = lambda _: 'planted'\n"
IMPORTS = "import json; print(json.dumps('ours'))"
WHERE = [sys.executable, "-c", "import os; print(os.getcwd())"]
KEPT = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "SystemRoot", "TMPDIR", "TZ")


@broken(raises(CalledProcessError, "returned non-zero exit status 127"), posix=POSIX)
def full_path_alone():
    os.environ["PATH"] = "/nowhere"  # of whoever started us
    return check_output(STARTS_DATE, **READ)


def environment():
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {**kept, "PATH": "/usr/bin:/bin"}


@fixed(returns("ours\n"), posix=POSIX)
def full_path_and_environment():
    os.environ["PATH"] = "/nowhere"
    return check_output(STARTS_DATE, env=environment(), cwd="/", **READ)


@contextlib.contextmanager
def planted(variable, name, text):
    with TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        os.environ[variable] = folder
        yield folder


@broken(returns(["planted\n", "planted\n"]), posix=POSIX)
def run_what_the_path_has():
    with planted("PATH", "date", PLANTED_DATE):
        return [check_output(argv, **READ) for argv in (["date", "+ours"], STARTS_DATE)]


@fixed(returns(["ours\n", "ours\n"]), posix=POSIX)
def run_what_the_given_path_has():
    with planted("PATH", "date", PLANTED_DATE):
        paths = environment(), {}  # without one, the system has one
        return [check_output(["date", "+ours"], env=path, **READ) for path in paths]


@broken(returns(["planted\n", "planted\n"]))
def import_by_variable_and_by_directory():
    argv = [sys.executable, "-c", IMPORTS]
    with planted("PYTHONPATH", "json.py", PLANTED_JSON) as folder:
        ways = {}, {"env": environment(), "cwd": folder}
        return [check_output(argv, **way, **READ) for way in ways]


@fixed(returns(['"ours"\n', '"ours"\n']))
def isolated_python():
    argv = [sys.executable, "-I", "-c", IMPORTS]
    with planted("PYTHONPATH", "json.py", PLANTED_JSON) as folder:
        ways = {}, {"env": environment(), "cwd": folder}
        return [check_output(argv, **way, **READ) for way in ways]


@broken(returns(False))
def directory_left_to_the_process():
    folder = os.getcwd()
    ThreadPoolExecutor(1).submit(os.chdir, os.sep).result()  # as any thread can
    return check_output(WHERE, **READ).strip() == folder


@fixed(returns(True))
def directory_given():
    folder = os.getcwd()  # absolute: true wherever we are by then
    ThreadPoolExecutor(1).submit(os.chdir, os.sep).result()
    return check_output(WHERE, cwd=folder, **READ).strip() == folder


@check(raises(FileNotFoundError, "[Errno 2] No such file or directory: 'missing'"), posix=POSIX)
def missing_directory_looks_like_a_missing_program():
    check_output(WHERE, cwd="missing", **READ)


if __name__ == "__main__":
    main()
