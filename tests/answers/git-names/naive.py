import subprocess


def last_commit(repository, branch):
    return subprocess.check_output(["git", "rev-parse", branch], cwd=repository, text=True).strip()
