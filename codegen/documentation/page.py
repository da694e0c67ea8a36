# SPDX-License-Identifier: Apache-2.0
"""The view of an operation that its Markdown and HTML pages are both laid out from."""

from __future__ import annotations

from codegen.documentation.call import small_call
from codegen.documentation.context import (
    AttributeContext,
    DecisionContext,
    LayoutContext,
    PaddingContext,
    PaddingRow,
    PageContext,
    ReadingContext,
    RuleContext,
    SourceContext,
    SymbolContext,
    TensorContext,
    TypeContext,
)
from codegen.documentation.differences import compare_operations
from codegen.documentation.drawing import draw_groups, draw_plane, draw_windows
from codegen.documentation.error_calls import make_error_groups
from codegen.documentation.errors import setup_code
from codegen.documentation.examples import (
    concrete_shape,
    make_example,
    make_small_example,
    padding_examples,
)
from codegen.documentation.text import (
    Pieces,
    SentenceSetter,
    set_code,
    typeset_axis,
    typeset_formula,
    typeset_sum,
    typeset_symbol,
)
from codegen.naming import snake_case
from specs.model import Attribute, Operation, Reading, Tensor
from specs.vocabulary import AXIS_SYMBOLS, CALL_SYMBOLS, DATA_LAYOUTS, ELEMENT_TYPES


def make_page(operation: Operation, counterpart: Operation | None) -> PageContext:
    """The view of one operation; `counterpart` is the same operation in the other generation, when it has a page."""
    sentence = SentenceSetter(operation)
    shape = operation.attribute("weights_shape")
    assert shape is not None, "the loader requires the attribute"
    return PageContext(
        name=operation.name,
        versioned_name=operation.versioned_name,
        function=snake_case(operation.name),
        generation=operation.generation,
        forward=operation.forward,
        summary=sentence(operation.summary),
        description=sentence(operation.description),
        index_base=operation.index_base,
        symbols=_make_symbols(operation, sentence),
        readings=tuple(_make_reading(operation, reading, sentence) for reading in operation.readings),
        small=make_small_example(operation),
        windows=draw_windows(operation),
        plane=draw_plane(operation),
        rules=_make_rules(operation, sentence),
        padding=_make_padding(operation, sentence),
        attributes=tuple(_make_attribute(attribute, sentence) for attribute in operation.attributes),
        inputs=tuple(_make_tensor(operation, tensor, sentence) for tensor in operation.inputs),
        outputs=tuple(_make_tensor(operation, tensor, sentence) for tensor in operation.outputs),
        shape_name=shape.name,
        types=_make_types(operation),
        error_setup=set_code(setup_code(operation)),
        error_groups=make_error_groups(operation, sentence),
        decisions=_make_decisions(operation, sentence),
        comparison=None if counterpart is None else compare_operations(operation, counterpart),
        examples=tuple(
            make_example(operation, example, number, sentence) for number, example in enumerate(operation.examples, 1)
        ),
        sources=tuple(SourceContext(source.id, source.title) for source in operation.sources),
    )


def _make_symbols(operation: Operation, sentence: SentenceSetter) -> tuple[SymbolContext, ...]:
    symbols = dict(CALL_SYMBOLS) | dict(AXIS_SYMBOLS)
    if operation.attribute("output_padding") is None:
        del symbols["op"]
    rows = [
        SymbolContext(typeset_symbol(name), name, sentence(meaning), (), name in AXIS_SYMBOLS)
        for name, meaning in symbols.items()
    ]
    rows += [
        SymbolContext(
            typeset_symbol(row.symbol), row.symbol, sentence(row.sentence), typeset_formula(row.formula), row.per_axis
        )
        for row in operation.definitions
    ]
    return tuple(rows)


def _make_reading(operation: Operation, reading: Reading, sentence: SentenceSetter) -> ReadingContext:
    call = small_call(operation, 2, reading)
    default = next(row.default for row in operation.attributes if row.role == "weights_format")
    divided = [axis for axis in reading.sum.gradient.values() if "/" in axis]
    return ReadingContext(
        id=reading.id,
        anchor=f"reading-{reading.id}",
        sentence=sentence(reading.sentence),
        sources=reading.sources,
        sum=typeset_sum(operation, reading),
        layouts=tuple(
            LayoutContext(name, name == default, tuple(map(typeset_axis, axes)), concrete_shape(call, axes))
            for name, axes in reading.layouts.items()
        ),
        divided=typeset_axis(divided[0].partition("/")[0]) if divided else (),
        drawing=draw_groups(operation, reading),
    )


def _make_rules(operation: Operation, sentence: SentenceSetter) -> tuple[RuleContext, ...]:
    return tuple(
        RuleContext(
            id=rule.id,
            anchor=f"rule-{rule.id}",
            formula=typeset_formula(rule.formula),
            scope="on each spatial axis" if rule.per_axis else "once for a call",
            subject=rule.subject,
            sentence=sentence(rule.sentence),
            remedy="" if rule.remedy is None else rule.remedy.attribute,
            remedy_formula=() if rule.remedy is None else typeset_formula(rule.remedy.formula),
        )
        for rule in operation.rules
    )


def _make_padding(operation: Operation, sentence: SentenceSetter) -> PaddingContext | None:
    attribute = operation.attribute("auto_pad")
    if attribute is None:
        return None
    ignored = [
        row.name
        for row in operation.attributes
        if row.ignored_when is not None and row.ignored_when.attribute == attribute.name
    ]
    rows = tuple(
        PaddingRow(
            (values["I"], values["K"], values["s"], values["d"], values["pb"] + values["pe"]), upper, lower, values["O"]
        )
        for values, upper, lower in padding_examples(operation)
    )
    return PaddingContext(
        attribute=attribute.name,
        words=attribute.words,
        ignored=tuple(ignored),
        total=typeset_formula(operation.padding.same_total),
        sentence=sentence(operation.padding.sentence),
        rows=rows,
    )


def _make_attribute(attribute: Attribute, sentence: SentenceSetter) -> AttributeContext:
    lengths = {"spatial": "one for each spatial axis", "weights": "one for each axis of the weights", None: ""}
    ranges = {"positive": "1 or more", "non-negative": "0 or more", None: ""}
    allowed = ", ".join(text for text in (ranges[attribute.range], lengths[attribute.length]) if text)
    default = "" if attribute.default is None else str(attribute.default)
    given = "required" if attribute.required else "optional"
    if attribute.ignored_when is not None:
        when = attribute.ignored_when
        given = f"{given} while {when.attribute} is {when.unless}; ignored otherwise"
    return AttributeContext(
        name=attribute.name,
        anchor=f"attribute-{attribute.name}",
        type=attribute.kind,
        words=attribute.words,
        allowed="in any case" if attribute.any_case else allowed,
        default=f"{default} for every axis" if default and attribute.kind == "s64[]" else default,
        given=sentence(given),
        sentence=sentence(attribute.sentence),
    )


def _make_tensor(operation: Operation, tensor: Tensor, sentence: SentenceSetter) -> TensorContext:
    types = next(row.types for row in operation.type_variables if row.name == tensor.type)
    layout = next((row for row in operation.attributes if row.name == tensor.layout), None)
    shapes: list[tuple[str, tuple[Pieces, ...]]] = []
    if layout is not None and tensor.channels is not None and tensor.spatial is not None:
        symbols = {"N": "N", "C": tensor.channels, "X": tensor.spatial}
        for word in layout.words:
            axes = (typeset_symbol(symbols[axis] + ("…" if axis == "X" else "")) for axis in DATA_LAYOUTS[word])
            shapes.append((word, tuple(axes)))
    return TensorContext(
        index=tensor.index,
        name=tensor.name,
        type=tensor.type,
        types=", ".join(types),
        given="required" if tensor.required else "optional",
        shapes=tuple(shapes),
        sentence=sentence(tensor.sentence),
    )


def _make_types(operation: Operation) -> tuple[TypeContext, ...]:
    tensors = (*operation.inputs, *operation.outputs)
    return tuple(
        TypeContext(
            name=variable.name,
            tensors=tuple(dict.fromkeys(row.name for row in tensors if row.type == variable.name)),
            types=variable.types,
            elements=tuple(row for row in ELEMENT_TYPES if row.name in variable.types),
        )
        for variable in operation.type_variables
    )


def _make_decisions(operation: Operation, sentence: SentenceSetter) -> tuple[DecisionContext, ...]:
    return tuple(
        DecisionContext(
            number=row.number,
            anchor=f"decision-{row.number}",
            question=sentence(row.question),
            answer=sentence(row.answer),
            sources=row.sources,
            extension=row.extension,
        )
        for row in operation.decisions
    )
