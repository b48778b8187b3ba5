"""Answer on a descriptor that only the worker has, and let standard output be a log.

What runs in a worker may print: a banner, a progress bar, a child, C code. On descriptor
1 that ends up in the answer; redirecting sys.stdout catches only what Python prints. So
keep a copy of 1 for answers, which dup() makes not inheritable, and turn 1 into 2.

Scope: multiprocessing's pipes and futures are such a channel already. Where others read
    the program's output, this is not for it.
Symptom: JSONDecodeError "Extra data" now and then. It comes with a
    library's update, a warning, or a download's progress bar; the answer itself is right.
Look for: print(json.dumps(...)) or json.dump(..., sys.stdout) in what a parent reads;
    redirect_stdout around code that starts children.
Sources: https://docs.python.org/3/library/os.html#os.dup2
    https://docs.python.org/3/library/contextlib.html#contextlib.redirect_stdout
"""

import json
import subprocess
import sys

from kit import broken, check, fixed, main, raises, returns

NOISE = """
import subprocess, sys
def answer():
    print("Loading ...", flush=True)
    subprocess.run([sys.executable, "-c", "print('from a child')"])
    return 42
"""
ON_STDOUT = """
import json, sys
json.dump(answer(), sys.stdout)
"""
REDIRECTED = """
import contextlib, json, sys
with contextlib.redirect_stdout(sys.stderr):
    found = answer()
json.dump(found, sys.stdout)
"""
PRIVATE = """
import json, os
reply = os.dup(1)  # not inheritable: no child has it
os.dup2(2, 1)  # what is printed goes to the log
with open(reply, "w", encoding="utf-8") as file:
    json.dump(answer(), file)
"""


def ask(worker):
    child = subprocess.run(
        [sys.executable, "-c", worker],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
    )
    return json.loads(child.stdout), child.stderr.decode().split("\n")


@broken(raises(json.JSONDecodeError, "Expecting value"))
def answer_among_prints():
    return ask(NOISE + ON_STDOUT)


@broken(raises(json.JSONDecodeError, "Expecting value"))
def redirect_what_python_prints():
    return ask(NOISE + REDIRECTED)


@fixed(returns((42, ["Loading ...", "from a child", ""])))
def answer_apart():
    return ask(NOISE + PRIVATE)


@check(returns([False, True]))
def only_the_copy_is_not_inherited():
    code = "import os; print([os.get_inheritable(each) for each in (os.dup(1), 1)])"
    child = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE)
    return json.loads(child.stdout.lower())


if __name__ == "__main__":
    main()
