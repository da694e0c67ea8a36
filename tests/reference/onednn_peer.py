# SPDX-License-Identifier: Apache-2.0
"""oneDNN's own graph operations, called through its C API: the implementation that the documents describe.

The library comes from the package ``onednn-cpu-gomp`` (libdnnl.so, without headers), so the few declarations needed
stand below, as of version 3.2, and cffi loads it in ABI mode. A graph of one operation is compiled once
(``OneDnnGradient``) and executed any number of times on the caller's arrays, without copies.

What the library does otherwise than the documents, by observation:
 * its transposed operation lays grouped weights out as (IC, OC / G, K...); document 002 says (IC / G, OC, K...);
 * it refuses output_padding and takes the additional rows from the delta's shape;
 * it accepts auto_pad in capitals only (but for None);
 * the weights_shape input does not work, the attribute does;
 * for a transposed convolution with SAME padding it pads as if for a convolution, from the input's size: the
   gradient is silently wrong when a stride does not divide the input;
 * in bf16 it leaves elements unwritten whose taps meet only padding, and gets some taps wrong when a stride is larger
   than the filter; beyond that one of 2,600 random bf16 problems came out wrong without a pattern that we know;
 * its 3-D operations are now and then wrong in most elements, once with values beyond 1e29, when the dilated filter is
   deeper than the tensor it slides over (PyTorch agrees with the sum as written);
 * it ends the process (an exception out of a C function) where it cannot build its primitive: output_padding of a
   stride or more, and every f16 problem on a processor without f16 arithmetic.
``exclusion`` names these. There it is no oracle, and tests count what they leave out.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import functools
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import cffi
import numpy as np
import numpy.typing as npt

from reference.geometries import DTYPES, Problem

Tensor = npt.NDArray[Any]

_DECLARATIONS = """
typedef int dnnl_status_t;
typedef int64_t dnnl_dims_t[12];
typedef struct dnnl_engine *dnnl_engine_t;
typedef struct dnnl_stream *dnnl_stream_t;
typedef struct dnnl_graph_op *dnnl_graph_op_t;
typedef struct dnnl_graph_graph *dnnl_graph_graph_t;
typedef struct dnnl_graph_partition *dnnl_graph_partition_t;
typedef struct dnnl_graph_compiled_partition *dnnl_graph_compiled_partition_t;
typedef struct dnnl_graph_tensor *dnnl_graph_tensor_t;
typedef struct {
    size_t id;
    int ndims;
    dnnl_dims_t dims;
    int data_type;
    int property;
    int layout_type;
    union { dnnl_dims_t strides; size_t layout_id; } layout;
} dnnl_graph_logical_tensor_t;
typedef struct { int major; int minor; int patch; const char *hash; unsigned cpu_runtime, gpu_runtime; } dnnl_version_t;

const dnnl_version_t *dnnl_version(void);
dnnl_status_t dnnl_engine_create(dnnl_engine_t *engine, int kind, size_t index);
dnnl_status_t dnnl_engine_destroy(dnnl_engine_t engine);
dnnl_status_t dnnl_stream_create(dnnl_stream_t *stream, dnnl_engine_t engine, unsigned flags);
dnnl_status_t dnnl_stream_wait(dnnl_stream_t stream);
dnnl_status_t dnnl_stream_destroy(dnnl_stream_t stream);
dnnl_status_t dnnl_graph_logical_tensor_init_with_strides(dnnl_graph_logical_tensor_t *tensor, size_t id, int dtype,
    int32_t ndims, const int64_t *dims, const int64_t *strides, int property);
dnnl_status_t dnnl_graph_op_create(dnnl_graph_op_t *op, size_t id, int kind, const char *name);
dnnl_status_t dnnl_graph_op_destroy(dnnl_graph_op_t op);
dnnl_status_t dnnl_graph_op_add_input(dnnl_graph_op_t op, const dnnl_graph_logical_tensor_t *input);
dnnl_status_t dnnl_graph_op_add_output(dnnl_graph_op_t op, const dnnl_graph_logical_tensor_t *output);
dnnl_status_t dnnl_graph_op_set_attr_s64(dnnl_graph_op_t op, int name, const int64_t *value, size_t count);
dnnl_status_t dnnl_graph_op_set_attr_str(dnnl_graph_op_t op, int name, const char *value, size_t length);
dnnl_status_t dnnl_graph_graph_create(dnnl_graph_graph_t *graph, int engine_kind);
dnnl_status_t dnnl_graph_graph_destroy(dnnl_graph_graph_t graph);
dnnl_status_t dnnl_graph_add_op(dnnl_graph_graph_t graph, dnnl_graph_op_t op);
dnnl_status_t dnnl_graph_graph_finalize(dnnl_graph_graph_t graph);
dnnl_status_t dnnl_graph_graph_filter(dnnl_graph_graph_t graph, int policy);
dnnl_status_t dnnl_graph_graph_get_partition_num(dnnl_graph_graph_t graph, size_t *count);
dnnl_status_t dnnl_graph_graph_get_partitions(dnnl_graph_graph_t graph, size_t count,
    dnnl_graph_partition_t *partitions);
dnnl_status_t dnnl_graph_partition_destroy(dnnl_graph_partition_t partition);
dnnl_status_t dnnl_graph_partition_is_supported(dnnl_graph_partition_t partition, uint8_t *supported);
dnnl_status_t dnnl_graph_compiled_partition_create(dnnl_graph_compiled_partition_t *compiled,
    dnnl_graph_partition_t partition);
dnnl_status_t dnnl_graph_compiled_partition_destroy(dnnl_graph_compiled_partition_t compiled);
dnnl_status_t dnnl_graph_partition_compile(dnnl_graph_partition_t partition, dnnl_graph_compiled_partition_t compiled,
    size_t in_num, const dnnl_graph_logical_tensor_t **inputs, size_t out_num, const dnnl_graph_logical_tensor_t
    **outputs, dnnl_engine_t engine);
dnnl_status_t dnnl_graph_tensor_create(dnnl_graph_tensor_t *tensor, const dnnl_graph_logical_tensor_t *logical,
    dnnl_engine_t engine, void *handle);
dnnl_status_t dnnl_graph_tensor_set_data_handle(dnnl_graph_tensor_t tensor, void *handle);
dnnl_status_t dnnl_graph_tensor_destroy(dnnl_graph_tensor_t tensor);
dnnl_status_t dnnl_graph_compiled_partition_execute(dnnl_graph_compiled_partition_t compiled, dnnl_stream_t stream,
    size_t num_inputs, dnnl_graph_tensor_t *inputs, size_t num_outputs, dnnl_graph_tensor_t *outputs);
"""

_STATUS = {
    1: "out of memory",
    2: "invalid arguments",
    3: "unimplemented",
    4: "last implementation reached",
    5: "runtime error",
    6: "not required",
    7: "invalid graph",
    8: "invalid graph operation",
    9: "invalid shape",
    10: "invalid data type",
}
_REFUSALS = (3, 7, 8)

_CPU = 1
_IN_ORDER_STREAM = 1
_POLICY_FUSION = 1
_PROPERTY_UNDEFINED = 0
_DATA_TYPES = {"f16": 1, "bf16": 2, "f32": 3}
# Positions in the enumeration dnnl_graph_op_kind_t.
_OP_KINDS = {"ConvolutionBackwardWeights": 15, "ConvTransposeBackwardWeights": 18}
_ATTRIBUTES = {
    "groups": 0x32,
    "dilations": 0x41,
    "pads_begin": 0x46,
    "pads_end": 0x47,
    "strides": 0x4B,
    "weights_shape": 0x4C,
    "auto_pad": 0x81,
    "data_format": 0x83,
    "weights_format": 0x87,
}


class PeerMissingError(ImportError):
    """No libdnnl with the graph API can be loaded; the text says where it was looked for."""


class PeerError(RuntimeError):
    """A call of oneDNN's failed; the text names the call and its status."""


class PeerRefusedError(PeerError):
    """oneDNN does not implement this problem: an answer, not an accident. Callers count these."""


class _Library:
    """The loaded library, one CPU engine and one in-order stream for the whole process."""

    def __init__(self, path: str) -> None:
        self.ffi = cffi.FFI()
        self.ffi.cdef(_DECLARATIONS)
        # RTLD_LOCAL: PyTorch carries another version of the same symbols.
        self.lib = self.ffi.dlopen(path, self.ffi.RTLD_NOW | self.ffi.RTLD_LOCAL)
        version = self.lib.dnnl_version()
        self.version = (int(version.major), int(version.minor), int(version.patch))
        self.path = path
        engine, stream = self.ffi.new("dnnl_engine_t *"), self.ffi.new("dnnl_stream_t *")
        self.check("dnnl_engine_create", self.lib.dnnl_engine_create(engine, _CPU, 0))
        self.engine = engine[0]
        self.check("dnnl_stream_create", self.lib.dnnl_stream_create(stream, self.engine, _IN_ORDER_STREAM))
        self.stream = stream[0]

    def check(self, call: str, status: int) -> None:
        if status:
            text = (
                f"{call}: status {status} ({_STATUS.get(status, 'unknown')}), oneDNN {'.'.join(map(str, self.version))}"
            )
            raise PeerRefusedError(text) if status in _REFUSALS else PeerError(text)


@functools.cache
def load_library() -> _Library:
    """The library named by CONVGRAD_TEST_LIBDNNL, or the environment's own, or the system's.

    Raises PeerMissingError.
    """
    named = os.environ.get("CONVGRAD_TEST_LIBDNNL")
    installed = Path(sys.prefix, "lib", "libdnnl.so.3")
    candidates = (
        [named] if named else [str(installed) if installed.exists() else None, ctypes.util.find_library("dnnl")]
    )
    tried = []
    for candidate in candidates:
        if candidate is None:
            continue
        try:
            return _Library(candidate)
        except (OSError, AttributeError) as error:
            tried.append(f"{candidate}: {error}")
    raise PeerMissingError(
        f"no libdnnl: install onednn-cpu-gomp==2023.2.0 (looked for {installed}; {'; '.join(tried) or 'nothing else'})"
    )


def exclusion(problem: Problem) -> str | None:
    """Why oneDNN 3.2 is no oracle for this problem (each reason observed, see the module's text), or None where it
    is one.
    """
    extra = problem.output_padding or (0,) * problem.rank
    if problem.words.transposed:
        if problem.auto_pad.lower().startswith("same") and any(
            extent % stride for extent, stride in zip(problem.input_extents, problem.strides, strict=True)
        ):
            return "transposed SAME, the input is no multiple of the stride"
        if any(more >= stride for more, stride in zip(extra, problem.strides, strict=True)):
            return "output_padding of a stride or more"
    if problem.dtype == "bf16":
        effective = [(k - 1) * d + 1 for k, d in zip(problem.kernel, problem.dilations, strict=True)]
        if problem.empty_taps:
            return "bf16 with taps that meet only padding"
        if any(stride > extent for stride, extent in zip(problem.strides, effective, strict=True)):
            return "bf16 with a stride larger than the filter"
    if problem.rank == 3 and (problem.kernel[0] - 1) * problem.dilations[0] >= problem.windowed_extents[0]:
        return "3-D, the filter is deeper than what it slides over"
    return None


class OneDnnGradient:
    """One compiled graph operation. ``execute`` runs it on C-contiguous arrays of exactly the shapes given here.

    ``op`` is ConvolutionBackwardWeights or ConvTransposeBackwardWeights; shapes are in ``data_format``,
    ``weights_shape`` in ``weights_format`` (the library's layout); ``dtype`` is f32, bf16 or f16. Raises
    PeerRefusedError for what oneDNN does not implement.
    """

    def __init__(
        self,
        op: str,
        source_shape: Sequence[int],
        delta_shape: Sequence[int],
        weights_shape: Sequence[int],
        *,
        dtype: str,
        strides: Sequence[int],
        pads_begin: Sequence[int],
        pads_end: Sequence[int],
        dilations: Sequence[int],
        auto_pad: str,
        groups: int,
        data_format: str,
        weights_format: str,
    ) -> None:
        self._library = load_library()
        self._shapes = (tuple(source_shape), tuple(delta_shape), tuple(weights_shape))
        self._itemsize = 4 if dtype == "f32" else 2
        self._tensors: list[Any] = []
        self._compiled: Any = None
        ffi, lib, check = self._library.ffi, self._library.lib, self._library.check
        logical = [self._logical(identity, shape, _DATA_TYPES[dtype]) for identity, shape in enumerate(self._shapes)]
        source, delta, gradient = logical

        graph_slot, op_slot = ffi.new("dnnl_graph_graph_t *"), ffi.new("dnnl_graph_op_t *")
        check("dnnl_graph_graph_create", lib.dnnl_graph_graph_create(graph_slot, _CPU))
        graph = graph_slot[0]
        partition = None
        try:
            check("dnnl_graph_op_create", lib.dnnl_graph_op_create(op_slot, 1, _OP_KINDS[op], b"gradient"))
            node = op_slot[0]
            try:
                check("dnnl_graph_op_add_input", lib.dnnl_graph_op_add_input(node, source))
                check("dnnl_graph_op_add_input", lib.dnnl_graph_op_add_input(node, delta))
                check("dnnl_graph_op_add_output", lib.dnnl_graph_op_add_output(node, gradient))
                self._set_numbers(node, "strides", strides)
                self._set_numbers(node, "pads_begin", pads_begin)
                self._set_numbers(node, "pads_end", pads_end)
                self._set_numbers(node, "dilations", dilations)
                self._set_numbers(node, "groups", (groups,))
                self._set_numbers(node, "weights_shape", weights_shape)
                self._set_word(node, "auto_pad", "None" if auto_pad.lower() == "none" else auto_pad.upper())
                self._set_word(node, "data_format", data_format)
                self._set_word(node, "weights_format", weights_format)
                check("dnnl_graph_add_op", lib.dnnl_graph_add_op(graph, node))
            finally:
                lib.dnnl_graph_op_destroy(node)
            check("dnnl_graph_graph_finalize", lib.dnnl_graph_graph_finalize(graph))
            check("dnnl_graph_graph_filter", lib.dnnl_graph_graph_filter(graph, _POLICY_FUSION))
            count = ffi.new("size_t *")
            check("dnnl_graph_graph_get_partition_num", lib.dnnl_graph_graph_get_partition_num(graph, count))
            if count[0] != 1:
                raise PeerError(f"one operation gave {count[0]} partitions")
            slot = ffi.new("dnnl_graph_partition_t[1]")
            check("dnnl_graph_graph_get_partitions", lib.dnnl_graph_graph_get_partitions(graph, 1, slot))
            partition = slot[0]
            supported = ffi.new("uint8_t *")
            check("dnnl_graph_partition_is_supported", lib.dnnl_graph_partition_is_supported(partition, supported))
            if not supported[0]:
                raise PeerRefusedError("dnnl_graph_partition_is_supported: no")
            self._compile(partition, source, delta, gradient)
        finally:
            if partition is not None:
                lib.dnnl_graph_partition_destroy(partition)
            lib.dnnl_graph_graph_destroy(graph)
        self._handles: tuple[Any, Any] = (None, None)
        for tensor in logical:
            slot = ffi.new("dnnl_graph_tensor_t *")
            check(
                "dnnl_graph_tensor_create", lib.dnnl_graph_tensor_create(slot, tensor, self._library.engine, ffi.NULL)
            )
            self._tensors.append(slot[0])
        self._handles = (
            ffi.new("dnnl_graph_tensor_t[2]", self._tensors[:2]),
            ffi.new("dnnl_graph_tensor_t[1]", self._tensors[2:]),
        )

    def _logical(self, identity: int, shape: tuple[int, ...], data_type: int) -> Any:
        library = self._library
        tensor = library.ffi.new("dnnl_graph_logical_tensor_t *")
        steps = [int(step) for step in np.cumprod((1, *shape[:0:-1]))[::-1]]
        status = library.lib.dnnl_graph_logical_tensor_init_with_strides(
            tensor, identity, data_type, len(shape), list(shape), steps, _PROPERTY_UNDEFINED
        )
        library.check("dnnl_graph_logical_tensor_init_with_strides", status)
        return tensor

    def _set_numbers(self, node: Any, name: str, values: Sequence[int]) -> None:
        status = self._library.lib.dnnl_graph_op_set_attr_s64(node, _ATTRIBUTES[name], list(values), len(values))
        self._library.check(f"dnnl_graph_op_set_attr_s64({name}={tuple(values)})", status)

    def _set_word(self, node: Any, name: str, value: str) -> None:
        text = value.encode()
        # The length counts the terminating zero.
        status = self._library.lib.dnnl_graph_op_set_attr_str(node, _ATTRIBUTES[name], text, len(text) + 1)
        self._library.check(f"dnnl_graph_op_set_attr_str({name}={value})", status)

    def _compile(self, partition: Any, source: Any, delta: Any, gradient: Any) -> None:
        library = self._library
        slot = library.ffi.new("dnnl_graph_compiled_partition_t *")
        library.check(
            "dnnl_graph_compiled_partition_create", library.lib.dnnl_graph_compiled_partition_create(slot, partition)
        )
        self._compiled = slot[0]
        inputs = library.ffi.new("dnnl_graph_logical_tensor_t *[2]", [source, delta])
        outputs = library.ffi.new("dnnl_graph_logical_tensor_t *[1]", [gradient])
        status = library.lib.dnnl_graph_partition_compile(
            partition, self._compiled, 2, inputs, 1, outputs, library.engine
        )
        library.check("dnnl_graph_partition_compile", status)

    def execute(self, source: Tensor, delta: Tensor, gradient: Tensor) -> Tensor:
        """Writes the gradient into ``gradient`` and returns it."""
        self.bind(source, delta, gradient)
        self.run()
        return gradient

    def bind(self, source: Tensor, delta: Tensor, gradient: Tensor) -> None:
        """Sets the arrays that ``run`` works on; the caller keeps them alive."""
        library = self._library
        for name, array, shape, tensor in zip(
            ("source", "delta", "gradient"), (source, delta, gradient), self._shapes, self._tensors, strict=True
        ):
            if array.shape != shape or array.itemsize != self._itemsize or not array.flags.c_contiguous:
                raise ValueError(
                    f"{name}: expected a C-contiguous array of shape {shape} with {self._itemsize}-byte elements, "
                    f"got shape {array.shape} of {array.dtype}"
                )
            status = library.lib.dnnl_graph_tensor_set_data_handle(
                tensor, library.ffi.cast("void *", array.ctypes.data)
            )
            library.check("dnnl_graph_tensor_set_data_handle", status)

    def run(self) -> None:
        """One execution on the bound arrays, finished when it returns: what a benchmark times."""
        library = self._library
        inputs, outputs = self._handles
        status = library.lib.dnnl_graph_compiled_partition_execute(
            self._compiled, library.stream, 2, inputs, 1, outputs
        )
        library.check("dnnl_graph_compiled_partition_execute", status)
        library.check("dnnl_stream_wait", library.lib.dnnl_stream_wait(library.stream))

    def close(self) -> None:
        """Frees what oneDNN holds for this operation. Safe to call twice."""
        for tensor in self._tensors:
            self._library.lib.dnnl_graph_tensor_destroy(tensor)
        self._tensors = []
        if self._compiled is not None:
            self._library.lib.dnnl_graph_compiled_partition_destroy(self._compiled)
            self._compiled = None

    def __del__(self) -> None:
        if hasattr(self, "_tensors"):
            self.close()


def _library_layout(problem: Problem) -> tuple[str, tuple[int, ...]]:
    """(weights_format, weights_shape) in which oneDNN itself is asked: its operations know the current generation's
    layouts only.
    """
    spatial_first = problem.weights_format.startswith("X")
    if not problem.words.transposed:
        return problem.weights_format, problem.weights_shape
    inputs, outputs = problem.input_channels, problem.output_channels // problem.groups
    if spatial_first:
        return "XOI", (*problem.kernel, outputs, inputs)
    return "IOX", (inputs, outputs, *problem.kernel)


def build(problem: Problem) -> OneDnnGradient:
    """The compiled operation for a problem of any of the four operations; its result is laid out as
    ``_library_layout`` says.
    """
    weights_format, weights_shape = _library_layout(problem)
    nothing = (0,) * problem.rank
    return OneDnnGradient(
        "ConvTransposeBackwardWeights" if problem.words.transposed else "ConvolutionBackwardWeights",
        problem.source_shape,
        problem.delta_shape,
        weights_shape,
        dtype=problem.dtype,
        strides=problem.strides,
        pads_begin=problem.pads_begin or nothing,
        pads_end=problem.pads_end or nothing,
        dilations=problem.dilations,
        auto_pad=problem.auto_pad,
        groups=problem.groups,
        data_format=problem.data_format,
        weights_format=weights_format,
    )


def onednn_gradient(problem: Problem, source: Tensor, delta: Tensor) -> Tensor:
    """oneDNN's gradient in the problem's own weights layout. Raises PeerRefusedError."""
    weights_format, weights_shape = _library_layout(problem)
    operation = build(problem)
    try:
        gradient = operation.execute(source, delta, np.full(weights_shape, np.nan, source.dtype))
    finally:
        operation.close()
    if not problem.words.transposed:
        return gradient
    # To [IC][OCg][K...] first, then to whatever the problem asks for.
    library = np.moveaxis(gradient, (-1, -2), (0, 1)) if weights_format == "XOI" else gradient
    outputs = library
    if problem.document_layout:
        g, channels_in = problem.groups, problem.input_channels // problem.groups
        split = library.reshape(g, channels_in, *library.shape[1:])
        outputs = np.moveaxis(split, 0, 1).reshape(channels_in, problem.output_channels, *problem.kernel)
    axes = {"I": [0], "O": [1], "X": list(range(2, outputs.ndim))}
    order = [axis for letter in problem.weights_format for axis in axes[letter]]
    return np.ascontiguousarray(outputs.transpose(order))


class OneDnnProcess:
    """oneDNN in a child process, because it ends the process for problems that it cannot handle. A context manager.

    A child that dies is an answer (PeerRefusedError), and the next problem gets a new child.
    """

    _PROGRAM = "import sys; sys.path[:0] = sys.argv[1:]; from reference.onednn_peer import serve; serve()"

    def __init__(self) -> None:
        load_library()  # a missing library is reported here, not by a child
        self._child: subprocess.Popen[bytes] | None = None
        self.deaths = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", self._PROGRAM, str(Path(__file__).parents[1])]
        # The C++ runtime announces each death on stderr; deaths are counted here instead.
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def _stop(self) -> int:
        """Ends the child and returns its exit code."""
        child, self._child = self._child, None
        if child is None:
            return 0
        assert child.stdin is not None
        assert child.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        try:
            return child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()
        finally:
            child.stdout.close()

    def gradient(self, problem: Problem, source: Tensor, delta: Tensor) -> Tensor:
        """As ``onednn_gradient``; PeerRefusedError also when the child died over it."""
        child = self._child = self._child or self._start()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            pickle.dump((problem, source.tobytes(), delta.tobytes()), child.stdin)
            child.stdin.flush()
            status, answer = pickle.load(child.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            self.deaths += 1
            raise PeerRefusedError(f"oneDNN ended its process (exit code {self._stop()}): {problem}") from None
        if status == "refused":
            raise PeerRefusedError(answer)
        if status == "failed":
            raise PeerError(answer)
        return np.frombuffer(answer, DTYPES[problem.dtype]).reshape(problem.weights_shape)


def serve() -> None:
    """The child of OneDnnProcess: answers the problems on stdin until it closes. Raw bytes stand for the tensors."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever the library prints stays out of the answers
    while True:
        try:
            problem, source, delta = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        dtype = DTYPES[problem.dtype]
        try:
            gradient = onednn_gradient(
                problem,
                np.frombuffer(source, dtype).reshape(problem.source_shape),
                np.frombuffer(delta, dtype).reshape(problem.delta_shape),
            )
        except PeerRefusedError as error:
            answer: tuple[str, str | bytes] = ("refused", str(error))
        except (PeerError, ValueError) as error:
            answer = ("failed", f"{type(error).__name__}: {error}")
        else:
            answer = ("done", np.ascontiguousarray(gradient).tobytes())
        pickle.dump(answer, answers)
        answers.flush()
