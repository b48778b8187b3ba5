"""Put `--` before values, ./ before names; refuse a dash where a program knows no `--`.

A value needs no shell to become code: what begins with a dash is an option, and options
write files (`sort -o`), read others (`grep -f`) or start programs (`ssh -o`,
`git --upload-pack`). After `--` most take operands only; but `-` is still stdin, and
find knows no `--`. A pattern is safe behind `-e`. A URL chooses by its scheme: file:,
or git's `ext::`, which runs a command. Allow one, rather than forbid some.

Scope: not for your own constants. For git, `--` begins the paths: end its options with
    `--end-of-options`. ./ does not stop `../`. On Windows, by the documentation, a .bat
    or .cmd file is run by cmd.exe: `sp-argv-not-shell`.
Symptom: sort: invalid option -- 'x'. For a file that exists. Or no error, and a command
    that does what nobody asked for.
Look for: a list with `name`, `url`, `pattern` or *names, and neither "--" nor a check.
Sources: https://pubs.opengroup.org/onlinepubs/9699919799/basedefs/V1_chap12.html
    https://git-scm.com/docs/gitcli
    https://github.com/gitpython-developers/GitPython/issues/1515
"""

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, check_output, run

from kit import broken, check, fixed, leaves, main, raises, returns

NAME = "-oother"  # a legal name; to sort it means: write to `other`
READ_URL = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())"
FETCH = [sys.executable, "-c", READ_URL]
POSIX = "the programs are those of a POSIX system"


@contextmanager
def file_named(name):
    with open(name, "w") as file:
        file.write("b\na\n")
    yield
    os.remove(file.name)


@broken(returns(b"") & leaves(files=1), posix=POSIX)
def name_is_an_option():
    with file_named(NAME):
        return check_output(["sort", NAME], stdin=DEVNULL, timeout=30)


def sort_file(name):
    path = os.path.join(".", name)  # or "-" would be stdin
    return check_output(["sort", "--", path], stdin=DEVNULL, timeout=30)


@fixed(returns(b"a\nb\n"), posix=POSIX)
def name_is_a_file():
    with file_named(NAME):
        return sort_file(NAME)


@broken(returns(b".\n"), linux="how another system's find takes `--` was not measured")
def some_know_no_end_of_options():
    return check_output(["find", "--", "-prune"], stdin=DEVNULL, timeout=30)


def operand(value):
    if value.startswith("-"):
        raise ValueError(f"an option, where a value belongs: {value!r}")
    return value


@fixed(raises(ValueError, "an option, where a value belongs: '-prune'"))
def dash_is_refused():
    return check_output(["find", operand("-prune")], stdin=DEVNULL, timeout=30)


@broken(returns([b"b", b"a"]))
def any_scheme():
    with file_named("secret"):
        url = Path("secret").resolve().as_uri()
        return check_output([*FETCH, url], stdin=DEVNULL, timeout=60).split()


def https_url(url):
    if not url.startswith("https://"):  # nor is it an option then
        raise ValueError(f"not an https URL: {url!r}")
    return url


@fixed(raises(ValueError, "not an https URL: 'file:///etc/passwd'"))
def one_scheme():
    return check_output([*FETCH, https_url("file:///etc/passwd")], stdin=DEVNULL, timeout=60)


@check(returns((b"stdin", b"a\nb\n", b"a\nb\n")), posix=POSIX)
def dash_alone_is_stdin_unless_it_has_a_directory():
    with file_named("-"):
        stdin = check_output(["cat", "--", "-"], input=b"stdin", timeout=30)
        return stdin, sort_file("-"), sort_file(os.path.abspath("-"))


@check(returns((b"b\n", b"-fsome\n")), posix=POSIX)
def pattern_is_an_option_unless_it_follows_e():
    argvs = ["grep", "-fsome"], ["grep", "-e", "-fsome"]
    with file_named("some"):
        return tuple(check_output(argv, input=b"b\n-fsome\n", timeout=30) for argv in argvs)


@check(returns((2, b"sort: invalid option -- 'x'")), linux="the message is that of glibc")
def unknown_option_is_refused():
    options = {"env": {**os.environ, "LC_ALL": "C"}, "stdin": DEVNULL, "timeout": 30}
    done = run(["sort", "-x"], stderr=PIPE, **options)
    return done.returncode, done.stderr.splitlines()[0]


if __name__ == "__main__":
    main()
