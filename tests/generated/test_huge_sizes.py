# SPDX-License-Identifier: Apache-2.0
"""Sizes at and beyond the edges of 32 and 64 bits: what cannot be computed is refused, what can be is exact.

10,000 random sets of sizes that overflow, or are far from fitting together, each end in a SpecError, soon and without
memory. Whether a set has to be refused is decided here a second time, with Python's unbounded integers. Sets that fit
are planned, and with an empty batch, which needs no memory, also computed.

CONVGRAD_LONG=1 adds tensors of more than 2**31 and 2**32 elements. They are zero but for a few small integers, mostly
at the far end, so pages that hold only zeros need no memory, and every sum is exact.

Sets are numbered, the same on every machine; a failure prints the number: `make_sizes(<number>)`.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import resource
import statistics
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import convgrad
from convgrad import SpecError
from reference.geometries import DTYPES, OPERATIONS, RANKS, Problem, SeededDraw, draw_cell, draw_problem
from reference.naive_gradient import effective_extent

Array = npt.NDArray[Any]

LONG = os.environ.get("CONVGRAD_LONG") == "1"
PARTS = 8
REFUSED = 10_000 // PARTS
USUAL_SECONDS = 0.010  # of this thread: what else the machine does is not the library's
MOST_SECONDS = 1.0
MOST_BYTES = 2**20
MEASURED_EVERY = 4
ROOM = 32 * 2**20  # of address space, for the interpreter itself
LONGEST_MESSAGE = 1500
INT64_MAX = 2**63 - 1
# Above it, how much room the library leaves below 64 bits may decide.
EDGE = 2**58


# ------------------------------------------------------------------------------------------------------- sets of sizes


@dataclass(frozen=True)
class Sizes:
    """A problem whose numbers may be anything, and the shapes to pass, which need not be those of the problem."""

    problem: Problem
    source_shape: tuple[int, ...]
    delta_shape: tuple[int, ...]
    weights_shape: tuple[int, ...]


def make_sizes(number: int) -> Sizes:
    """The set with this number."""
    dice = random.Random(f"huge sizes {number}")
    draw = SeededDraw(f"huge sizes {number}")
    op = OPERATIONS[number % len(OPERATIONS)]
    problem = draw_problem(draw, draw_cell(draw, (op,)), tensor_budget=300)
    kind = dice.random()
    if kind < 0.15:
        return _wrap_around(problem, dice)
    if kind < 0.22:
        return _walk_far(problem, dice)
    for _ in range(dice.choice((1, 1, 2, 2, 3))):
        problem = _enlarge(problem, dice)
    if dice.random() < 0.75:
        problem = fit(problem)
    if dice.random() < 0.02:
        problem = replace(problem, batch=0)
    shapes = [problem.source_shape, problem.delta_shape, problem.weights_shape]
    if dice.random() < 0.15:
        which = dice.randrange(3)
        entries = list(shapes[which])
        entries[dice.randrange(len(entries))] = _huge(dice)
        shapes[which] = tuple(entries)
    return Sizes(problem, *shapes)


def _huge(dice: random.Random) -> int:
    kind = dice.random()
    if kind < 0.02:
        return int(10 ** dice.choice((20, 80, 4000)))
    exponent = dice.randint(12, 66) if kind < 0.9 else dice.choice((31, 32, 62, 63, 64))
    return dice.choice((2**exponent - 1, 2**exponent, 2**exponent + 1, dice.randrange(2**exponent) + 1))


def _with_entry(values: tuple[int, ...], axis: int, value: int) -> tuple[int, ...]:
    return (*values[:axis], value, *values[axis + 1 :])


def _enlarge(problem: Problem, dice: random.Random) -> Problem:
    """One number replaced by a huge one."""
    scalars = ["batch", "input_channels", "output_channels", "groups"]
    vectors = ["input_extents", "output_extents", "kernel", "strides", "dilations"]
    vectors += [name for name in ("pads_begin", "pads_end", "output_padding") if getattr(problem, name) is not None]
    name = dice.choice(scalars + vectors)
    if name in scalars:
        return replace(problem, **{name: _huge(dice)})
    return replace(problem, **{name: _with_entry(getattr(problem, name), dice.randrange(problem.rank), _huge(dice))})


def _wrap_around(problem: Problem, dice: random.Random) -> Sizes:
    """Sizes that do not fit, but would for arithmetic modulo 2**64."""
    axis = dice.randrange(problem.rank)
    one = fit(
        replace(problem, kernel=_with_entry(problem.kernel, axis, 1), dilations=_with_entry(problem.dilations, axis, 1))
    )
    power = dice.randint(2, 62)
    kind = dice.choice(("filter", "steps", "pads", "elements"))
    if kind == "filter":  # (K - 1) * d = 2**64
        shown = replace(
            one,
            kernel=_with_entry(one.kernel, axis, 2**power + 1),
            dilations=_with_entry(one.dilations, axis, 2 ** (64 - power)),
        )
        return Sizes(shown, one.source_shape, one.delta_shape, shown.weights_shape)
    if kind == "steps":  # (extent - 1) * s grows by 2**64
        shown = fit(replace(one, strides=_with_entry(one.strides, axis, 2**power)))
        name = "input_extents" if one.words.transposed else "output_extents"
        extents = getattr(shown, name)
        shown = replace(shown, **{name: _with_entry(extents, axis, extents[axis] + 2 ** (64 - power))})
        return Sizes(shown, shown.source_shape, shown.delta_shape, shown.weights_shape)
    if kind == "pads":  # pb + pe = 2**64 - 2
        zeros = (0,) * one.rank
        bare = fit(replace(one, auto_pad="none", pads_begin=zeros, pads_end=zeros))
        # What is padded away by -2 is added beforehand.
        name = "output_extents" if one.words.transposed else "input_extents"
        extents = getattr(bare, name)
        more = _with_entry(extents, axis, extents[axis] + 2)
        most = _with_entry(zeros, axis, INT64_MAX)
        shown = replace(bare, **{name: more}, pads_begin=most, pads_end=most)
        return Sizes(shown, shown.source_shape, shown.delta_shape, shown.weights_shape)
    # N * C * ... is a multiple of 2**64.
    shown = fit(replace(problem, batch=2 ** (64 - power), groups=1, input_channels=2**power, output_channels=2**power))
    return Sizes(shown, shown.source_shape, shown.delta_shape, shown.weights_shape)


def _walk_far(problem: Problem, dice: random.Random) -> Sizes:
    """Sizes that fit, of tensors that are small, between which positions do not fit in 64 bits."""
    axis = dice.randrange(problem.rank)
    none = (0,) * problem.rank
    begin, end, stride = dice.randint(2**62, INT64_MAX), dice.randint(2**62, INT64_MAX), dice.randint(2**58, 2**62)
    problem = replace(problem, strides=_with_entry(problem.strides, axis, stride), auto_pad="none")
    if problem.words.transposed:  # what the steps make, padding takes away
        inputs = _with_entry(problem.input_extents, axis, (begin + end) // stride)
        problem = replace(problem, input_extents=inputs, output_padding=none)
    problem = fit(
        replace(
            problem,
            pads_begin=_with_entry(problem.pads_begin or none, axis, begin),
            pads_end=_with_entry(problem.pads_end or none, axis, end),
        )
    )
    return Sizes(problem, problem.source_shape, problem.delta_shape, problem.weights_shape)


def fit(problem: Problem) -> Problem:
    """The same with channels and extents changed to fit the rest, however large they get."""
    groups = problem.groups
    inputs, outputs, extra = list(problem.input_extents), list(problem.output_extents), list(_extra(problem))
    problem = replace(
        problem,
        input_channels=max(1, problem.input_channels // groups) * groups,
        output_channels=max(1, problem.output_channels // groups) * groups,
    )
    for axis in range(problem.rank):
        stride, effective = problem.strides[axis], effective_extent(problem.kernel[axis], problem.dilations[axis])
        begin, end = problem.resolved_pads[axis]
        if problem.words.transposed:
            extent = (inputs[axis] - 1) * stride + effective - begin - end + extra[axis]
            extra[axis] += max(0, 1 - extent)
            outputs[axis] = max(1, extent)
        else:
            inputs[axis] = max(inputs[axis], effective - begin - end)
            problem = replace(problem, input_extents=tuple(inputs))  # "same" pads follow from them
            begin, end = problem.resolved_pads[axis]
            outputs[axis] = (inputs[axis] + begin + end - effective) // stride + 1
    if problem.words.transposed and (any(extra) or problem.output_padding is not None):
        problem = replace(problem, output_padding=tuple(extra))
    return replace(problem, input_extents=tuple(inputs), output_extents=tuple(outputs))


def _extra(problem: Problem) -> tuple[int, ...]:
    given: tuple[int, ...] = problem.output_padding or (0,) * problem.rank
    return given


# --------------------------------------------------------------------------------- what has to be refused, and for what


def objections(sizes: Sizes) -> tuple[set[str], set[str]]:
    """(why it has to be refused, what else is so near to the limit that it may be refused)."""
    problem = _with_shapes(sizes)
    numbers = [problem.groups, *sizes.source_shape, *sizes.delta_shape, *sizes.weights_shape]
    for value in problem.attributes.values():
        numbers += value if isinstance(value, tuple) else []
    found = {"integer"} if max(numbers) > INT64_MAX else set()
    own = (problem.source_shape, problem.delta_shape, problem.weights_shape)
    if (sizes.source_shape, sizes.delta_shape, sizes.weights_shape) != own or not _fits(problem):
        # That is, the two batches differ, channels are no multiples of groups, or one of the other rules is broken.
        return found | {"fit"}, set()
    itemsize = DTYPES[problem.dtype].itemsize
    elements = max(math.prod(max(1, extent) for extent in shape) for shape in own[:2])
    if problem.batch and itemsize * elements > INT64_MAX:
        found.add("elements")
    reach = 0
    for axis in range(problem.rank):
        i, o, s = problem.input_extents[axis], problem.output_extents[axis], problem.strides[axis]
        k, d = problem.kernel[axis], problem.dilations[axis]
        begin, end = problem.resolved_pads[axis]
        # The largest position that the sum names, inside or outside the tensor.
        if (problem.plain_extents[axis] - 1) * s + (k - 1) * d > INT64_MAX:
            found.add("positions")
        reach = max(reach, (max(i, o) + 1) * s + k * d + begin + end)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if itemsize * math.prod(problem.weights_shape) > memory:
        found.add("memory")
    near = {
        "elements": 4 * elements > EDGE,
        "positions": reach > EDGE,
        "memory": 16 * math.prod(problem.weights_shape) > memory,
    }
    return found, {reason for reason, is_near in near.items() if is_near} - found


def _with_shapes(sizes: Sizes) -> Problem:
    """The problem with the numbers of the shapes that are passed; the batch is that of the source."""
    problem = sizes.problem
    first, second = sizes.source_shape, sizes.delta_shape
    if problem.data_format == "NXC":
        first, second = (first[0], first[-1], *first[1:-1]), (second[0], second[-1], *second[1:-1])
    place = problem.weights_format.index("X")
    return replace(
        problem,
        batch=first[0],
        input_channels=first[1],
        output_channels=second[1],
        input_extents=first[2:],
        output_extents=second[2:],
        kernel=sizes.weights_shape[place : place + problem.rank],
    )


def _fits(problem: Problem) -> bool:
    if problem.input_channels % problem.groups or problem.output_channels % problem.groups:
        return False
    for axis in range(problem.rank):
        stride, effective = problem.strides[axis], effective_extent(problem.kernel[axis], problem.dilations[axis])
        pads = sum(problem.resolved_pads[axis])
        inputs, outputs = problem.input_extents[axis], problem.output_extents[axis]
        if problem.words.transposed:
            if outputs != (inputs - 1) * stride + effective - pads + _extra(problem)[axis]:
                return False
        elif inputs + pads < effective or outputs != (inputs + pads - effective) // stride + 1:
            return False
    return True


# What the message has to say where nothing else can be said.
SAYS = {
    "elements": "elements of up to 4 bytes, beyond 64-bit sizes",
    "positions": "beyond 64-bit integers",
    "memory": "this machine has",
    "integer": "",
    "fit": "expected",
}


def prepare(sizes: Sizes, by_attribute: bool) -> convgrad.Plan:
    problem = sizes.problem
    shape: dict[str, Any] = {problem.words.shape: sizes.weights_shape} if by_attribute else {}
    operation = getattr(convgrad, problem.op)(**problem.attributes, **shape)
    given = () if by_attribute else (sizes.weights_shape,)
    plan: convgrad.Plan = operation.prepare(sizes.source_shape, sizes.delta_shape, *given, dtype=DTYPES[problem.dtype])
    return plan


@contextmanager
def little_memory() -> Iterator[None]:
    """No more address space than there is and a little room: an allocation that nobody sees cannot be had."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE") + ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    """Load every kernel: compiling one takes time and memory, which are not the errors'."""
    for rank, data_format, dtype in itertools.product(RANKS, ("NCX", "NXC"), DTYPES):
        ones = (1,) * (rank + 2)
        operation = convgrad.ConvolutionBackwardWeights(
            strides=ones[2:], dilations=ones[2:], auto_pad="valid", data_format=data_format
        )
        operation.prepare(ones, ones, ones, dtype=dtype)


def _check(number: int, times: list[float]) -> tuple[str, ...]:
    """Prepare the set with this number. Returns what became of it."""
    sizes = make_sizes(number)
    label = f"make_sizes({number}): {str(sizes)[:3000]}"
    reasons, near = objections(sizes)
    measured = number // PARTS % MEASURED_EVERY == 0
    if measured:
        tracemalloc.start()
    outcome: object
    start = time.thread_time()
    try:
        outcome = prepare(sizes, by_attribute=number % 3 == 0)
    except Exception as error:
        outcome = error
    seconds = time.thread_time() - start
    peak = 0
    if measured:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak <= MOST_BYTES, f"{peak} bytes allocated\n{label}"
    assert seconds <= MOST_SECONDS, f"{seconds} s\n{label}"
    if isinstance(outcome, convgrad.Plan):
        assert not reasons, f"accepted in spite of {reasons}: {outcome}\n{label}"
        assert outcome.geometry.weights_shape == sizes.weights_shape, label
        return ("planned",)
    assert type(outcome) is SpecError, f"{outcome!r}\n{label}"
    text = str(outcome)
    assert reasons or near, f"refused without a reason: {text}\n{label}"
    assert text.startswith(f"{sizes.problem.op}: ") and len(text) <= LONGEST_MESSAGE, f"{text}\n{label}"
    if len(reasons) == 1 and not near:
        assert all(SAYS[reason] in text for reason in reasons), f"{reasons}, but: {text}\n{label}"
    if reasons:
        times.append(seconds)
    return tuple(sorted(reasons)) or ("near",)


@pytest.mark.parametrize("part", range(PARTS))
def test_sizes_that_overflow_are_refused(part: int) -> None:
    times: list[float] = []
    outcomes: Counter[tuple[str, ...]] = Counter()
    with little_memory():
        for number in itertools.count(part, PARTS):
            outcomes[_check(number, times)] += 1
            if len(times) == REFUSED:
                break
    assert statistics.median(times) < USUAL_SECONDS, statistics.median(times)
    late = sum(seconds > USUAL_SECONDS for seconds in times)
    assert late <= REFUSED // 100, f"{late} of {REFUSED} took over {USUAL_SECONDS} s, {max(times)} at most"
    # Each of the reasons on its own, and neither everything nor nothing is refused.
    for reason in SAYS:
        assert outcomes[reason,] >= REFUSED // 100, (reason, outcomes)
    assert outcomes["planned",] >= REFUSED // 20, outcomes


# --------------------------------------------------------------------------------------- an empty batch needs no memory


def _empty_batches() -> Iterator[Problem]:
    """Huge problems that fit, with a small gradient, and with a batch of none."""
    for number in itertools.count():
        dice = random.Random(f"empty batch {number}")
        draw = SeededDraw(f"empty batch {number}")
        problem = draw_problem(draw, draw_cell(draw, (OPERATIONS[number % 4],)), tensor_budget=300)
        names = ["input_extents", "strides", "dilations", "pads_begin", "pads_end", "output_padding"]
        for name in dice.sample([name for name in names if getattr(problem, name) is not None], 2):
            huge = 2 ** dice.randint(16, 57) + dice.randint(-1, 1)
            values = _with_entry(getattr(problem, name), dice.randrange(problem.rank), huge)
            problem = replace(problem, **{name: values})
        problem = fit(problem)
        shapes = problem.source_shape, problem.delta_shape
        fine = objections(Sizes(problem, *shapes, problem.weights_shape)) == (set(), set())
        if fine and max(math.prod(shape) for shape in shapes) > 2**32:
            yield replace(problem, batch=0)


def test_an_empty_batch_of_huge_images_gives_zeros() -> None:
    problems = list(itertools.islice(_empty_batches(), 400))
    assert {problem.op for problem in problems} == set(OPERATIONS)
    with little_memory():
        for turn, problem in enumerate(problems):
            dtype = DTYPES[problem.dtype]
            out = np.full(problem.weights_shape, np.nan, dtype)
            plan = prepare(Sizes(problem, problem.source_shape, problem.delta_shape, problem.weights_shape), False)
            source, delta = np.empty(problem.source_shape, dtype), np.empty(problem.delta_shape, dtype)
            plan(source, delta, out=out, num_threads=1 + turn % 2)
            assert not out.view(np.uint32 if dtype.itemsize == 4 else np.uint16).any(), str(problem)


# --------------------------------------------------------------------------------------- tensors beyond 2**31 elements


def _large(
    op: str, dtype: str, data_format: str, kernel: tuple[int, ...], inputs: tuple[int, ...], **given: Any
) -> Problem:
    """A problem with one channel, no padding and steps of one where `given` says nothing; the extents of the delta
    follow.
    """
    ones, zeros = (1,) * len(kernel), (0,) * len(kernel)
    values: dict[str, Any] = {
        "weights_format": "XOI" if op == TRAN else "XIO",
        **dict.fromkeys(("batch", "input_channels", "output_channels", "groups"), 1),
        **dict.fromkeys(("strides", "dilations"), ones),
        **dict.fromkeys(("pads_begin", "pads_end"), zeros),
        "auto_pad": "none",
        **given,
    }
    return fit(Problem(op, dtype, data_format, kernel=kernel, input_extents=inputs, output_extents=ones, **values))


CONV, CONV0, TRAN, TRAN0 = (
    "ConvolutionBackwardWeights",
    "ConvolutionBackpropFilters",
    "ConvTransposeBackwardWeights",
    "ConvTransposeBackpropFilters",
)
LARGE: dict[str, Problem] = {
    "both tensors, one row": _large(CONV, "bf16", "NCX", (3,), (2**31 + 70,)),
    "both tensors, one row, channels last": _large(TRAN, "f16", "NXC", (2,), (2**31 + 3,)),
    "src over 2**32, long steps": _large(CONV, "bf16", "NCX", (5,), (2**32 + 77,), strides=(4099,), dilations=(70,)),
    "diff_dst over 2**32, long steps": _large(TRAN0, "bf16", "NXC", (3,), (2**20 + 2,), strides=(4097,)),
    "src of f32": _large(CONV0, "f32", "NXC", (3,), (2**30 + 9,), input_channels=2, strides=(257,)),
    "channels times extent": _large(
        TRAN, "f16", "NCX", (4,), (2**19 + 1,), output_channels=3, strides=(2048,), output_padding=(7,)
    ),
    "batch": _large(CONV, "bf16", "NCX", (3, 3), (256, 256), batch=2**16 + 1, strides=(50, 50), pads_end=(1, 2)),
    "batch, channels last": _large(TRAN, "bf16", "NXC", (2, 3), (5, 6), batch=2**16 + 1, strides=(50, 50)),
    "rows": _large(CONV0, "f16", "NXC", (2, 2), (2**26 + 3, 33), strides=(700, 5), input_channels=2),
    "planes": _large(CONV, "bf16", "NCX", (2, 2, 2), (1025, 1024, 2048), strides=(100, 60, 70), input_channels=2),
    "planes, channels last": _large(TRAN0, "bf16", "NXC", (2, 2, 2), (9, 17, 4), strides=(128, 64, 66), groups=3,
                                    input_channels=3, output_channels=3 * 5),
    "delta in padding": _large(CONV, "bf16", "NCX", (3,), (8,), pads_begin=(2**31 + 5,)),
    "delta in padding, short rows": _large(CONV, "f16", "NXC", (3, 1), (8, 3), pads_begin=(2**30 + 5, 0)),
    "gradient, channels": _large(
        CONV, "bf16", "NXC", (1,), (2,), input_channels=2**31 + 8, output_channels=2, groups=2
    ),
    "gradient, taps": _large(TRAN0, "f16", "NCX", (2**15 + 1,), (2,), input_channels=256, output_channels=256),
}  # fmt: skip


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Zeros that the system hands out when they are written."""
    integers: Array = np.zeros(shape, np.uint32 if dtype.itemsize == 4 else np.uint16)
    return integers.view(dtype)


@pytest.mark.skipif(not LONG, reason="tensors over 2**31 elements: CONVGRAD_LONG=1")
@pytest.mark.parametrize("name", LARGE)
def test_tensors_beyond_32_bits_are_exact(name: str) -> None:
    problem = LARGE[name]
    dtype = DTYPES[problem.dtype]
    shapes = problem.source_shape, problem.delta_shape, problem.weights_shape
    assert max(math.prod(shape) for shape in shapes) > 2**31
    needed = dtype.itemsize * sum(math.prod(shape) for shape in shapes) + 2**30
    if needed > _available_bytes():
        pytest.skip(f"{name}: needs {needed / 2**30:.1f} GiB of memory, {_available_bytes() / 2**30:.1f} are available")
    source, delta = _zeros(shapes[0], dtype), _zeros(shapes[1], dtype)
    expected = _fill(problem, source, delta, random.Random(name))
    gradient = prepare(Sizes(problem, *shapes), False)(source, delta, num_threads=2)
    found = {index: float(gradient[index]) for index in expected}
    assert found == expected
    assert any(expected.values()) and max(map(abs, expected.values())) <= 256, "exact in every type"
    integers = gradient.reshape(-1).view(np.uint32 if dtype.itemsize == 4 else np.uint16)
    assert np.count_nonzero(integers) == sum(value != 0 for value in expected.values()), "nothing elsewhere"


def _fill(problem: Problem, source: Array, delta: Array, dice: random.Random) -> dict[tuple[int, ...], float]:
    """Write small integers into both tensors, most of them at the far end, and return every element of the gradient
    that they touch.

    gradient(p, w, k) = sum over n, o of plain[n, p, o] * windowed[n, w, o * s + k * d - pb], for p and w of one group:
    the plain tensor is the delta of a convolution, and the source of a transposed one.
    """
    plain, windowed = (source, delta) if problem.words.transposed else (delta, source)
    if problem.data_format == "NXC":  # views with the channels second, to write through
        plain, windowed = np.moveaxis(plain, -1, 1), np.moveaxis(windowed, -1, 1)
    P, W = plain.shape[1] // problem.groups, windowed.shape[1] // problem.groups
    begins = [begin for begin, _ in problem.resolved_pads]
    walk = list(zip(problem.strides, problem.dilations, begins, problem.kernel, strict=True))

    def place(extent: int) -> int:
        return extent - 1 - dice.randrange(min(3, extent)) if dice.random() < 0.7 else dice.randrange(extent)

    # Pairs that meet in one tap; positions of the one that meet nothing are in padding.
    ys: dict[tuple[int, ...], int] = {}
    xs: dict[tuple[int, ...], int] = {}
    pairs = 0
    while pairs < 12:
        n, g = place(problem.batch), place(problem.groups)
        o = tuple(place(extent) for extent in plain.shape[2:])
        k = tuple(place(extent) for extent in problem.kernel)
        i = tuple(a * s + b * d - pb for a, b, (s, d, pb, _) in zip(o, k, walk, strict=True))
        if all(0 <= x < extent for x, extent in zip(i, windowed.shape[2:], strict=True)):
            ys[n, g * P + place(P), *o] = dice.choice((-3, -2, -1, 1, 2, 3))
            xs[n, g * W + place(W), *i] = dice.choice((-3, -2, -1, 1, 2, 3))
            pairs += 1
    for tensor, values in ((plain, ys), (windowed, xs)):
        for index, value in values.items():
            tensor[index] = value

    gradient: dict[tuple[int, ...], float] = {}
    for ((n, p, *reads), y), ((m, w, *meets), x) in itertools.product(ys.items(), xs.items()):
        steps = [divmod(b + pb - a * s, d) for a, b, (s, d, pb, _) in zip(reads, meets, walk, strict=True)]
        met = all(not rest and 0 <= k < K for (k, rest), (_, _, _, K) in zip(steps, walk, strict=True))
        if n == m and p // P == w // W and met:
            channels = (w % W, p) if not problem.words.transposed else (p, w % W)
            axes = {"I": (channels[0],), "O": (channels[1],), "X": tuple(k for k, _ in steps)}
            index = tuple(entry for letter in problem.weights_format for entry in axes[letter])
            gradient[index] = gradient.get(index, 0.0) + x * y
    return gradient
