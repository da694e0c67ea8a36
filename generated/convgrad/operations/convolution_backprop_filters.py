# SPDX-License-Identifier: Apache-2.0
# Generated from the specification of ConvolutionBackpropFilters and templates/python/operation.py.j2.
# Do not edit: `python -m codegen generate` writes it again.
"""Gradient of a convolution with respect to its filters.

Source: oneDNN Graph specification 0.x, ConvolutionBackpropFilters-1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

from convgrad.description import Attribute, Definition, Description, Formula, Input, Reading, Rule
from convgrad.operation import WeightsGradient, split_shape
from convgrad.plan import Plan

T = TypeVar("T")

DESCRIPTION = Description(
    name="ConvolutionBackpropFilters",
    attributes=(
        Attribute("strides", role="strides", kind="s64[]", range="positive", length="spatial", required=True),
        Attribute(
            "pads_begin",
            role="pads_begin",
            kind="s64[]",
            range="non-negative",
            length="spatial",
            required=True,
            ignored_unless=("auto_pad", "none"),
        ),
        Attribute(
            "pads_end",
            role="pads_end",
            kind="s64[]",
            range="non-negative",
            length="spatial",
            required=True,
            ignored_unless=("auto_pad", "none"),
        ),
        Attribute("dilations", role="dilations", kind="s64[]", range="positive", length="spatial", required=True),
        Attribute(
            "auto_pad",
            role="auto_pad",
            kind="string",
            words=("none", "same_upper", "same_lower", "valid"),
            any_case=True,
            default="none",
        ),
        Attribute("groups", role="groups", kind="s64", range="positive", default=1),
        Attribute("data_format", role="data_format", kind="string", words=("NCX", "NXC"), default="NXC"),
        Attribute("filter_format", role="weights_format", kind="string", words=("OIX", "XIO"), default="XIO"),
        Attribute("filter_shape", role="weights_shape", kind="s64[]", range="positive", length="weights"),
    ),
    inputs=(
        Input("input_forward", channels="IC", spatial="I"),
        Input("output_delta", channels="OC", spatial="O"),
    ),
    shape_name="filter_shape",
    dtypes=("f32", "bf16", "f16"),
    definitions=(
        Definition(
            "eff",
            per_axis=True,
            formula=Formula("(K - 1) * d + 1", ("K", "d"), lambda K, d: (K - 1) * d + 1),
        ),
        Definition(
            "ICg",
            per_axis=False,
            formula=Formula("IC // groups", ("IC", "groups"), lambda IC, groups: IC // groups),
        ),
        Definition(
            "OCg",
            per_axis=False,
            formula=Formula("OC // groups", ("OC", "groups"), lambda OC, groups: OC // groups),
        ),
    ),
    same_total=Formula(
        "max(0, eff - (s if I % s == 0 else I % s))",
        ("eff", "s", "I"),
        lambda eff, s, I: max(0, eff - (s if I % s == 0 else I % s)),
    ),
    readings=(
        Reading(
            "document",
            layouts={"OIX": ("OC", "IC/groups", "X"), "XIO": ("X", "IC/groups", "OC")},
            plain="output_delta",
        ),
    ),
    rules=(
        Rule(
            id="groups_divide_input_channels",
            subject="groups",
            sentence="Input channels are a multiple of groups.",
            per_axis=False,
            left=Formula("IC % groups", ("IC", "groups"), lambda IC, groups: IC % groups),
            comparison="==",
            right=Formula("0", (), lambda: 0),
        ),
        Rule(
            id="groups_divide_output_channels",
            subject="groups",
            sentence="Output channels are a multiple of groups.",
            per_axis=False,
            left=Formula("OC % groups", ("OC", "groups"), lambda OC, groups: OC % groups),
            comparison="==",
            right=Formula("0", (), lambda: 0),
        ),
        Rule(
            id="kernel_fits_padded_input",
            subject="input_forward",
            sentence="The dilated kernel fits into the padded input.",
            per_axis=True,
            left=Formula("I + pb + pe", ("I", "pb", "pe"), lambda I, pb, pe: I + pb + pe),
            comparison=">=",
            right=Formula("eff", ("eff",), lambda eff: eff),
        ),
        Rule(
            id="output_size",
            subject="output_delta",
            sentence=(
                "The spatial size of output_delta is what the forward convolution gives; trailing input that no "
                "window reaches is normal."
            ),
            per_axis=True,
            left=Formula("O", ("O",), lambda O: O),
            comparison="==",
            right=Formula(
                "(I + pb + pe - eff) // s + 1",
                ("I", "pb", "pe", "eff", "s"),
                lambda I, pb, pe, eff, s: (I + pb + pe - eff) // s + 1,
            ),
        ),
    ),
)
"""The operation as data; the checks and the resolution of shapes read it."""


class ConvolutionBackpropFilters(WeightsGradient):
    """Takes the input of a forward convolution and the gradient that arrived at its output, and gives the gradient
    of the filters. The first generation of the operation: the same sum as its successor under other names.

    filter_delta[oc, j, k] = sum over n, o of input_forward[n, g * ICg + j, o * s + k * d - pb] *
        output_delta[n, oc, o], g = oc // OCg
    OIX is (OC, IC/groups, X); XIO is (X, IC/groups, OC), X standing for the kernel's axes. Groups divide
    the input channel axis of the filter.

    There is no kernel flip; ICg = IC // groups, OCg = OC // groups.

    Args:
        strides: Step of the kernel over the input along each spatial axis. Positive integers, one for each
            spatial axis. Required.
        pads_begin: Zeros that the forward pass assumes in front of input_forward along each spatial axis
            (front, top, left). Non-negative integers, one for each spatial axis. Required while auto_pad is
            'none', ignored otherwise.
        pads_end: Zeros that the forward pass assumes behind input_forward along each spatial axis (back,
            bottom, right). Non-negative integers, one for each spatial axis. Required while auto_pad is
            'none', ignored otherwise.
        dilations: Distance between neighbouring kernel taps along each spatial axis; 1 is a dense kernel.
            Positive integers, one for each spatial axis. Required.
        auto_pad: Where the padding comes from: the two pads attributes, a rule that keeps the size, or none
            at all. One of 'none', 'same_upper', 'same_lower', 'valid', in any case. Default 'none'.
        groups: Number of groups that input and output channels are divided into; group g sees only its own
            channels. A positive integer. Default 1.
        data_format: Axis order of input_forward and output_delta: channels before or behind the spatial
            axes. One of 'NCX', 'NXC'. Default 'NXC'.
        filter_format: Axis order of filter_delta and of filter_shape. One of 'OIX', 'XIO'. Default 'XIO'.
        filter_shape: Shape of the filter, in the order that filter_format names; an input of the same name
            replaces it. Positive integers.

    Raises:
        SpecError: an attribute is missing or its value is out of range; the message names it.

    Source: oneDNN Graph specification 0.x, ConvolutionBackpropFilters-1.
    """

    description: ClassVar[Description] = DESCRIPTION
    __slots__ = ()

    def __init__(
        self,
        *,
        strides: Sequence[int] | None = None,
        pads_begin: Sequence[int] | None = None,
        pads_end: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        auto_pad: str = "none",
        groups: int = 1,
        data_format: str = "NXC",
        filter_format: str = "XIO",
        filter_shape: Sequence[int] | None = None,
    ) -> None:
        super().__init__(
            {
                "strides": strides,
                "pads_begin": pads_begin,
                "pads_end": pads_end,
                "dilations": dilations,
                "auto_pad": auto_pad,
                "groups": groups,
                "data_format": data_format,
                "filter_format": filter_format,
                "filter_shape": filter_shape,
            }
        )

    def __call__(
        self,
        input_forward: T,
        output_delta: T,
        filter_shape: object = None,
        *,
        out: T | None = None,
        accumulate: bool = False,
        num_threads: int | None = None,
    ) -> T:
        """Gradient of a convolution with respect to its filters.

        Args:
            input_forward: Input of the forward convolution. (N, IC, I...) for NCX or (N, I..., IC) for NXC;
                f32, bf16, f16.
            output_delta: Gradient with respect to the output of the forward convolution. (N, OC, O...) for
                NCX or (N, O..., OC) for NXC; the same type.
            filter_shape: Shape of the weights; 1-D integers. When given, the attribute does not count.
            out: Takes the gradient: contiguous, of the weights' shape, of the inputs' type or f32.
            accumulate: Add to what out, which must be f32, holds.
            num_threads: Threads for this call; the result has the same bits for any number.

        Returns:
            Gradient with respect to the filter. It is out when that was given.

        Raises:
            SpecError: shapes, layout or memory do not fit; the message has the formula and its numbers.
            DTypeError: unsupported or mixed element types.
            CompileError: a kernel was needed for the first time, and could not be compiled.
        """
        return self._call(input_forward, output_delta, filter_shape, out, accumulate, num_threads)

    def prepare(
        self,
        input_forward: object,
        output_delta: object,
        filter_shape: object = None,
        *,
        dtype: object = None,
        out_dtype: object = None,
        accumulate: bool = False,
    ) -> Plan:
        """Do ahead everything that shapes and types decide: checks, choice of kernel, compilation.

        Args:
            input_forward: An array, or its shape as a tuple together with dtype.
            output_delta: Likewise.
            filter_shape: Shape of the weights; when given, the attribute does not count.
            dtype: Element type of inputs that are given as shapes: "f32", "bf16", "f16", or NumPy's or torch's own.
            out_dtype: Element type of the gradient: that of the inputs, or f32.
            accumulate: Whether calls add to what their out (f32) holds.

        Returns:
            A plan, which is called with the two arrays.

        Raises:
            SpecError, DTypeError, CompileError: as a call does.
        """
        return self._prepare(input_forward, output_delta, filter_shape, dtype, out_dtype, accumulate)


def convolution_backprop_filters(
    input_forward: T,
    output_delta: T,
    filter_shape: object,
    *,
    strides: Sequence[int] | None = None,
    pads_begin: Sequence[int] | None = None,
    pads_end: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    auto_pad: str = "none",
    groups: int = 1,
    data_format: str = "NXC",
    filter_format: str = "XIO",
    out: T | None = None,
    accumulate: bool = False,
    num_threads: int | None = None,
) -> T:
    """Gradient of a convolution with respect to its filters.

    Args:
        input_forward: Input of the forward convolution. (N, IC, I...) for NCX or (N, I..., IC) for NXC;
            f32, bf16, f16.
        output_delta: Gradient with respect to the output of the forward convolution. (N, OC, O...) for
            NCX or (N, O..., OC) for NXC; the same type.
        filter_shape: Shape of the weights, as a list of integers or a 1-D integer array.
        strides: Step of the kernel over the input along each spatial axis. Positive integers, one for
            each spatial axis. Required.
        pads_begin: Zeros that the forward pass assumes in front of input_forward along each spatial
            axis (front, top, left). Non-negative integers, one for each spatial axis. Required while
            auto_pad is 'none', ignored otherwise.
        pads_end: Zeros that the forward pass assumes behind input_forward along each spatial axis
            (back, bottom, right). Non-negative integers, one for each spatial axis. Required while
            auto_pad is 'none', ignored otherwise.
        dilations: Distance between neighbouring kernel taps along each spatial axis; 1 is a dense
            kernel. Positive integers, one for each spatial axis. Required.
        auto_pad: Where the padding comes from: the two pads attributes, a rule that keeps the size, or
            none at all. One of 'none', 'same_upper', 'same_lower', 'valid', in any case. Default
            'none'.
        groups: Number of groups that input and output channels are divided into; group g sees only its
            own channels. A positive integer. Default 1.
        data_format: Axis order of input_forward and output_delta: channels before or behind the spatial
            axes. One of 'NCX', 'NXC'. Default 'NXC'.
        filter_format: Axis order of filter_delta and of filter_shape. One of 'OIX', 'XIO'. Default
            'XIO'.
        out: Takes the gradient: contiguous, of the weights' shape, of the inputs' type or f32.
        accumulate: Add to what out, which must be f32, holds.
        num_threads: Threads for this call; the result has the same bits for any number.

    Returns:
        Gradient with respect to the filter. It is out when that was given.

    Raises:
        SpecError: shapes, layout or memory do not fit; the message has the formula and its numbers.
        DTypeError: unsupported or mixed element types.
        CompileError: a kernel was needed for the first time, and could not be compiled.
    """
    attribute, tensor = split_shape(filter_shape)
    operation = ConvolutionBackpropFilters(
        strides=strides,
        pads_begin=pads_begin,
        pads_end=pads_end,
        dilations=dilations,
        auto_pad=auto_pad,
        groups=groups,
        data_format=data_format,
        filter_format=filter_format,
        filter_shape=attribute,
    )
    return operation(input_forward, output_delta, tensor, out=out, accumulate=accumulate, num_threads=num_threads)
