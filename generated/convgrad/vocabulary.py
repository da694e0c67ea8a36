# SPDX-License-Identifier: Apache-2.0
# Generated from the specifications and templates/python/vocabulary.py.j2.
# Do not edit: `python -m codegen generate` writes it again.
"""The words that operations are specified in, as far as the run time needs them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

NUMPY_DTYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
}
"""Element types as NumPy knows them."""

TORCH_DTYPES: dict[str, str] = {
    "f32": "float32",
    "bf16": "bfloat16",
    "f16": "float16",
}
"""Names of the element types in torch."""

DATA_LAYOUTS: dict[str, tuple[str, ...]] = {
    "NCX": ("N", "C", "X"),
    "NXC": ("N", "X", "C"),
}
"""Axis order of data tensors: N batch, C channels, X the spatial axes."""

SPATIAL_AXES: dict[int, tuple[str, ...]] = {
    1: ("w",),
    2: ("h", "w",),
    3: ("d", "h", "w",),
}
"""Names of the spatial axes for each spatial rank."""
