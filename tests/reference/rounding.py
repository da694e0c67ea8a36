# SPDX-License-Identifier: Apache-2.0
"""Correct rounding of float64 to the three element types, once, to nearest even.

A cast to bfloat16 may pass through float32 and round twice, so the result is computed here from the definition of
the format.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reference.geometries import DTYPES

# (bits of the significand with the implicit one, exponent of the smallest normal number, largest exponent)
_FORMATS = {"f32": (24, -126, 127), "bf16": (8, -126, 127), "f16": (11, -14, 15)}


def correctly_rounded(values: npt.NDArray[np.float64], dtype: str) -> npt.NDArray[Any]:
    """``values`` as an array of the dtype; what lies beyond the largest finite value by half a unit or more becomes
    infinite.
    """
    precision, smallest, largest = _FORMATS[dtype]
    _, exponent = np.frexp(values)  # |values| in [2**(exponent - 1), 2**exponent)
    unit = np.maximum(exponent - 1, smallest) - (precision - 1)
    finite = np.isfinite(values)
    rounded = np.where(finite, np.ldexp(np.rint(np.ldexp(np.where(finite, values, 0.0), -unit)), unit), values)
    overflow = np.abs(rounded) >= np.ldexp(1.0, largest + 1)
    rounded = np.where(overflow & finite, np.copysign(np.inf, rounded), rounded)
    # Exact by now, so no later cast rounds again.
    return rounded.astype(np.float32).astype(DTYPES[dtype])
