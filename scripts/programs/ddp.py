"""Data-parallel training of a small model with PyTorch over Gloo, a line for each step.

    rocelab run zone-small --on srv1-1 --on srv2-1 -- /usr/bin/python3 ddp.py --steps 20

Debian's package is python3-torch, for the system's own interpreter.
"""

import argparse
import time

import torch
from torch import distributed, nn


def main() -> None:
    """Train as the rank that the environment says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    layers = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    model = nn.parallel.DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(options.steps):
        began = time.monotonic()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(torch.randn(32, 256)), torch.randint(0, 10, (32,)))
        loss.backward()
        optimizer.step()
        if rank == 0:
            took = time.monotonic() - began
            print(f"step {step} took {took:.3f} s, loss {loss.item():.3f}", flush=True)
    distributed.barrier()


if __name__ == "__main__":
    main()
