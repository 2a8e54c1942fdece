"""Decides who may use a lab's live page, on a machine whose other users are hostile.

The page is served on loopback, where everybody on the machine reaches it, so each request has to
prove itself:

- `Host` is a loopback name, on any port since a tunnel changes it. A page elsewhere that rebinds
  its DNS name to 127.0.0.1 sends its own name.
- A cookie, which the URL with the token is exchanged for. Browsers send a cookie to every port of a
  host, so a hostile server on another port of this machine may learn it; it can read with it.
- To change something also `Origin`, equal to `Host`, and a key that the browser keeps for this very
  port (localStorage) and the page sends as a header.

Cookie and key are derived from the token. It is kept with the port in the lab's folder, for root
alone, so that a server that is started again is the same page.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import random
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from errno import EADDRINUSE
from pathlib import Path

from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from rocelab.base.errors import InputError, MachineError
from rocelab.record import LabFiles, not_up

ADDRESS = "127.0.0.1"
NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""What a browser may call this machine: a tunnel from another one may begin on IPv6."""
PORTS = range(700, 989)
"""Ports on which only root may listen (ip(7), ip_unprivileged_port_start) and to which browsers
connect: another user cannot replace a server that has ended and collect what browsers send it."""
KEY_HEADER = "x-rocelab-key"
MOST_BYTES = 4096
READ_ONLY_POSTS = frozenset({"/path", "/observe"})
"""What may be posted to a page that is read-only: questions about a flow."""

POLICY = (
    "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TERMINAL_POLICY = POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
"""xterm.js makes style elements."""
HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""The headers of every answer."""


@dataclass(frozen=True, slots=True)
class Access:
    """The port of a lab's page and the secret of those who may use it."""

    port: int
    token: str

    @property
    def url(self) -> str:
        """The URL that opens the page for the first time. It has the token."""
        return f"http://{ADDRESS}:{self.port}/?token={self.token}"

    def derived(self, purpose: str) -> str:
        """A secret for one purpose, from which the token cannot be computed."""
        return hmac.new(self.token.encode(), purpose.encode(), hashlib.sha256).hexdigest()


@contextmanager
def opened(lab: str, port: int | None) -> Iterator[tuple[Access, socket.socket]]:
    """Listen for the page of a lab that is up: on `port`, by default on the same as last time.

    Another port than last time is found by itself if something else listens there. The token is a
    new one then, and after ports on which other users may have listened meanwhile: browsers may
    have given what it opens to whoever that is. Raises InputError while another process serves this
    lab; MachineError if there is no port to listen on.
    """
    descriptor = _open(lab)
    try:
        last = _read(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            where = f" on port {last.port}" if last else ""
            raise InputError(
                f"lab {lab} is served already{where}",
                hint="open the URL that the other `rocelab live` printed, or end that one",
            ) from None
        kept = last if last and last.port < _first_unprivileged() else None
        listener = _listener(port, kept)
        with listener:
            taken: int = listener.getsockname()[1]
            is_same = kept is not None and taken == kept.port
            token = kept.token if kept and is_same else secrets.token_urlsafe(32)
            access = Access(taken, token)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(asdict(access)).encode(), 0)
            yield access, listener
    finally:
        os.close(descriptor)


def _open(lab: str) -> int:
    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(LabFiles(lab).root / "live.json", flags, 0o600)
    except FileNotFoundError:
        raise not_up(lab) from None


def _read(descriptor: int) -> Access | None:
    """What the last server wrote; None if there was none, or it was killed while it wrote."""
    try:
        document = json.loads(os.pread(descriptor, MOST_BYTES, 0))
        last = Access(int(document["port"]), str(document["token"]))
    except (ValueError, KeyError, TypeError):
        return None
    return last if 0 < last.port < 2**16 else None


def _first_unprivileged() -> int:
    """The first port on which users other than root may listen; containers often have 0."""
    return int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())


def _listener(port: int | None, last: Access | None) -> socket.socket:
    if port is not None:
        try:
            return _bound(port)
        except OSError as error:
            raise MachineError(
                f"port {port} cannot be listened on: {error.strerror}", hint="take another --port"
            ) from None
    for number in (*([last.port] if last else ()), *_shuffled(PORTS)):
        try:
            return _bound(number)
        except PermissionError:
            break
        except OSError as error:
            if error.errno != EADDRINUSE:
                raise
    raise MachineError(
        f"none of the ports {PORTS.start} to {PORTS.stop - 1} can be listened on",
        hint="name a port that is free: --port 8700",
    )


def _shuffled(ports: Sequence[int]) -> list[int]:
    return random.SystemRandom().sample(ports, len(ports))


def _bound(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # A port that the last server has just left is free.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((ADDRESS, port))
        listener.listen()
    except BaseException:
        listener.close()
        raise
    return listener


class Guard:
    """Passes on the requests of those who may use the page, and refuses all others with 403.

    A WebSocket is a terminal: it needs what a POST needs, with the key as its last subprotocol,
    since browsers let pages choose no other header of it.
    """

    def __init__(
        self, app: ASGIApp, access: Access, lab: str, *, read_only: bool, terminal: bool = False
    ) -> None:
        self._app = app
        self._token = access.token
        self._cookie = access.derived("cookie")
        self._key = access.derived("key")
        # One browser may look at several labs, and has one set of cookies for all ports.
        self._cookie_name = f"rocelab-{lab}"
        self._read_only = read_only
        policy = TERMINAL_POLICY if terminal else POLICY
        self._headers = [
            (name.lower().encode(), value.encode())
            for name, value in {**HEADERS, "Content-Security-Policy": policy}.items()
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers]
            await send(message)

        if scope["type"] == "websocket":
            wrong = self._wrong_change(HTTPConnection(scope), scope["subprotocols"][-1:])
            await (WebSocketClose() if wrong else self._app)(scope, receive, send)
        elif scope["type"] == "http":
            answer = self._answer(Request(scope)) or self._app
            await answer(scope, receive, send_with_headers)

    def _answer(self, request: Request) -> Response | None:
        """The answer to a request that is not passed on."""
        if request.method not in ("GET", "HEAD"):
            wrong = self._wrong_change(request, request.headers.getlist(KEY_HEADER))
            return _refused(wrong) if wrong else None
        wrong = _wrong_place(request, has_origin=False)
        if wrong is not None:
            return _refused(wrong)
        token = request.query_params.get("token")
        if token is not None and request.url.path == "/" and request.method == "GET":
            return self._exchanged(token)
        wrong = self._wrong_cookie(request)
        return _refused(wrong) if wrong else None

    def _wrong_change(self, connection: HTTPConnection, keys: Sequence[str]) -> str | None:
        """Why a request, which came with these keys, may not change anything."""
        wrong = _wrong_place(connection, has_origin=True) or self._wrong_cookie(connection)
        if wrong is not None:
            return wrong
        if self._read_only and connection.url.path not in READ_ONLY_POSTS:
            return "this page is served with --read-only"
        if not (len(keys) == 1 and _same(keys[0], self._key)):
            return "open the URL that `rocelab live` printed once more: the key is wrong"
        return None

    def _wrong_cookie(self, connection: HTTPConnection) -> str | None:
        if _same(connection.cookies.get(self._cookie_name, ""), self._cookie):
            return None
        return "open the URL that `rocelab live` printed in this browser first"

    def _exchanged(self, token: str) -> Response:
        if not _same(token, self._token):
            return _refused("the token is wrong: use the URL that `rocelab live` printed last")
        # The part after # stays in the browser: no server and no Referer ever gets it.
        answer = RedirectResponse(f"/#{self._key}", status_code=303)
        answer.set_cookie(
            self._cookie_name, self._cookie, path="/", httponly=True, samesite="strict"
        )
        return answer


def _wrong_place(request: HTTPConnection, *, has_origin: bool) -> str | None:
    """Why a request cannot be of the page itself, by its Host and Origin; `has_origin`: whether
    browsers always send that."""
    hosts = request.headers.getlist("host")
    if len(hosts) != 1:
        return "a request has one Host"
    name, colon, port = hosts[0].rpartition(":")
    if not (colon and port.isascii() and port.isdigit()):
        name = hosts[0]
    if name not in NAMES:
        return "this page has the names localhost and 127.0.0.1 only"
    origins = request.headers.getlist("origin")
    if not origins and not has_origin:
        return None
    return None if origins == [f"http://{hosts[0]}"] else "another page may not ask for this"


def _same(secret: str, reference: str) -> bool:
    """Whether a secret is right, in the same time whatever is wrong with it."""
    return hmac.compare_digest(secret.encode("utf-8", "replace"), reference.encode())


def _refused(why: str) -> Response:
    # Whoever may not use the page holds no connection either.
    return PlainTextResponse(f"{why}\n", status_code=403, headers={"Connection": "close"})
