"""Name the encoding of a child's output and what errors do; text=True takes the locale's.

`text=True` decodes by the locale that the parent happens to be in, but what the bytes
mean is up to the child, and most tools write UTF-8. In another locale they raise, or turn
into other characters without a word. From 3.15 on the default is UTF-8, unless that is
switched off. `errors=` alone is worse: it switches text mode on, too, and hides what the
locale spoils. Decide it with the encoding: the default, "strict", gives up the whole
output for one bad byte. None of this reaches the child, which writes in the encoding of
its own locale: to a Python child, PYTHONIOENCODING in `env=` tells another one.

Scope: bytes need no encoding, and text mode also turns `\\r\\n` and `\\r` into `\\n`.
    `encoding="locale"`, from 3.10 on, says that the locale's is meant. Windows, by its
    documentation, has the ANSI code page for it up to 3.14, and another one, "oem", for
    consoles; there, it is reported, a decoding error makes stdout None and raises nothing.
Symptom: UnicodeDecodeError: 'ascii' codec can't decode byte 0xc3 in position 3. Or `cafÃ©`
    for `café`. In the child: UnicodeEncodeError: 'ascii' codec can't encode character.
Look for: text=True, universal_newlines=True or errors= without encoding=. From 3.11 on
    `-X warn_default_encoding` finds them.
Sources: https://docs.python.org/3/library/subprocess.html#frequently-used-arguments
    https://github.com/tmck-code/yet-another-statusline/issues/108
    https://peps.python.org/pep-0540/
    https://peps.python.org/pep-0597/
    https://peps.python.org/pep-0686/
"""

import locale
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from subprocess import DEVNULL, PIPE, STDOUT, run

from kit import broken, check, fixed, main, raises, returns

READ = {"stdin": DEVNULL, "stdout": PIPE, "timeout": 30}
UTF8 = [sys.executable, "-c", "open(1, 'wb').write(b'caf\\xc3\\xa9\\r\\n')"]
LATIN1 = [sys.executable, "-c", "open(1, 'wb').write(b'caf\\xe9\\n')"]
WRITES = [sys.executable, "-c", "print('caf\\xe9')"]
# LC_ALL=C alone would not do: there Python switches UTF-8 mode on by itself
NOT_UTF8 = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
POSIX = "what decides on Windows is the code page, not the locale"


def run_in_c_locale(argv, **options):
    """run() in a new Python, whose locale is not one of UTF-8."""
    os.environ.update(NOT_UTF8)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(run, argv, **options, **READ).result()


@broken(raises(UnicodeDecodeError, "'ascii' codec can't decode byte 0xc3 in position 3"), posix=POSIX)
def locale_decides():
    return run_in_c_locale(UTF8, text=True).stdout


@broken(returns("caf\ufffd\ufffd\n"), posix=POSIX)
def locale_decides_and_errors_are_hidden():
    return run_in_c_locale(UTF8, errors="replace").stdout


@fixed(returns("café\n"))
def encoding_named():
    return run_in_c_locale(UTF8, encoding="utf-8", errors="strict").stdout


@broken(raises(UnicodeDecodeError, "'utf-8' codec can't decode byte 0xe9 in position 3"))
def one_bad_byte_costs_the_output():
    return run(LATIN1, encoding="utf-8", **READ).stdout


@fixed(returns("caf\\xe9\n"))
def errors_decided():
    show = "backslashreplace"  # for file names, "surrogateescape"
    return run(LATIN1, encoding="utf-8", errors=show, **READ).stdout


@broken(returns("UnicodeEncodeError: 'ascii' codec can't encode character '\\xe9'"), posix=POSIX)
def child_writes_by_its_locale():
    env = {**os.environ, **NOT_UTF8}
    done = run(WRITES, encoding="utf-8", env=env, stderr=STDOUT, **READ)
    return done.stdout.splitlines()[-1].partition(" in position")[0]


@fixed(returns("café\n"))
def child_is_told():
    env = {**os.environ, **NOT_UTF8, "PYTHONIOENCODING": "utf-8"}
    return run(WRITES, encoding="utf-8", env=env, **READ).stdout


@check(
    raises(UnicodeDecodeError, "'ascii' codec can't decode byte 0xc3", until=(3, 14))
    | returns("café\n", since=(3, 15)),
    posix=POSIX,
)
def default_encoding():
    locale.setlocale(locale.LC_CTYPE, "C")  # not UTF-8, and never missing
    return run(UTF8, text=True, **READ).stdout


@check(returns("cafÃ©\n"))
def what_a_latin_1_locale_decides():
    return run(UTF8, encoding="latin-1", **READ).stdout


@check(
    raises(UnicodeDecodeError, "'ascii' codec can't decode byte 0xc3"),
    since=(3, 10),
    before=raises(LookupError, "unknown encoding: locale"),
    posix=POSIX,
)
def locale_meant():
    return run_in_c_locale(UTF8, encoding="locale").stdout


TEXT_CALL = """\
import subprocess, sys
subprocess.run([sys.executable, "-V"], stdout=subprocess.PIPE, text=True)
print("not found")
"""


@check(
    returns("EncodingWarning: 'encoding' argument not specified."),
    since=(3, 11),
    before=returns("not found"),
)
def option_finds_the_calls():
    warn = ["-X", "warn_default_encoding", "-W", "error::EncodingWarning"]
    argv = [sys.executable, *warn, "-c", TEXT_CALL]
    done = run(argv, encoding="utf-8", stderr=STDOUT, **READ)
    return done.stdout.splitlines()[-1]


if __name__ == "__main__":
    main()
