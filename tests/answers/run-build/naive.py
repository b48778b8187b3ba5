import subprocess


def run_build(argv, timeout):
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=True).stdout
