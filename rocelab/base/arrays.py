"""Array types of the simulator, named by their content."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint32]
Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NONE = -1
"""Stands for "none" in an array of numbers."""
