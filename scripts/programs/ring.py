"""A ring of ranks, as in data-parallel training: in each step every rank sends a block to the next
one and waits for that of the one before. Standard library only.

    rocelab run zone-small --on srv1-1 --on srv2-1 -- python3 ring.py --steps 20
"""

import argparse
import os
import socket
import time

PORT = 7000


def main() -> None:
    """Take part as the rank that the environment says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--bytes", type=int, default=400_000, help="of a block")
    options = parser.parse_args()
    rank, servers = int(os.environ["RANK"]), os.environ["SERVERS"].split()
    listener = socket.create_server(("", PORT))
    after = connected(servers[(rank + 1) % len(servers)])
    before, _ = listener.accept()
    for step in range(options.steps):
        began = time.monotonic()
        after.sendall(bytes(options.bytes))
        missing = options.bytes
        while missing:
            piece = before.recv(min(missing, 1 << 16))
            if not piece:
                raise SystemExit("the rank before has ended")
            missing -= len(piece)
        if rank == 0:
            print(f"step {step} took {time.monotonic() - began:.3f} s", flush=True)


def connected(server: str) -> socket.socket:
    """A connection to the next rank, once it listens."""
    while True:
        try:
            return socket.create_connection((server, PORT))
        except OSError:
            time.sleep(0.1)


if __name__ == "__main__":
    main()
