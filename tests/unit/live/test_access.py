"""Who may use the live page: Host, Origin, cookie, key, token; and where its secret is kept."""

from __future__ import annotations

import json
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from rocelab import record
from rocelab.base.errors import InputError, MachineError
from rocelab.live import access
from rocelab.live.access import Access, Guard, opened

ACCESS = Access(801, "the-token")
ORIGIN = "http://127.0.0.1:801"
KEY = {"x-rocelab-key": ACCESS.derived("key")}
COOKIE = {"rocelab-tiny": ACCESS.derived("cookie")}


def guarded(
    base_url: str = ORIGIN, *, read_only: bool = False, terminal: bool = False
) -> TestClient:
    async def answer(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.method)

    async def talk(socket: WebSocket) -> None:
        await socket.accept(subprotocol="rocelab")
        await socket.close()

    routes = [
        Route("/{path:path}", answer, methods=["GET", "POST"]),
        WebSocketRoute("/terminal", talk),
    ]
    app = Starlette(routes=routes)
    guard = Guard(app, ACCESS, "tiny", read_only=read_only, terminal=terminal)
    return TestClient(guard, base_url=base_url, follow_redirects=False)


@pytest.fixture
def client() -> TestClient:
    """A browser that has exchanged the token."""
    client = guarded()
    client.cookies.update(COOKIE)
    return client


def test_the_token_is_exchanged_for_a_cookie_that_no_script_and_no_other_site_gets() -> None:
    client = guarded()
    answer = client.get("/?token=the-token")
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/#{ACCESS.derived('key')}"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "the-token" not in cookie
    assert client.get("/fabric.json").text == "GET"


@pytest.mark.parametrize(
    "url",
    [
        "/",
        "/?token=another",
        "/?token=",
        "/?token=%F0%9F%98%80",
        "/fabric.json",
        "/events?token=the-token",
        "/the-token",
        "/page/../live.json",
    ],
)
def test_without_the_cookie_nothing_is_answered(url: str) -> None:
    answer = guarded().get(url)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_a_wrong_cookie_is_refused(client: TestClient) -> None:
    assert client.get("/", headers={"cookie": "rocelab-tiny=" + "0" * 64}).status_code == 403
    assert client.get("/", headers={b"cookie": b"rocelab-tiny=\xe9"}).status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:801", "localhost:9000", "[::1]:9000"])
def test_a_loopback_name_is_a_host_on_any_port(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:801",
        "127.0.0.1.evil.example",
        "localhost.",
        "127.0.0.1:801@evil.example",
        "127.0.0.2:801",
        "",
    ],
)
def test_any_other_host_is_refused(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 403
    assert guarded().get("/?token=the-token", headers={"host": host}).status_code == 403


def test_a_post_needs_the_origin_of_the_page_and_its_key(client: TestClient) -> None:
    assert client.post("/faults", headers={"origin": ORIGIN, **KEY}).text == "POST"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example", **KEY},
        {"origin": "http://127.0.0.1:802", **KEY},
        {"origin": "https://127.0.0.1:801", **KEY},
        {"origin": "null", **KEY},
        KEY,
        {"origin": ORIGIN},
        {"origin": ORIGIN, "x-rocelab-key": "another"},
        {"origin": ORIGIN, "x-rocelab-key": COOKIE["rocelab-tiny"]},
    ],
)
def test_a_post_of_another_page_or_with_the_cookie_alone_is_refused(
    client: TestClient, headers: dict[str, str]
) -> None:
    assert client.post("/faults", headers=headers).status_code == 403


def test_another_page_may_not_even_read(client: TestClient) -> None:
    assert client.get("/events", headers={"origin": "http://127.0.0.1:802"}).status_code == 403


def test_read_only_refuses_every_post_but_questions() -> None:
    client = guarded(read_only=True)
    client.cookies.update(COOKIE)
    for path in ("/faults", "/scheme", "/reach", "/traffic", "/path/", "/"):
        answer = client.post(path, headers={"origin": ORIGIN, **KEY})
        assert answer.status_code == 403
        assert "--read-only" in answer.text
    for path in ("/path", "/observe"):
        assert client.post(path, headers={"origin": ORIGIN, **KEY}).status_code == 200
        assert client.post(path, headers={"origin": ORIGIN}).status_code == 403
    assert client.get("/").status_code == 200


def test_every_answer_forbids_inline_scripts_and_frames(client: TestClient) -> None:
    for answer in (client.get("/"), guarded().get("/"), guarded().get("/?token=the-token")):
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_a_page_with_terminals_allows_inline_styles_alone() -> None:
    policy = guarded(terminal=True).get("/").headers["content-security-policy"]
    assert policy.replace("style-src 'self' 'unsafe-inline'", "style-src 'self'") == access.POLICY


def terminal_opens(client: TestClient, key: str, **headers: str) -> bool:
    """Whether the client may have a terminal; TestClient sends no Host of its own there."""
    try:
        with client.websocket_connect(
            "/terminal",
            subprotocols=["rocelab", key] if key else None,
            headers={"host": "127.0.0.1:801"} | headers,
        ) as socket:
            return bool(socket.accepted_subprotocol == "rocelab")
    except WebSocketDisconnect:
        return False


def test_a_terminal_needs_what_a_post_needs(client: TestClient) -> None:
    key = ACCESS.derived("key")
    assert terminal_opens(client, key, origin=ORIGIN)
    assert not terminal_opens(client, key)
    assert not terminal_opens(client, key, origin="http://127.0.0.1:802")
    assert not terminal_opens(client, key, origin=ORIGIN, host="evil.example")
    assert not terminal_opens(client, "", origin=ORIGIN)
    assert not terminal_opens(client, COOKIE["rocelab-tiny"], origin=ORIGIN)
    assert not terminal_opens(guarded(), key, origin=ORIGIN)
    read_only = guarded(read_only=True)
    read_only.cookies.update(COOKIE)
    assert not terminal_opens(read_only, key, origin=ORIGIN)


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a lab; ports that need no root."""
    monkeypatch.setattr(record, "RUN_ROOT", tmp_path)
    monkeypatch.setattr(access, "PORTS", range(47_300, 47_340))
    monkeypatch.setattr(access, "_first_unprivileged", lambda: 47_340)
    (tmp_path / "tiny").mkdir()
    yield tmp_path / "tiny"


def test_a_server_that_is_started_again_has_the_same_port_and_token(up: Path) -> None:
    with opened("tiny", None) as (first, listener):
        assert listener.getsockname() == ("127.0.0.1", first.port)
    with opened("tiny", None) as (second, _):
        assert second == first
    file = up / "live.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text()) == {"port": first.port, "token": first.token}


def test_two_labs_have_different_tokens(up: Path) -> None:
    (up.parent / "other").mkdir()
    with opened("tiny", None) as (one, _), opened("other", None) as (other, _):
        assert one.token != other.token
        assert one.port != other.port
        assert len(one.token) >= 43


def test_a_port_that_somebody_else_has_taken_gives_a_new_token(up: Path) -> None:
    with opened("tiny", None) as (first, _):
        pass
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", first.port))
        squatter.listen()
        with opened("tiny", None) as (second, _):
            assert second.port != first.port
            assert second.token != first.token


def free_ports(count: int) -> list[int]:
    """Different ports that nobody listens on now: another test run, or a connection, may have any
    that is written here."""
    with ExitStack() as held:
        numbers = [held.enter_context(socket.socket()) for _ in range(count)]
        for listener in numbers:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in numbers]


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_a_port_that_others_could_have_had_meanwhile_gives_a_new_token(
    up: Path, monkeypatch: pytest.MonkeyPatch, is_asked_for: bool
) -> None:
    (free,) = free_ports(1)
    port, least = (free, free) if is_asked_for else (None, access.PORTS.start)
    monkeypatch.setattr(access, "_first_unprivileged", lambda: least)
    with opened("tiny", port) as (first, _):
        pass
    with opened("tiny", port) as (second, _):
        assert second.token != first.token


def test_another_port_has_another_token(up: Path) -> None:
    one, other = free_ports(2)
    with opened("tiny", one) as (first, _):
        pass
    with opened("tiny", other) as (second, _):
        assert second.token != first.token


def test_a_lab_is_served_once(up: Path) -> None:
    with (
        opened("tiny", None) as (first, _),
        pytest.raises(InputError, match=f"served already on port {first.port}"),
        opened("tiny", None),
    ):
        pass


def test_a_port_that_is_taken_is_an_error(up: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(MachineError, match="cannot be listened on"):
            opened("tiny", other.getsockname()[1]).__enter__()


@pytest.mark.parametrize("left", ['{"port": 47', '{"port": -1, "token": "x"}'])
def test_what_is_no_record_of_a_server_is_no_secret(up: Path, left: str) -> None:
    (up / "live.json").write_text(left)
    with opened("tiny", None) as (record, _):
        assert len(record.token) >= 43


def test_a_link_in_place_of_the_record_is_not_followed(up: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("kept")
    (up / "live.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        opened("tiny", None).__enter__()
    assert (tmp_path / "elsewhere").read_text() == "kept"


def test_a_lab_that_is_not_up_is_not_served(up: Path) -> None:
    with pytest.raises(InputError, match="lab gone is not up"):
        opened("gone", None).__enter__()
