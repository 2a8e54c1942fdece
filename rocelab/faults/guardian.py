"""The process that restores a lab when the process that broke it is gone.

It waits for the end of its standard input, whose other end the driver holds, and then until no
fault of this driver is left in the lab's record. A driver that could not restore a fault leaves it
there: once the driver has ended, this process tries to restore it until nothing remains but faults
whose package is gone, or until the lab is taken down, which ends this process. After an orderly end
nothing is left to do.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

RETRY_S = 0.5


def main(lab_name: str, record: Path, driver: tuple[int, int]) -> None:
    """Wait for the end of `driver` (`Driver`), then restore its faults in the folder `record`."""
    while sys.stdin.buffer.read(1):
        pass
    if not any(record.glob("*.json")):
        return
    # Imported here: a guardian is started with every driver and mostly has nothing to do.
    from rocelab.faults.injector import restore_recorded
    from rocelab.faults.lost import LostSpec
    from rocelab.faults.record import Driver, read_faults
    from rocelab.lab.lab import RunningLab
    from rocelab.record import LabFiles

    parent = Driver(*driver)
    while any(
        fault.driver == parent and not isinstance(fault.spec, LostSpec)
        for fault in read_faults(LabFiles(lab_name))
    ):
        if not parent.is_alive:
            try:
                restore_recorded(RunningLab.open(lab_name), orphans_only=True)
            except Exception:  # noqa: S110 - nobody reads it; what is left is in the record
                pass
            else:
                return
        time.sleep(RETRY_S)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), (int(sys.argv[3]), int(sys.argv[4])))
