"""Start a child by its full path, with cwd= and env= of your own; inherit none of them.

PATH decides what a bare name runs, PYTHONPATH and the working directory what a Python
child imports, LD_LIBRARY_PATH which libraries it loads. All come from whoever started the
parent. A full path settles the first program only: what that one starts is looked up in
PATH again. The working directory belongs to the process, so any thread can change it
just before the fork. Build `env=` from the names that you keep: an empty one has neither
HOME nor a locale. `-I` makes a Python child ignore PYTHON* and the working directory.

Scope: what the user configures through the environment gets `{**os.environ, "NAME": "x"}`,
    less the LD_LIBRARY_PATH that a frozen program (PyInstaller) has set for itself. POSIX
    looks a bare name up in the PATH of `env=`; Windows, by its documentation, in the
    parent's. A Python child without SystemRoot is reported to die at startup there.
Symptom: it works in a shell, not under cron, in CI or in a frozen program. A missing
    `cwd=` looks like a missing program: FileNotFoundError: [Errno 2] No such file or
    directory, and only the name behind it tells which.
Look for: a bare name in argv; no env= or cwd=; os.chdir() in a program with threads.
Sources: https://docs.python.org/3/library/subprocess.html#popen-constructor
    https://docs.python.org/3/using/cmdline.html#cmdoption-I
    https://github.com/python/cpython/issues/105889
    https://github.com/pyinstaller/pyinstaller/issues/1759
    https://github.com/PrefectHQ/prefect/issues/4923
"""

import contextlib
import os
import sys
import tempfile
import threading
from pathlib import Path
from subprocess import DEVNULL, check_output

from kit import broken, check, fixed, main, raises, returns

READ = {"stdin": DEVNULL, "encoding": "utf-8", "timeout": 30}
POSIX = "on Windows scripts, PATH and the paths of programs are other ones"
STARTS_DATE = ["/usr/bin/env", "date", "+ours"]
PLANTED_DATE = "#!/bin/sh\necho planted\n"
PLANTED_JSON = "dumps = lambda _: 'planted'\n"
IMPORTS = "import json; print(json.dumps('ours'))"
WHERE = [sys.executable, "-c", "import os; print(os.getcwd())"]
KEPT = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "SystemRoot", "TMPDIR", "TZ")


def environment():
    """What a child needs of our environment, and nothing that redirects it."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {**kept, "PATH": "/usr/bin:/bin"}


@contextlib.contextmanager
def planted(variable, name, text):
    """Puts a file into a new directory, and that in front of the variable."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        folders = [folder, *filter(None, [os.environ.get(variable)])]
        os.environ[variable] = os.pathsep.join(folders)
        yield folder


@broken(returns("planted\n"), posix=POSIX)
def bare_name():
    with planted("PATH", "date", PLANTED_DATE):
        return check_output(["date", "+ours"], **READ)


@broken(returns("planted\n"), posix=POSIX)
def full_path_alone():
    with planted("PATH", "date", PLANTED_DATE):
        return check_output(STARTS_DATE, **READ)


@fixed(returns("ours\n"), posix=POSIX)
def full_path_and_environment():
    with planted("PATH", "date", PLANTED_DATE):
        return check_output(STARTS_DATE, env=environment(), **READ)


@broken(returns("planted\n"))
def python_by_its_full_path():
    argv = [sys.executable, "-c", IMPORTS]
    with planted("PYTHONPATH", "json.py", PLANTED_JSON):
        return check_output(argv, **READ)


@broken(returns("planted\n"))
def environment_alone():
    argv = [sys.executable, "-c", IMPORTS]  # looks in the directory first
    with planted("PYTHONPATH", "json.py", PLANTED_JSON) as folder:
        return check_output(argv, env=environment(), cwd=folder, **READ)


@fixed(returns('"ours"\n'))
def isolated_python():
    argv = [sys.executable, "-I", "-c", IMPORTS]
    with planted("PYTHONPATH", "json.py", PLANTED_JSON) as folder:
        return check_output(argv, env=environment(), cwd=folder, **READ)


def move_away():
    """What any thread may do at any time, for the whole process."""
    thread = threading.Thread(target=os.chdir, args=(os.sep,))
    thread.start()
    thread.join()


@broken(returns(False))
def directory_left_to_the_process():
    folder = os.getcwd()
    move_away()
    where = check_output(WHERE, **READ)
    return where.strip() == folder


@fixed(returns(True))
def directory_given():
    folder = os.getcwd()  # absolute: true wherever we are by then
    move_away()
    where = check_output(WHERE, cwd=folder, **READ)
    return where.strip() == folder


@check(returns(("ours\n", "ours\n")), posix=POSIX)
def bare_name_is_looked_up_in_the_childs_path():
    with planted("PATH", "date", PLANTED_DATE):
        given = check_output(["date", "+ours"], env=environment(), **READ)
        default = check_output(["date", "+ours"], env={}, **READ)
    return given, default


@check(raises(FileNotFoundError, "[Errno 2] No such file or directory: 'missing'"), posix=POSIX)
def missing_directory_looks_like_a_missing_program():
    check_output(WHERE, cwd="missing", **READ)


if __name__ == "__main__":
    main()
