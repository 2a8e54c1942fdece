"""The time of MPI_Allreduce of one size, as osu_allreduce of the OSU Micro-Benchmarks measures it,
but line by line and without barriers: what a fault did to each is seen, and no wait goes uncounted.
Needs OpenMPI and mpi4py (Debian: openmpi-bin, python3-mpi4py).

    rocelab run zone-small --on srv1-1 -- \\
        mpirun --host srv1-1,srv2-1,srv3-1,srv4-1 /usr/bin/python3 osu_allreduce.py
"""

import argparse
import array

from mpi4py import MPI


def main() -> None:
    """Reduce again and again; rank 0 prints how long each took it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=100_000, help="of the message")
    parser.add_argument("--iterations", type=int, default=60)
    options = parser.parse_args()
    world = MPI.COMM_WORLD
    sent = array.array("f", [1.0]) * (options.bytes // 4)
    received = array.array("f", [0.0]) * len(sent)
    world.Barrier()
    began = MPI.Wtime()
    for iteration in range(options.iterations):
        world.Allreduce([sent, MPI.FLOAT], [received, MPI.FLOAT], op=MPI.SUM)
        began, took = MPI.Wtime(), MPI.Wtime() - began
        if received[-1] != world.Get_size():
            raise SystemExit(f"the sum is {received[-1]}, not {world.Get_size()}")
        if world.Get_rank() == 0:
            print(f"iteration {iteration}: {options.bytes} bytes in {took:.4f} s", flush=True)


if __name__ == "__main__":
    main()
