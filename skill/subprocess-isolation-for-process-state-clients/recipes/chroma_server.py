"""`chroma run` as long as a `with` block lasts, for tests and benchmarks. Copy this file.

    with chroma_server("db") as (client, pid):
        client.list_collections()

It listens on this machine only, on a port that was free, and without authentication. In production let what supervises
your services run it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def chroma_server(path: str, timeout: float = 60) -> Iterator[tuple[Any, int]]:
    """An HttpClient of a server that owns `path`, and the server's process id. Raises TimeoutError, or
    ChildProcessError when the server ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    chroma = os.path.join(os.path.dirname(sys.executable), "chroma")
    argv = [chroma, "run", "--path", path, "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as child:
        try:
            yield _connect(child, port, time.monotonic() + timeout), child.pid
        finally:
            child.kill()


def _connect(child: subprocess.Popen[bytes], port: int, until: float) -> Any:
    import chromadb

    while time.monotonic() < until:
        with contextlib.suppress(ValueError):  # what it raises when nobody listens
            return chromadb.HttpClient("127.0.0.1", port, settings=chromadb.Settings(anonymized_telemetry=False))
        if child.poll() is not None:
            raise ChildProcessError(f"chroma run ended with status {child.returncode}")
        time.sleep(0.02)
    raise TimeoutError("chroma run did not answer in time")
