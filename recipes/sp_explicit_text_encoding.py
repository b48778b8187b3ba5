"""Name a child's encoding and what errors do; text=True takes the locale's.

`text=True` decodes by the locale that the parent happens to be in, but most tools write
UTF-8: another locale raises, or makes other characters of it without a word. From 3.15
on the default is UTF-8, unless that is switched off. `errors=` alone switches text mode
on, too, and hides what the locale spoils. Its default, "strict", gives up the whole
output for one bad byte. A child writes in the encoding of its own locale: only `env=`
reaches that, with PYTHONIOENCODING for a Python child.

Scope: bytes need no encoding; text mode turns `\\r\\n` into `\\n`. `encoding="locale"`
    (3.10) asks for the locale's. On Windows that is, by the documentation, the ANSI
    code page; a decoding error there, it is reported, only leaves stdout None.
Symptom: UnicodeDecodeError: 'ascii' codec can't decode byte. Or `cafÃ©` for `café`. In
    the child: UnicodeEncodeError: 'ascii' codec can't encode character.
Look for: text=True, universal_newlines=True or errors= without encoding=. From 3.11 on
    `-X warn_default_encoding` finds them.
Sources: https://docs.python.org/3/library/subprocess.html#frequently-used-arguments
    https://github.com/tmck-code/yet-another-statusline/issues/108
    https://peps.python.org/pep-0686/
"""

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from locale import LC_CTYPE, setlocale
from multiprocessing import get_context
from subprocess import DEVNULL, PIPE, STDOUT, run

from kit import broken, check, fixed, main, raises, returns

READ = {"stdin": DEVNULL, "stdout": PIPE, "timeout": 30}
UTF8 = [sys.executable, "-c", r"open(1, 'wb').write(b'caf\xc3\xa9 \xff\r\n')"]
WRITES = [sys.executable, "-c", "print('caf\\xe9')"]
# LC_ALL=C alone would not do: there Python switches UTF-8 mode on by itself
NOT_UTF8 = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
AT_3 = "'ascii' codec can't decode byte 0xc3 in position 3"
AT_6 = "'utf-8' codec can't decode byte 0xff in position 6"
UNKNOWN = "unknown encoding: locale"
POSIX = "what decides on Windows is the code page, not the locale"


@broken(raises(UnicodeDecodeError, "codec can't decode byte"), posix=POSIX)
def take_the_locale_s():
    setlocale(LC_CTYPE, "C")  # as if it were the user's
    return run(UTF8, text=True, **READ).stdout


@fixed(returns("café \\xff\n"))
def name_encoding_and_errors():
    setlocale(LC_CTYPE, "C")
    return run(UTF8, encoding="utf-8", errors="backslashreplace", **READ).stdout


@check(raises(UnicodeDecodeError, AT_3, until=(3, 14)) | raises(UnicodeDecodeError, AT_6, since=(3, 15)), posix=POSIX)
def utf_8_is_the_default_from_3_15_on():
    setlocale(LC_CTYPE, "C")
    return run(UTF8, text=True, **READ).stdout


def run_in_c_locale(argv, **options):
    os.environ.update(NOT_UTF8)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(run, argv, **options, **READ).result()


@broken(returns("caf\ufffd\ufffd \ufffd\n"), posix=POSIX)
def hide_what_the_locale_spoils():  # on 3.15, too, with UTF-8 mode off
    return run_in_c_locale(UTF8, errors="replace").stdout


@broken(returns("UnicodeEncodeError: 'ascii' codec can't encode character '\\xe9'"), posix=POSIX)
def child_writes_by_its_locale():
    env = {**os.environ, **NOT_UTF8}
    done = run(WRITES, encoding="utf-8", env=env, stderr=STDOUT, **READ)
    return done.stdout.splitlines()[-1].partition(" in position")[0]


@fixed(returns("café\n"))
def child_is_told():
    env = {**os.environ, **NOT_UTF8, "PYTHONIOENCODING": "utf-8"}
    return run(WRITES, encoding="utf-8", env=env, **READ).stdout


@check(raises(UnicodeDecodeError, AT_6))
def one_bad_byte_costs_the_output():  # of names: errors="surrogateescape"
    return run(UTF8, encoding="utf-8", **READ).stdout


@check(returns("cafÃ© ÿ\n"))
def what_a_latin_1_locale_decides():
    return run(UTF8, encoding="latin-1", **READ).stdout


@check(raises(UnicodeDecodeError, AT_3), since=(3, 10), before=raises(LookupError, UNKNOWN), posix=POSIX)
def locale_meant():
    return run_in_c_locale(UTF8, encoding="locale").stdout


@check(returns(b"EncodingWarning: 'encoding' argument not specified."), since=(3, 11), before=returns(b"not found"))
def option_finds_the_calls():
    call = "import subprocess; subprocess.getoutput('echo'); print('not found')"
    warn = ["-X", "warn_default_encoding", "-W", "error::EncodingWarning"]
    argv = [sys.executable, *warn, "-c", call]
    return run(argv, stderr=STDOUT, **READ).stdout.splitlines()[-1]


if __name__ == "__main__":
    main()
