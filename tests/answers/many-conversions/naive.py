import subprocess
from concurrent.futures import ThreadPoolExecutor


def convert(argv):
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def convert_all(commands):
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(convert, commands))
