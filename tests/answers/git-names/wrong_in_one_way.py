import os
import subprocess


def last_commit(repository, branch):
    env = {name: value for name, value in os.environ.items() if name not in ("GIT_DIR", "GIT_WORK_TREE")}
    done = subprocess.run(
        ["git", "-C", repository, "rev-parse", branch],
        env=env, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", timeout=60,
    )  # fmt: skip
    if done.returncode:
        raise ValueError(f"{branch!r} is no branch of {repository}: {done.stderr.strip()}")
    return done.stdout.strip()
