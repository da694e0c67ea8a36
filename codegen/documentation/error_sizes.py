# SPDX-License-Identifier: Apache-2.0
"""The part of the catalogue that is about sizes: each rule of the specification, broken by changing one number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import prod

from codegen.documentation.call import NumberedCall, Shape, Value, attribute_name, small_call
from codegen.documentation.errors import ELSEWHERE, INT64_MAX, Mistake
from codegen.roles import assign_roles
from specs.expressions import evaluate_formula, formula_names, split_comparison
from specs.model import Operation, Rule
from specs.vocabulary import SPATIAL_AXES

_HUGE = 2**40
_SYMBOL = re.compile(r"[A-Za-z_]\w*")


def _with_numbers(formula: str, values: Mapping[str, int]) -> str:
    return _SYMBOL.sub(lambda name: str(values.get(name[0], name[0])), formula)


def ones(shape: Shape) -> str:
    """An array of that shape, as code."""
    return f"np.ones({shape}, np.float32)"


def call_text(call: NumberedCall, changed: NumberedCall) -> str:
    """The line of code that turns the call into the changed one."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.changed_attributes(changed).items())
    tensors = [
        row.name if call.shapes[row.name] == changed.shapes[row.name] else ones(changed.shapes[row.name])
        for row in call.operation.data_inputs
    ]
    return f"make({arguments})({', '.join(tensors)})"


def size_mistakes(operation: Operation) -> Iterator[Mistake]:
    """Sizes that do not fit each other, every rule of the specification, and sizes that no machine holds."""
    call = small_call(operation, 2)
    first, second = (row.name for row in operation.data_inputs)
    shape, other = call.shapes[first], call.shapes[second]
    strides = attribute_name(operation, "strides")
    yield Mistake(
        f"`{first}` has another number of axes than the attributes speak of.",
        call_text(call, call.changed(shapes={first: shape[:-1]})),
        "SpecError",
        f"{first} has 3 axes (shape {shape[:-1]}); expected 4, batch, channels and 2 spatial, because {strides} has "
        f"2 entries",
    )
    yield Mistake(
        f"`{second}` is empty along another axis than the batch.",
        call_text(call, call.changed(shapes={second: (*other[:-1], 0)})),
        "SpecError",
        f"{second} has extent 0 on axis 3 (shape {(*other[:-1], 0)}); expected at least 1; only the batch may be empty",
    )
    smaller = (1, *other[1:])
    yield Mistake(
        "The batch sizes differ.",
        call_text(call, call.changed(shapes={second: smaller})),
        "SpecError",
        f"{second} has N = 1 (axis 0 of {smaller}), but {first} has N = {shape[0]} (axis 0 of {shape}); "
        f"expected the same batch size",
    )
    for rule in operation.rules:
        yield from _rule_mistakes(call, rule)
    yield from _absurd_sizes(call)


def _neighbours(call: NumberedCall) -> Iterator[NumberedCall]:
    """Calls that differ from a right one in a single number."""
    groups = attribute_name(call.operation, "groups")
    for number in range(2, 9):
        yield call.changed({groups: number})
    for tensor in reversed(call.operation.data_inputs):
        extent = call.extents(tensor)[2][0]
        yield call.with_spatial(tensor, extent + 1)
        yield call.with_spatial(tensor, extent - 1)
    shape = call.numbers("weights_shape")
    taps = call.axis_values()[0]["K"]
    place = call.operation.readings[0].layouts[call.word("weights_format")].index("X")
    for more in range(1, 9):
        longer = (*shape[:place], *(taps + more,) * call.rank, *shape[place + call.rank :])
        yield call.changed({attribute_name(call.operation, "weights_shape"): longer})


def _rule_mistakes(call: NumberedCall, rule: Rule) -> Iterator[Mistake]:
    """The first neighbour of the call that breaks the rule, and one for which the rule has a remedy."""
    seen: set[bool] = set()
    for changed in _neighbours(call):
        broken = changed.first_broken_rule()
        if broken is None or broken[0] != rule:
            continue
        message, remedied = _rule_message(changed, rule, broken[1])
        if remedied in seen or (True in seen and rule.remedy is None):
            continue
        seen.add(remedied)
        what = f"The rule `{rule.id}` is broken" + (
            f"; another `{rule.remedy.attribute}` would mend it." if remedied and rule.remedy else "."
        )
        yield Mistake(what, call_text(call, changed), "SpecError", message)


def _rule_message(call: NumberedCall, rule: Rule, place: int) -> tuple[str, bool]:
    """What the error says, and whether it names a value that would fit."""
    values = call.axis_values()[place] if rule.per_axis else call.call_values()
    comparison = split_comparison(rule.formula)
    sides = []
    for side in (comparison.left, comparison.right):
        names = formula_names(side)
        if names:
            text = side if names == (side,) else _with_numbers(side, values)
            sides.append(f"{text} = {evaluate_formula(side, values)}")
    subject: Value = call.shapes.get(rule.subject, call.groups)
    noun = f"{rule.subject} = {subject}" if isinstance(subject, int) else f"{rule.subject} has shape {subject}"
    axis = f" on spatial axis {place} ({SPATIAL_AXES[call.rank][place]})" if rule.per_axis else ""
    fitting = -1 if rule.remedy is None else evaluate_formula(rule.remedy.formula, values)
    remedy = f"; {rule.remedy.attribute} = {fitting} would fit" if rule.remedy is not None and fitting >= 0 else ""
    expected = f"expected {comparison.left} {comparison.operator} {comparison.right}{axis}"
    abbreviations = [
        f"{row.symbol} = {row.formula} = {_with_numbers(row.formula, values)}"
        for row in call.operation.definitions
        if row.symbol in (*formula_names(comparison.left), *formula_names(comparison.right))
    ]
    where = f", where {', '.join(abbreviations)}" if abbreviations else ""
    return f"{noun}: {expected}, but {', and '.join(sides)}{where}{remedy}. {rule.sentence}", bool(remedy)


def _absurd_sizes(call: NumberedCall) -> Iterator[Mistake]:
    """Right by every rule, and impossible: positions beyond 64 bits, a gradient beyond any memory."""
    operation = call.operation
    reading = call.reading()
    assert reading is not None
    strides, pads = attribute_name(operation, "strides"), attribute_name(operation, "pads_begin")
    shape = attribute_name(operation, "weights_shape")
    # With a single position of the plain tensor the stride appears in no size, so any stride is right.
    roles = assign_roles(operation, reading)
    single = call.with_spatial(roles.plain, 1)
    stride = 2**62
    for windowed in range(1, 33):
        changed = single.with_spatial(roles.windowed, windowed).changed({strides: (stride, stride)})
        if changed.fits:
            values = changed.axis_values()[0]
            longest = max(values["I"], values["O"]) + 1
            reach = longest * stride + values["K"] * values["d"] + values["pb"] + values["pe"]
            assert reach > INT64_MAX // 4
            yield Mistake(
                "Positions do not fit 64-bit integers.",
                call_text(call, changed),
                "SpecError",
                f"positions O * s + K * d + pb + pe go up to {reach}, beyond 64-bit integers",
            )
            break
    # A longer kernel and as much more padding in front leave every size as it is.
    values = call.axis_values()[0]
    begin = values["pb"] + (_HUGE - values["K"]) * values["d"]
    layout = reading.layouts[call.word("weights_format")]
    taps = layout.index("X")
    weights = call.numbers("weights_shape")
    huge = (*weights[:taps], _HUGE, *weights[taps + 1 :])
    changed = call.changed({pads: (begin, *call.numbers("pads_begin")[1:]), shape: huge})
    if changed.fits:
        yield Mistake(
            "The gradient is larger than the machine's memory.",
            call_text(call, changed),
            "SpecError",
            f"{shape} = {huge} needs {4 * prod(huge)} bytes (4 bytes for each of {prod(huge)} elements); "
            f"this machine has {ELSEWHERE}",
        )
