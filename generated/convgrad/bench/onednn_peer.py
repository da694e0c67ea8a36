# SPDX-License-Identifier: Apache-2.0
"""oneDNN's graph operation, called through its C API: `pip install onednn-cpu-gomp==2023.2.0` (oneDNN 3.2) brings it.

The package has no headers, so the few declarations needed stand below. What the library cannot do, `check_supported`
names beforehand: there it would end the process.
"""

from __future__ import annotations

import ctypes.util
import functools
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.bench.clock import Times, load_clock, time_in_c
from convgrad.bench.contender import UnavailableError
from convgrad.bench.operands import Operands
from convgrad.bench.operation import transposed_weights_format
from convgrad.bench.problem import Shape

VARIABLE = "CONVGRAD_LIBDNNL"
"""Names another library than the one of this Python environment."""

_DECLARATIONS = """
typedef int64_t dims[12];
typedef struct {
    size_t id;
    int ndims;
    dims extents;
    int data_type;
    int property;
    int layout_type;
    union { dims strides; size_t layout_id; } layout;
} logical_tensor;
typedef struct { int major; int minor; int patch; const char *hash; unsigned cpu_runtime, gpu_runtime; } version;

const version *dnnl_version(void);
int dnnl_engine_create(void **engine, int kind, size_t index);
int dnnl_stream_create(void **stream, void *engine, unsigned flags);
int dnnl_stream_wait(void *stream);
int dnnl_graph_logical_tensor_init_with_strides(logical_tensor *tensor, size_t id, int dtype, int32_t ndims,
    const int64_t *extents, const int64_t *strides, int property);
int dnnl_graph_op_create(void **op, size_t id, int kind, const char *name);
int dnnl_graph_op_destroy(void *op);
int dnnl_graph_op_add_input(void *op, const logical_tensor *input);
int dnnl_graph_op_add_output(void *op, const logical_tensor *output);
int dnnl_graph_op_set_attr_s64(void *op, int name, const int64_t *value, size_t count);
int dnnl_graph_op_set_attr_str(void *op, int name, const char *value, size_t length);
int dnnl_graph_graph_create(void **graph, int engine_kind);
int dnnl_graph_graph_destroy(void *graph);
int dnnl_graph_add_op(void *graph, void *op);
int dnnl_graph_graph_finalize(void *graph);
int dnnl_graph_graph_filter(void *graph, int policy);
int dnnl_graph_graph_get_partition_num(void *graph, size_t *count);
int dnnl_graph_graph_get_partitions(void *graph, size_t count, void **partitions);
int dnnl_graph_partition_destroy(void *partition);
int dnnl_graph_partition_is_supported(void *partition, uint8_t *supported);
int dnnl_graph_compiled_partition_create(void **compiled, void *partition);
int dnnl_graph_compiled_partition_destroy(void *compiled);
int dnnl_graph_partition_compile(void *partition, void *compiled, size_t in_num, const logical_tensor **inputs,
    size_t out_num, const logical_tensor **outputs, void *engine);
int dnnl_graph_tensor_create(void **tensor, const logical_tensor *logical, void *engine, void *handle);
int dnnl_graph_tensor_destroy(void *tensor);
int dnnl_graph_compiled_partition_execute(const void *compiled, void *stream, size_t num_inputs, const void **inputs,
    size_t num_outputs, const void **outputs);
"""

_CPU, _IN_ORDER, _FUSION, _PROPERTY_UNDEFINED = 1, 1, 1, 0
_DATA_TYPES = {"f16": 1, "bf16": 2, "f32": 3}
# Places in dnnl_graph_op_kind_t and dnnl_graph_op_attr_t of version 3.
_CONVOLUTION, _TRANSPOSED = 15, 18
_ATTRIBUTES = {
    "groups": 0x32, "dilations": 0x41, "pads_begin": 0x46, "pads_end": 0x47, "strides": 0x4B, "weights_shape": 0x4C,
    "data_format": 0x83, "weights_format": 0x87,
}  # fmt: skip
_MAJOR = 3


class _Library:
    """The loaded library, with an engine and a stream for the whole process."""

    def __init__(self, path: str) -> None:
        from cffi import FFI  # type: ignore[import-untyped, unused-ignore]

        self.ffi = FFI()
        self.ffi.cdef(_DECLARATIONS)
        # RTLD_LOCAL: torch carries another version of the same symbols.
        self.lib = self.ffi.dlopen(path, self.ffi.RTLD_NOW | self.ffi.RTLD_LOCAL)
        found = self.lib.dnnl_version()
        self.version = f"{found.major}.{found.minor}.{found.patch}"
        if found.major != _MAJOR:
            raise UnavailableError(f"version {self.version}, not {_MAJOR}")
        self.engine = self.make("engine_create", _CPU, 0)
        self.stream = self.make("stream_create", self.engine, _IN_ORDER)

    def call(self, name: str, *arguments: object) -> None:
        """Call dnnl_<name>. Raises UnavailableError for a status other than 0."""
        if status := getattr(self.lib, f"dnnl_{name}")(*arguments):
            raise UnavailableError(f"refused: {name}, status {status}")

    def make(self, name: str, *arguments: object) -> Any:
        """Call dnnl_<name>, whose first argument takes the address of what it makes; return that."""
        slot = self.ffi.new("void **")
        self.call(name, slot, *arguments)
        return slot[0]

    def address(self, name: str) -> int:
        """The address of dnnl_<name>."""
        return int(self.ffi.cast("uintptr_t", self.ffi.addressof(self.lib, f"dnnl_{name}")))


@functools.cache
def load_library() -> _Library:
    """The library that CONVGRAD_LIBDNNL names, else this environment's, else the system's.

    Raises UnavailableError if there is none.
    """
    named = os.environ.get(VARIABLE)
    installed = Path(sys.prefix, "lib", "libdnnl.so.3")
    found = [named] if named else [str(installed) if installed.exists() else None, ctypes.util.find_library("dnnl")]
    for path in found:
        if path is not None:
            try:
                return _Library(path)
            except (OSError, AttributeError) as error:
                raise UnavailableError(f"cannot be loaded: {error}") from error
    raise UnavailableError("not installed")


def find_version() -> str | None:
    """The version of oneDNN, None if it is not installed."""
    try:
        return load_library().version
    except UnavailableError:
        return None


def check_supported(operands: Operands, cpu_flags: frozenset[str]) -> None:
    """Raise UnavailableError where oneDNN 3.2 is known to end the process."""
    if operands.dtype == "f16" and not cpu_flags & {"avx512_fp16", "amx_fp16", "fphp", "asimdhp"}:
        raise UnavailableError("f16 needs a CPU with f16 arithmetic")
    if operands.transposed:
        _, extra = operands.problem.transposed_pads()
        if any(more >= stride for more, stride in zip(extra, operands.problem.strides, strict=True)):
            raise UnavailableError("output_padding of a stride or more")


class OneDnnGradient:
    """A graph of one operation, compiled once, executed in a loop in C."""

    def __init__(self, operands: Operands, cpu_flags: frozenset[str]) -> None:
        library = self._library = load_library()
        check_supported(operands, cpu_flags)
        self._operands = operands
        self._held: list[tuple[str, Any]] = []
        self._out = operands.make_out()
        inputs = (operands.dst, operands.src) if operands.transposed else (operands.src, operands.dst)
        arrays = [*inputs, self._out]
        logical = [self._describe(number, array.shape) for number, array in enumerate(arrays)]
        partition = self._make_partition(logical)
        self._compiled = self._hold("graph_compiled_partition", partition)
        shapes = [library.ffi.new("logical_tensor *[]", chosen) for chosen in (logical[:2], logical[2:])]
        library.call("graph_partition_compile", partition, self._compiled, 2, shapes[0], 1, shapes[1], library.engine)
        tensors = [
            self._hold("graph_tensor", tensor, library.engine, library.ffi.cast("void *", array.ctypes.data))
            for tensor, array in zip(logical, arrays, strict=True)
        ]
        self._inputs, self._outputs = (library.ffi.new("void *[]", chosen) for chosen in (tensors[:2], tensors[2:]))
        self.remark = f"graph operation of oneDNN {library.version}"

    def _hold(self, kind: str, *arguments: object) -> Any:
        made = self._library.make(f"{kind}_create", *arguments)
        self._held.append((kind, made))
        return made

    def _describe(self, number: int, shape: Shape) -> Any:
        library = self._library
        tensor = library.ffi.new("logical_tensor *")
        steps = [int(step) for step in np.cumprod((1, *shape[:0:-1]))[::-1]]
        library.call(
            "graph_logical_tensor_init_with_strides",
            tensor, number, _DATA_TYPES[self._operands.dtype], len(shape), list(shape), steps, _PROPERTY_UNDEFINED,
        )  # fmt: skip
        return tensor

    def _make_partition(self, logical: list[Any]) -> Any:
        library, operands = self._library, self._operands
        problem = operands.problem
        node = self._hold("graph_op", 1, _TRANSPOSED if operands.transposed else _CONVOLUTION, b"gradient")
        for tensor in logical[:2]:
            library.call("graph_op_add_input", node, tensor)
        library.call("graph_op_add_output", node, logical[2])
        numbers = {
            "strides": problem.strides,
            "dilations": problem.dilations,
            "pads_begin": problem.pads_begin,
            # The transposed operation takes output_padding from the shape of diff_dst.
            "pads_end": problem.transposed_pads()[0] if operands.transposed else problem.pads_end,
            "groups": (problem.groups,),
            "weights_shape": operands.weights_shape,
        }
        for name, values in numbers.items():
            library.call("graph_op_set_attr_s64", node, _ATTRIBUTES[name], list(values), len(values))
        weights_format = operands.weights_format
        if operands.transposed:
            weights_format = transposed_weights_format(weights_format)
        for name, word in (("data_format", operands.data_format), ("weights_format", weights_format)):
            library.call("graph_op_set_attr_str", node, _ATTRIBUTES[name], word.encode(), len(word) + 1)
        graph = self._hold("graph_graph", _CPU)
        library.call("graph_add_op", graph, node)
        library.call("graph_graph_finalize", graph)
        library.call("graph_graph_filter", graph, _FUSION)
        count = library.ffi.new("size_t *")
        library.call("graph_graph_get_partition_num", graph, count)
        if count[0] != 1:
            raise UnavailableError(f"refused: {count[0]} partitions for one operation")
        slot = library.ffi.new("void *[1]")
        library.call("graph_graph_get_partitions", graph, 1, slot)
        self._held.append(("graph_partition", slot[0]))
        supported = library.ffi.new("uint8_t *")
        library.call("graph_partition_is_supported", slot[0], supported)
        if not supported[0]:
            raise UnavailableError("refused: unsupported")
        return slot[0]

    def measure(self, repeats: int) -> Times:
        """Time executions, each finished before the next begins."""
        _, lib = load_clock()
        library, cast = self._library, self._library.ffi.cast
        handles = (self._compiled, library.stream, self._inputs, self._outputs)
        return time_in_c(
            lib.wgrad_clock_onednn,
            library.address("graph_compiled_partition_execute"), library.address("stream_wait"),
            *(int(cast("uintptr_t", handle)) for handle in handles), repeats=repeats,
        )  # fmt: skip

    def gradient(self) -> NDArray[np.float64]:
        """What it wrote."""
        return self._operands.canonical(self._out)

    def __del__(self) -> None:
        for kind, handle in reversed(self.__dict__.get("_held", ())):
            getattr(self._library.lib, f"dnnl_{kind}_destroy")(handle)
