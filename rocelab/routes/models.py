"""The models of how switches choose among equal paths, by name.

It loads nothing, so that `--help` and the shell's completion do not wait for numpy.
"""

from __future__ import annotations

from enum import StrEnum


class Model(StrEnum):
    """What switches choose by: Linux as the lab's scheme sets it, or a CRC of the five-tuple with
    modulo, as switch ASICs do."""

    KERNEL = "kernel"
    CRC16 = "crc16"
    CRC32 = "crc32"
