"""`python -m rocelab.runtime.controller LAB SCHEME_JSON READY_FD`: the process that
`start_controller` starts.

It goes on in a child whose parent ends at once, so that nobody has to wait for it.
"""

from __future__ import annotations

import os
import sys

from rocelab.errors import InputError
from rocelab.plan.build import plan
from rocelab.runtime.controller.process import parse_scheme, run_controller
from rocelab.runtime.record import LabFiles, read_record
from rocelab.spec.model import LabSpec


def main() -> None:
    """Plan the fabric of the lab's record and be its controller."""
    lab, scheme, ready_fd = sys.argv[1:]
    record = read_record(lab)
    if record is None:
        raise InputError(f"lab {lab} is not up")
    if os.fork():
        os._exit(0)
    fabric = plan(LabSpec.model_validate(record.spec))
    run_controller(fabric, LabFiles(lab), parse_scheme(scheme), int(ready_fd))


if __name__ == "__main__":
    main()
