"""An HTTP server on rank 0 and clients on the other ranks, each of which asks for an object at
fixed times. A request counts from when it was due, as one that a user sends: what waits behind a
slow one is late too. Standard library only.

    rocelab run zone-small -- python3 http_load.py --requests 100
"""

import argparse
import http.client
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 8080


def main() -> None:
    """Serve or ask, as the rank that the environment says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=300, help="of each client")
    parser.add_argument("--interval", type=float, default=0.02, help="seconds between two")
    parser.add_argument("--bytes", type=int, default=10_000, help="of the object")
    options = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank == 0:
        serve(options.bytes, world - 1)
    else:
        ask(os.environ["SERVERS"].split()[0], options.requests, options.interval)


def serve(size: int, clients: int) -> None:
    """Answer until every client has said that it is done."""
    done = threading.Semaphore(0)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # a client keeps its connection
        disable_nagle_algorithm = True  # else the object waits for the ACK of its header

        def do_GET(self) -> None:
            body = b"" if self.path == "/done" else bytes(size)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            if self.path == "/done":
                done.release()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("", PORT), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for _ in range(clients):
            done.acquire()
        server.shutdown()


def ask(server: str, requests: int, interval: float) -> None:
    """Send the requests, and print how long each took."""
    connection = connected(server)
    begin = time.monotonic()
    for number in range(requests):
        due = begin + number * interval
        time.sleep(max(0.0, due - time.monotonic()))
        get(connection, "/object")
        print(f"request {number} took {time.monotonic() - due:.4f} s", flush=True)
    get(connection, "/done")


def get(connection: http.client.HTTPConnection, path: str) -> None:
    """Ask for an object, and read it."""
    connection.request("GET", path)
    connection.getresponse().read()


def connected(server: str) -> http.client.HTTPConnection:
    """A connection to the server, once it listens."""
    while True:
        connection = http.client.HTTPConnection(server, PORT)
        try:
            connection.connect()
        except OSError:
            time.sleep(0.1)
        else:
            return connection


if __name__ == "__main__":
    main()
