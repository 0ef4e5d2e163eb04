"""A second address of this machine for a server: forwards the traffic unchanged, encrypted or not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any


class _Forwarder(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@contextmanager
def forwarded(address: tuple[str, int], to: tuple[str, int]) -> Iterator[None]:
    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(to) as upstream:
                back = threading.Thread(target=_pass_on, args=(upstream, self.request), daemon=True)
                back.start()
                _pass_on(self.request, upstream)
                back.join()

    with _Forwarder(address, Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def _pass_on(source: Any, target: Any) -> None:
    """Forward until one side closes the connection, then close the other."""
    with suppress(OSError):
        while received := source.recv(65_536):
            target.sendall(received)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
