"""`python -m rocelab.runtime.controller LAB SCHEME_JSON PID_FILE READY_FD`: the process that
`start_controller` starts."""

from __future__ import annotations

import sys

from rocelab.errors import InputError
from rocelab.kernel.background import serving
from rocelab.plan.build import plan
from rocelab.runtime.controller.process import parse_scheme, run_controller
from rocelab.runtime.record import LabFiles, read_record
from rocelab.spec.model import LabSpec


def main() -> None:
    """Plan the fabric of the lab's record and be its controller."""
    lab, scheme, *found_by = sys.argv[1:]
    record = read_record(lab)
    if record is None:
        raise InputError(f"lab {lab} is not up")
    with serving(*found_by) as ready:
        fabric = plan(LabSpec.model_validate(record.spec))
        run_controller(fabric, LabFiles(lab), parse_scheme(scheme), ready)


if __name__ == "__main__":
    main()
