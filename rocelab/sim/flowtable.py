"""Writes what each queue pair sent, transfer by transfer, as a table.

The file is CSV or Parquet, by its extension. It has a row for the bytes of one step on one queue
pair, with the times when they began and were over.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rocelab.base.errors import InputError, MachineError
from rocelab.base.outputs import OutputFile, output_file
from rocelab.sim.engine.completion import transfers_over_s
from rocelab.sim.figures import NS, transfer_times

if TYPE_CHECKING:
    from rocelab.sim.engine.program import Outcome
    from rocelab.sim.simulate import Simulation

CSV, PARQUET = ".csv", ".parquet"


def flow_file(path: Path, *, overwrite: bool) -> OutputFile:
    """The file of a table, before the simulation runs. Raises InputError for another extension and
    as `output_file`, MachineError if Parquet cannot be written."""
    file = output_file(path, overwrite=overwrite)
    if path.suffix not in (CSV, PARQUET):
        raise InputError(
            f"--flows: {path.name} is neither .csv nor .parquet",
            hint="end the name in .csv or .parquet",
        )
    if path.suffix == PARQUET:
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise MachineError(
                "pyarrow, which writes Parquet, is not installed",
                "install it with `pip install 'rocelab[sweep]'`, or name a .csv file",
            ) from None
    return file


def write_flows(runs: Sequence[tuple[Simulation, Outcome]], file: OutputFile) -> None:
    """Write the table of simulations, of several networks one after the other. Raises InputError if
    it cannot be written."""
    tables = [_columns(simulation, outcome) for simulation, outcome in runs]
    columns = {name: [cell for table in tables for cell in table[name]] for name in tables[0]}
    if file.path.suffix == CSV:
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))
        file.write(text.getvalue())
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = io.BytesIO()
    pq.write_table(pa.table(columns), data)
    file.write(data.getvalue())


def _columns(simulation: Simulation, outcome: Outcome) -> dict[str, list[Any]]:
    """start_ns: when the transfer's step began to send; over_ns, slowdown: empty if it never was
    over; slowdown also where sends are merged."""
    compiled, program, network = simulation.compiled, simulation.program, simulation.network
    task = np.repeat(np.arange(program.tasks), np.diff(program.first_transfer))
    flows, flow = simulation.flows, program.flow
    names = [network.nic_name(nic) for nic in range(network.nics)]
    over_ns = (transfers_over_s(program, outcome) * NS).tolist()
    slowdown = transfer_times(simulation, outcome).slowdown
    slowdown[simulation.is_merged[compiled.job[task]]] = np.inf
    start_ns = (outcome.start_s[task] * NS).tolist()
    job, step = compiled.job[task].tolist(), compiled.step[task].tolist()
    return {
        "job": [simulation.jobs[number].name for number in job],
        "iteration": [
            simulation.workloads[number].steps[index].iteration
            for number, index in zip(job, step, strict=True)
        ],
        "step": [
            simulation.workloads[number].steps[index].name
            for number, index in zip(job, step, strict=True)
        ],
        "source": [names[nic] for nic in flows.source[flow].tolist()],
        "destination": [names[nic] for nic in flows.destination[flow].tolist()],
        "source_port": flows.sport[flow].tolist(),
        "dest_qp": flows.dest_qp[flow].tolist(),
        "payload_bytes": compiled.payload_bytes.tolist(),
        "wire_bytes": (program.size_bits / 8).astype(np.int64).tolist(),
        "start_ns": [None if np.isinf(value) else value for value in start_ns],
        "over_ns": [None if np.isinf(value) else value for value in over_ns],
        "slowdown": [None if np.isinf(value) else value for value in slowdown.tolist()],
    }
