"""A mail server and a web server that keep what they receive, and a certificate for them."""

from __future__ import annotations

import datetime
import ipaddress
import json
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        return int(taken.getsockname()[1])


class Certificate(NamedTuple):
    """`file` is the certificate that a client trusts."""

    file: Path
    for_server: ssl.SSLContext


def make_certificate(folder: Path, addresses: Sequence[str] = (HOST,)) -> Certificate:
    """A self-signed certificate for this host, or for the given addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(each)) for each in addresses]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    file, key_file = folder / "certificate.pem", folder / "key.pem"
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    for_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for_server.load_cert_chain(file, key_file)
    return Certificate(file, for_server)


# --- mail -------------------------------------------------------------------------------------------------------


class MailBox:
    """The received messages, each with its login. `refuse` holds the first answers, one per message."""

    def __init__(self, refuse: Sequence[str] = ()) -> None:
        self.port = free_port()
        self.mails: list[Message] = []
        self.recipients: list[str] = []
        self.encrypted: list[bool] = []
        self.logins: list[tuple[bytes, bytes]] = []
        self._answers = list(refuse)

    async def handle_DATA(self, _server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        if self._answers:
            return self._answers.pop(0)
        assert isinstance(envelope.content, bytes)
        self.mails.append(message_from_bytes(envelope.content))
        self.recipients += envelope.rcpt_tos
        self.encrypted.append(session.ssl is not None)
        return "250 kept"

    def authenticate(self, *given: Any) -> AuthResult:
        data = given[-1]
        assert isinstance(data, LoginPassword)
        self.logins.append((data.login, data.password))
        return AuthResult(success=data.password == b"open sesame", handled=False)


@contextmanager
def mail_server(mode: str, certificate: Certificate | None = None, refuse: Sequence[str] = ()) -> Iterator[MailBox]:
    """`mode` is like the setting `alert_smtp_tls`. An encrypted server requires a login."""
    box = MailBox(refuse)
    login: dict[str, Any] = {"authenticator": box.authenticate, "auth_required": True}
    context = certificate.for_server if certificate else None
    encrypted: dict[str, dict[str, Any]] = {
        "none": {},
        "starttls": {"tls_context": context, "require_starttls": True, **login},
        "tls": {"ssl_context": context, "authenticator": box.authenticate, "auth_require_tls": False},
    }
    controller = Controller(box, hostname=HOST, port=box.port, **encrypted[mode])
    controller.start()
    try:
        yield box
    finally:
        controller.stop()


# --- webhooks ---------------------------------------------------------------------------------------------------


class Post(NamedTuple):
    path: str
    headers: dict[str, str]
    document: dict[str, Any]


class Hook:
    """The received posts. `answers` are the first status codes, then 200."""

    def __init__(self, answers: Sequence[int] = ()) -> None:
        self.posts: list[Post] = []
        self.answers = list(answers)
        self.url = ""
        self.lock = threading.Lock()


@contextmanager
def web_server(answers: Sequence[int] = (), certificate: Certificate | None = None) -> Iterator[Hook]:
    hook = Hook(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with hook.lock:
                hook.posts.append(Post(self.path, dict(self.headers), document))
                status = hook.answers.pop(0) if hook.answers else 200
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", f"{hook.url}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Log nothing."""

    server = ThreadingHTTPServer((HOST, 0), Handler)
    if certificate:
        server.socket = certificate.for_server.wrap_socket(server.socket, server_side=True)
    hook.url = f"{'https' if certificate else 'http'}://{HOST}:{server.server_address[1]}/hooks/s3cr3t-path"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hook
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
