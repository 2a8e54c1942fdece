"""Array types of the simulator: what the numbers of an array are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint32]
Longs = npt.NDArray[np.int64]

NONE = -1
"""In an array of numbers: there is none."""
