"""A trace of one rank of PyTorch's data-parallel training, in the form of Chakra's converter.

It has all difficulties of such traces: every operator is split into two halves, one of which waits
for the other; callers are missing nodes, later nodes, or the node itself, so that control
dependencies form cycles; collectives are three nodes, two launches on the CPU without a size and
one kernel on the GPU; ids have gaps.
"""

from __future__ import annotations

from rocelab.sim.traces.chakra import ChakraNode, CommType, Metadata, NodeKind, Trace

CALLER = 3
"""An id without a node: the converter omits callers."""
CPU_TID, GPU_TID, NCCL_TID = 1, 7, 14
OPERATORS = 170
"""The operators between two collectives, each two halves on the CPU and a kernel on the GPU."""
COLLECTIVES = (
    (CommType.BROADCAST, 212480),
    (CommType.BROADCAST, 424),
    (CommType.ALL_REDUCE, 8196000),
    (CommType.ALL_REDUCE, 31502336),
    (CommType.ALL_REDUCE, 26255360),
    (CommType.ALL_REDUCE, 26550272),
    (CommType.ALL_REDUCE, 9724160),
)
NAMES = {CommType.BROADCAST: "Broadcast", CommType.ALL_REDUCE: "AllReduce"}


def pytorch_trace() -> Trace:
    nodes: list[ChakraNode] = []
    first = 216
    for kind, size in COLLECTIVES:
        kernels: list[int] = []
        for number in range(OPERATORS):
            first += 4
            halves = (first, first + 1)
            caller = first + 5 if number % 3 else CALLER
            nodes += split_operator(
                "aten::op", NodeKind.COMPUTE, halves, caller, _latest(kernels), 3
            )
            before = (first, *_latest(kernels))
            nodes.append(
                _node(
                    first + 2, f"kernel {number}", NodeKind.COMPUTE, first + 1, before, 100, GPU_TID
                )
            )
            kernels.append(first + 2)
        first += 6
        halves = (first, first + 1)
        launches = split_operator(
            f"c10d::{NAMES[kind].lower()}_", NodeKind.COLLECTIVE, halves, first + 1, (), 80
        )
        on_gpu = _node(
            first + 3,
            f"ncclKernel_{NAMES[kind]}_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
            NodeKind.COLLECTIVE,
            first + 1,
            (first, *kernels),
            size // 3000,
            NCCL_TID,
            comm_type=int(kind),
            comm_size=size,
            involved_dim=(True,),
        )
        nodes += [*launches, on_gpu]
    return Trace("rank.0.et", Metadata("", {"schema": "1.0.1", "pid": 1}), tuple(nodes))


def split_operator(
    name: str,
    kind: NodeKind,
    halves: tuple[int, int],
    caller: int,
    after: tuple[int, ...],
    lasts_us: int,
) -> list[ChakraNode]:
    """Both halves of an operator on the CPU."""
    one, two = halves
    return [
        _node(one, f"{name}(0)", kind, caller, after, lasts_us, CPU_TID),
        _node(two, f"{name}(1)", kind, caller, (one, *after), lasts_us, CPU_TID),
    ]


def _latest(kernels: list[int]) -> tuple[int, ...]:
    return tuple(kernels[-1:])


def _node(
    number: int,
    name: str,
    kind: NodeKind,
    caller: int,
    after: tuple[int, ...],
    lasts_us: int,
    tid: int,
    **attrs: int | bool | tuple[bool, ...],
) -> ChakraNode:
    every = {"is_cpu_op": tid == CPU_TID, "tid": tid, **attrs}
    return ChakraNode(number, name, kind, (caller,), after, lasts_us, every)
