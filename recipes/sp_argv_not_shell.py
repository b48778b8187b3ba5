"""Pass each argument as an item of a list; never put a value into a shell's command.

`shell=True` gives one string to `/bin/sh`, which reads it as a program: a space, a quote,
`;`, `$(` or a newline in a value is code, and runs with your rights. A list starts the
program itself, and each item arrives as one argument, whatever is in it. A list together
with `shell=True` is neither: its first item is the program, the others become the shell's
`$0`, `$1` and so on, which nothing uses. And `["sh", "-c", f"..."]` is a shell all the same,
as is what ssh runs on the other side.

Scope: a command without values is safe in a shell. Where a value must pass through one, for
    a pipeline, hand it over as `"$1"`; `shlex.quote()` is for POSIX shells only. No list
    keeps a value with a leading dash from being an option: `sp-end-options`. On Windows,
    says the documentation, .bat and .cmd files may run in a shell that parses the items of
    a list: start an executable instead.
Symptom: it breaks on names with a space or a quote; arguments get lost without an error.
    Once the shell alone is dropped: No such file or directory: 'echo hi'
Look for: shell=True, os.system, or "sh", "-c" with an f-string, %, + or format().
Sources: https://docs.python.org/3/library/subprocess.html#security-considerations
    https://docs.python.org/3/library/subprocess.html#popen-constructor
    https://github.com/python/cpython/issues/114539
"""

import shlex
import subprocess

from kit import broken, check, fixed, main, raises, returns

PATH = "/srv/notes; echo INJECTED"  # a legal name for a file
POSIX = "the shell there is cmd.exe, which has other rules"


def output_of(command, **options):
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        timeout=30,
        check=True,
        **options,
    ).stdout


@broken(returns("notes\nINJECTED\n"), posix=POSIX)
def value_in_a_shell_string():
    return output_of(f"basename {PATH}", shell=True)


@fixed(returns("notes; echo INJECTED\n"), posix=POSIX)
def value_as_an_argument():
    return output_of(["basename", "--", PATH])


@broken(returns("\n"), posix=POSIX)
def list_with_a_shell():
    return output_of(["echo", "hi"], shell=True)  # "hi" becomes $0


@fixed(returns("hi\n"), posix=POSIX)
def list_without_a_shell():
    return output_of(["echo", "hi"])


@broken(returns("notes\nINJECTED\n"), posix=POSIX)
def value_in_a_pipeline():
    return output_of(["sh", "-c", f"basename {PATH} | sort"])


@fixed(returns("notes; echo INJECTED\n"), posix=POSIX)
def value_as_a_parameter_of_the_pipeline():
    pipeline = 'basename -- "$1" | sort'
    return output_of(["sh", "-c", pipeline, "sh", PATH])


@check(returns("notes; echo INJECTED\n"), posix=POSIX)
def quoted_for_a_posix_shell():
    return output_of(f"basename -- {shlex.quote(PATH)}", shell=True)


@check(raises(FileNotFoundError, "No such file or directory: 'echo hi'"), posix=POSIX)
def string_without_a_shell():
    return output_of("echo hi")


@check(returns(".\n"), posix=POSIX)
def value_with_a_dash_is_an_option():
    return output_of(["ls", "-d"])  # meant as the name of a file


if __name__ == "__main__":
    main()
