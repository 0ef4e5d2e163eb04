"""A real HTTP server that keeps the alerts posted to it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Webhook:
    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        alerts = self.alerts

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                alerts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name is given)
                """Not among the output of the tests."""

        self._server = ThreadingHTTPServer(("localhost", 0), Receiver)
        self.address = f"http://localhost:{self._server.server_address[1]}/alerts"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def about(self, run_id: str) -> list[dict[str, Any]]:
        return [alert for alert in self.alerts if alert["run"] == run_id]
