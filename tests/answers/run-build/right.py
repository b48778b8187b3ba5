import subprocess

from run_tree import run_tree


def run_build(argv, timeout):
    try:
        done = run_tree(
            argv, timeout=timeout, check=True, capture_output=True, encoding="utf-8", errors="backslashreplace"
        )
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"{error}\n{error.stderr}") from error
    return done.stdout
