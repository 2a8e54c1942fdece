"""The process that mends a lab when the one that broke it is gone.

It waits for the end of its standard input, whose other end the driver holds, and then until nothing
that this driver wrote into the lab's record is left. A driver that could not mend what it broke
leaves it there: once it has ended this process restores it, again and again until nothing remains
or the lab is taken down, which ends it. After an orderly end there is none.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

RETRY_S = 0.5


def main(lab_name: str, record: Path, driver: tuple[int, int]) -> None:
    """Wait for the end of `driver` (`Driver`), then mend what is in the folder `record`."""
    while sys.stdin.buffer.read(1):
        pass
    if not any(record.glob("*.json")):
        return
    # Here and not above: a guardian is started with every driver and mostly has nothing to do.
    from rocelab.faults.injector import restore_recorded
    from rocelab.faults.record import Driver, read_faults
    from rocelab.runtime.lab import Lab
    from rocelab.runtime.record import LabFiles

    parent = Driver(*driver)
    while any(each.driver == parent for each in read_faults(LabFiles(lab_name))):
        if not parent.is_alive:
            try:
                restore_recorded(Lab.running(lab_name), orphans_only=True)
            except Exception:  # noqa: S110 - nobody reads it; what is left is in the record
                pass
            else:
                return
        time.sleep(RETRY_S)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), (int(sys.argv[3]), int(sys.argv[4])))
