"""Other traffic on a lab, as of programs of its user: sockets of the kernel in its servers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle

from rocelab.lab.lab import RunningLab
from rocelab.linux import namespaces
from tests.helpers.waiting import LIMIT_S

PORT = 5201
_FLOWS = 16


def connected(lab: RunningLab, client: str, server: str) -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection between the first NICs of two servers, the client's first."""

    def listen() -> socket.socket:
        return socket.create_server((lab.fabric.nics(server)[0].ip, 0))

    with namespaces.inside(lab.node(server).netns, listen) as listener:
        near = namespaces.inside(
            lab.node(client).netns,
            lambda: socket.create_connection(listener.getsockname(), LIMIT_S),
        )
        far, _ = listener.accept()
    return near, far


@contextmanager
def typing(lab: RunningLab, client: str, server: str) -> Iterator[None]:
    """An ssh-like connection in the meantime: some bytes, their echo, and a pause."""
    near, far = connected(lab, client, server)
    stop = threading.Event()

    def type_on() -> None:
        while not stop.wait(0.02):
            near.sendall(b"ls -l --all")
            far.sendall(far.recv(64))
            near.recv(64)

    with near, far, _running(stop, type_on):
        yield


@contextmanager
def flooded(lab: RunningLab, clients: list[str], server: str) -> Iterator[None]:
    """UDP of class 0 in the meantime, as fast as the clients' NICs send, over all paths."""
    stop = threading.Event()

    def udp() -> socket.socket:
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    address = (lab.fabric.nics(server)[0].ip, PORT)

    def flood(client: str) -> None:
        with ExitStack() as opened:
            senders = [
                opened.enter_context(namespaces.inside(lab.node(client).netns, udp))
                for _ in range(_FLOWS)
            ]
            for sender in cycle(senders):
                if stop.is_set():
                    return
                sender.sendto(bytes(8000), address)

    with _running(stop, *(partial(flood, client) for client in clients)):
        yield


@contextmanager
def _running(stop: threading.Event, *works: Callable[[], None]) -> Iterator[None]:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
