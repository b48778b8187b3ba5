"""Pass each argument as an item of a list; never put a value into a shell's command.

With `shell=True`, /bin/sh reads the string as a program: a space, a quote, `;`, `$(` or
a newline in a value is code, and runs with your rights. A list starts the program
itself, and each item arrives as one argument, whatever is in it. A list with
`shell=True` loses its arguments: only the first item is run. `["sh", "-c", f"..."]` is
a shell all the same, as is what ssh runs on the other side.

Scope: a command without values is safe in a shell. To a pipeline, hand a value as
    `"$1"`; `shlex.quote()` is for POSIX shells only. A leading dash still makes an
    option: `sp-end-options`. On Windows, by the documentation, a .bat or .cmd file may
    run in a shell that parses the items: name the real executable, or refuse the
    shell's characters.
Symptom: it breaks on names with a space or a quote; arguments get lost without an
    error. Once the shell alone is dropped: No such file or directory: 'echo hi'
Look for: shell=True, os.system, or "sh", "-c" with an f-string, %, + or format().
Sources: https://docs.python.org/3/library/subprocess.html#security-considerations
    https://github.com/StackStorm/st2/pull/4675
    https://github.com/python/cpython/issues/114539
"""

import shlex
from subprocess import DEVNULL, check_output

from kit import broken, check, fixed, main, raises, returns

PATH = "/srv/notes; echo INJECTED"  # a legal name for a file
POSIX = "the shell there is cmd.exe, which has other rules"


@broken(returns(b"notes\nINJECTED\n"), posix=POSIX)
def value_in_a_shell_string():
    return check_output(f"basename {PATH}", shell=True, timeout=30)


@fixed(returns(b"notes; echo INJECTED\n"), posix=POSIX)
def value_as_an_argument():
    return check_output(["basename", "--", PATH], stdin=DEVNULL, timeout=30)


@broken(returns(b"\n"), posix=POSIX)
def list_with_a_shell():
    return check_output(["echo", "hi"], shell=True)  # "hi" becomes $0


@fixed(returns(b"hi\n"), posix=POSIX)
def list_without_a_shell():
    return check_output(["echo", "hi"], stdin=DEVNULL, timeout=30)


@broken(returns(b"notes\nINJECTED\n"), posix=POSIX)
def value_in_a_pipeline():
    return check_output(["sh", "-c", f"basename {PATH} | sort"])


@fixed(returns(b"notes; echo INJECTED\n"), posix=POSIX)
def value_as_a_parameter_of_the_pipeline():
    argv = ["sh", "-c", 'basename -- "$1" | sort', "sh", PATH]
    return check_output(argv, stdin=DEVNULL, timeout=30)


@check(returns(b"notes; echo INJECTED\n"), posix=POSIX)
def quoted_for_a_posix_shell():
    return check_output(f"basename -- {shlex.quote(PATH)}", shell=True)


@check(raises(FileNotFoundError, "No such file or directory: 'echo hi'"), posix=POSIX)
def string_without_a_shell():
    return check_output("echo hi")


@check(returns(b".\n"), posix=POSIX)
def value_with_a_dash_is_an_option():
    return check_output(["ls", "-d"])  # meant as the name of a file


if __name__ == "__main__":
    main()
