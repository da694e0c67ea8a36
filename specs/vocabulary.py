# SPDX-License-Identifier: Apache-2.0
"""The closed words that operation files are written in: element types, data layouts, attribute roles, symbols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Generation = Literal["current", "0.x"]
AttributeKind = Literal["s64", "s64[]", "string"]
ValueRange = Literal["positive", "non-negative"]
Length = Literal["spatial", "weights"]
Role = Literal[
    "strides",
    "pads_begin",
    "pads_end",
    "dilations",
    "auto_pad",
    "output_padding",
    "groups",
    "data_format",
    "weights_format",
    "weights_shape",
]
AutoPad = Literal["none", "same_upper", "same_lower", "valid"]


@dataclass(frozen=True, slots=True)
class ElementType:
    """An element type of tensors: one row here, one header `element_<name>.h` in C, and the type exists everywhere."""

    name: str
    bytes: int
    numpy: str
    """Name of the NumPy scalar type; `ml_dtypes.` in front when NumPy itself has none."""
    torch: str
    sentence: str


ELEMENT_TYPES = (
    ElementType("f32", 4, "float32", "float32", "IEEE 754 binary32"),
    ElementType("bf16", 2, "ml_dtypes.bfloat16", "bfloat16", "bfloat16: the upper half of a binary32"),
    ElementType("f16", 2, "float16", "float16", "IEEE 754 binary16"),
)

SHAPE_TYPES = ("s32",)
"""Integer types that documents name for a shape input (`s32`: 32-bit signed)."""

DATA_LAYOUTS: dict[str, tuple[str, ...]] = {"NCX": ("N", "C", "X"), "NXC": ("N", "X", "C")}
"""Axis order of the two data tensors: N batch, C channels, X all spatial axes."""

SPATIAL_AXES: dict[int, tuple[str, ...]] = {1: ("w",), 2: ("h", "w"), 3: ("d", "h", "w")}
"""Names of the spatial axes for each spatial rank, outermost first."""

CALL_SYMBOLS: dict[str, str] = {
    "N": "batch size",
    "IC": "input channels of the forward operation",
    "OC": "output channels of the forward operation",
    "groups": "number of groups",
}
"""Symbols with one value for a call."""

AXIS_SYMBOLS: dict[str, str] = {
    "I": "spatial size of the forward operation's input",
    "O": "spatial size of the forward operation's output",
    "K": "kernel size",
    "s": "stride",
    "d": "dilation (1: dense)",
    "pb": "padding in front, after auto_pad",
    "pe": "padding behind, after auto_pad",
    "op": "output padding",
}
"""Symbols with one value for each spatial axis."""

_PARAMETERS = {"self", "out", "accumulate", "num_threads", "dtype", "out_dtype"}
_INSIDE_FUNCTIONS = {"attribute", "tensor", "operation", "split_shape", "super"}
RESERVED_PARAMETERS = frozenset(_PARAMETERS | _INSIDE_FUNCTIONS)
"""What no attribute, input or output can be called: generated functions use these names for something else."""

_IMPORTED = {"T", "Sequence", "ClassVar", "TypeVar", "Plan", "WeightsGradient", "SplitShape"}
_DESCRIBING = {"Attribute", "Definition", "Description", "Formula", "Input", "Reading", "Remedy", "Rule"}
_EXPORTED = {"CacheSecurityError", "CompileError", "DTypeError", "SpecError", "GetNumThreads", "SetNumThreads"}
_MODULES = {"Attributes", "Cache", "Commands", "Compiler", "Errors", "Geometry", "Isa", "Kernel", "KernelTable"}
_MORE_MODULES = {"Kernels", "Loader", "Operation", "Operations", "Planner", "Tensors", "Threads", "Vocabulary"}
RESERVED_OPERATIONS = frozenset(_IMPORTED | _DESCRIBING | _EXPORTED | _MODULES | _MORE_MODULES)
"""What no operation can be called: the generated package has other classes, functions and modules of these names."""
