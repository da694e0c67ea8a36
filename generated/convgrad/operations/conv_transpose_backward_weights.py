# SPDX-License-Identifier: Apache-2.0
# Generated from the specification of ConvTransposeBackwardWeights and templates/python/operation.py.j2.
# Do not edit: `python -m codegen generate` writes it again.
"""Gradient of a transposed convolution with respect to its weights.

Source: oneDNN Graph operation reference, ConvTransposeBackwardWeights
Source: oneDNN Graph specification 0.x, ConvTransposeBackpropFilters-1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

from convgrad.description import Attribute, Definition, Description, Formula, Input, Reading, Remedy, Rule
from convgrad.operation import WeightsGradient, split_shape
from convgrad.plan import Plan

T = TypeVar("T")

DESCRIPTION = Description(
    name="ConvTransposeBackwardWeights",
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
        Attribute(
            "output_padding",
            role="output_padding",
            kind="s64[]",
            range="non-negative",
            length="spatial",
            default=0,
        ),
        Attribute("groups", role="groups", kind="s64", range="positive", default=1),
        Attribute("data_format", role="data_format", kind="string", words=("NCX", "NXC"), default="NXC"),
        Attribute("weights_format", role="weights_format", kind="string", words=("IOX", "XOI"), default="XOI"),
        Attribute("weights_shape", role="weights_shape", kind="s64[]", range="positive", length="weights"),
    ),
    inputs=(
        Input("src", channels="IC", spatial="I"),
        Input("diff_dst", channels="OC", spatial="O"),
    ),
    shape_name="weights_shape",
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
    same_total=Formula("max(0, eff - s)", ("eff", "s"), lambda eff, s: max(0, eff - s)),
    readings=(
        Reading("document", layouts={"IOX": ("IC/groups", "OC", "X"), "XOI": ("X", "OC", "IC/groups")}, plain="src"),
        Reading("library", layouts={"IOX": ("IC", "OC/groups", "X"), "XOI": ("X", "OC/groups", "IC")}, plain="src"),
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
            id="output_size",
            subject="diff_dst",
            sentence=(
                "The spatial size of diff_dst is what the forward transposed convolution gives, output_padding "
                "included."
            ),
            per_axis=True,
            left=Formula("O", ("O",), lambda O: O),
            comparison="==",
            right=Formula(
                "(I - 1) * s + eff - pb - pe + op",
                ("I", "s", "eff", "pb", "pe", "op"),
                lambda I, s, eff, pb, pe, op: (I - 1) * s + eff - pb - pe + op,
            ),
            remedy=Remedy(
                "output_padding",
                Formula(
                    "O - ((I - 1) * s + eff - pb - pe)",
                    ("O", "I", "s", "eff", "pb", "pe"),
                    lambda O, I, s, eff, pb, pe: O - ((I - 1) * s + eff - pb - pe),
                ),
            ),
        ),
    ),
)
"""The operation as data; the checks and the resolution of shapes read it."""


class ConvTransposeBackwardWeights(WeightsGradient):
    """Takes the input of a forward transposed convolution and the gradient that arrived at its output, and gives
    the gradient of the weights that connect the two. It is the sum of the plain convolution with the two
    tensors in exchanged roles: here the window moves over diff_dst.

    diff_weights[j, oc, k] = sum over n, i of src[n, g * ICg + j, i] * diff_dst[n, oc, i * s + k * d - pb],
        g = oc // OCg
    IOX is (IC/groups, OC, X); XOI is (X, OC, IC/groups), X standing for the kernel's axes. Groups divide
    the input channel axis of the weights, as the operation's document lays them out.

    diff_weights[ic, m, k] = sum over n, i of src[n, ic, i] * diff_dst[n, g * OCg + m, i * s + k * d - pb],
        g = ic // ICg
    IOX is (IC, OC/groups, X); XOI is (X, OC/groups, IC), X standing for the kernel's axes. Groups divide
    the output channel axis of the weights, as oneDNN's library, PyTorch and ONNX lay them out.

    There is no kernel flip; ICg = IC // groups, OCg = OC // groups.

    Args:
        strides: Step of the kernel over the output along each spatial axis. Positive integers, one for each
            spatial axis. Required.
        pads_begin: Positions that the forward pass cuts off in front of its output along each spatial axis
            (front, top, left). Non-negative integers, one for each spatial axis. Required while auto_pad is
            'none', ignored otherwise.
        pads_end: Positions that the forward pass cuts off behind its output along each spatial axis (back,
            bottom, right). Non-negative integers, one for each spatial axis. Required while auto_pad is
            'none', ignored otherwise.
        dilations: Distance between neighbouring kernel taps along each spatial axis; 1 is a dense kernel.
            Positive integers, one for each spatial axis. Required.
        auto_pad: Where the padding comes from: the two pads attributes, a rule that keeps the size, or none
            at all. One of 'none', 'same_upper', 'same_lower', 'valid', in any case. Default 'none'.
        output_padding: Extra positions behind the forward output along each spatial axis, which strides
            above 1 leave open. Non-negative integers, one for each spatial axis. Default 0 for every axis.
        groups: Number of groups that input and output channels are divided into; group g sees only its own
            channels. A positive integer. Default 1.
        data_format: Axis order of src and diff_dst: channels before or behind the spatial axes. One of
            'NCX', 'NXC'. Default 'NXC'.
        weights_format: Axis order of diff_weights and of weights_shape. One of 'IOX', 'XOI'. Default 'XOI'.
        weights_shape: Shape of the weights, in the order that weights_format names; an input of the same
            name replaces it. Positive integers.

    Raises:
        SpecError: an attribute is missing or its value is out of range; the message names it.

    Source: oneDNN Graph operation reference, ConvTransposeBackwardWeights.
    Source: oneDNN Graph specification 0.x, ConvTransposeBackpropFilters-1.
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
        output_padding: Sequence[int] | None = None,
        groups: int = 1,
        data_format: str = "NXC",
        weights_format: str = "XOI",
        weights_shape: Sequence[int] | None = None,
    ) -> None:
        super().__init__(
            {
                "strides": strides,
                "pads_begin": pads_begin,
                "pads_end": pads_end,
                "dilations": dilations,
                "auto_pad": auto_pad,
                "output_padding": output_padding,
                "groups": groups,
                "data_format": data_format,
                "weights_format": weights_format,
                "weights_shape": weights_shape,
            }
        )

    def __call__(
        self,
        src: T,
        diff_dst: T,
        weights_shape: object = None,
        *,
        out: T | None = None,
        accumulate: bool = False,
        num_threads: int | None = None,
    ) -> T:
        """Gradient of a transposed convolution with respect to its weights.

        Args:
            src: Input of the forward transposed convolution. (N, IC, I...) for NCX or (N, I..., IC) for
                NXC; f32, bf16, f16.
            diff_dst: Gradient with respect to the output of the forward transposed convolution. (N, OC,
                O...) for NCX or (N, O..., OC) for NXC; the same type.
            weights_shape: Shape of the weights; 1-D integers. When given, the attribute does not count.
            out: Takes the gradient: contiguous, of the weights' shape, of the inputs' type or f32.
            accumulate: Add to what out, which must be f32, holds.
            num_threads: Threads for this call; the result has the same bits for any number.

        Returns:
            Gradient with respect to the weights. It is out when that was given.

        Raises:
            SpecError: shapes, layout or memory do not fit; the message has the formula and its numbers.
            DTypeError: unsupported or mixed element types.
            CompileError: a kernel was needed for the first time, and could not be compiled.
        """
        return self._call(src, diff_dst, weights_shape, out, accumulate, num_threads)

    def prepare(
        self,
        src: object,
        diff_dst: object,
        weights_shape: object = None,
        *,
        dtype: object = None,
        out_dtype: object = None,
        accumulate: bool = False,
    ) -> Plan:
        """Do ahead everything that shapes and types decide: checks, choice of kernel, compilation.

        Args:
            src: An array, or its shape as a tuple together with dtype.
            diff_dst: Likewise.
            weights_shape: Shape of the weights; when given, the attribute does not count.
            dtype: Element type of inputs that are given as shapes: "f32", "bf16", "f16", or NumPy's or torch's own.
            out_dtype: Element type of the gradient: that of the inputs, or f32.
            accumulate: Whether calls add to what their out (f32) holds.

        Returns:
            A plan, which is called with the two arrays.

        Raises:
            SpecError, DTypeError, CompileError: as a call does.
        """
        return self._prepare(src, diff_dst, weights_shape, dtype, out_dtype, accumulate)


def conv_transpose_backward_weights(
    src: T,
    diff_dst: T,
    weights_shape: object,
    *,
    strides: Sequence[int] | None = None,
    pads_begin: Sequence[int] | None = None,
    pads_end: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    auto_pad: str = "none",
    output_padding: Sequence[int] | None = None,
    groups: int = 1,
    data_format: str = "NXC",
    weights_format: str = "XOI",
    out: T | None = None,
    accumulate: bool = False,
    num_threads: int | None = None,
) -> T:
    """Gradient of a transposed convolution with respect to its weights.

    Args:
        src: Input of the forward transposed convolution. (N, IC, I...) for NCX or (N, I..., IC) for
            NXC; f32, bf16, f16.
        diff_dst: Gradient with respect to the output of the forward transposed convolution. (N, OC,
            O...) for NCX or (N, O..., OC) for NXC; the same type.
        weights_shape: Shape of the weights, as a list of integers or a 1-D integer array.
        strides: Step of the kernel over the output along each spatial axis. Positive integers, one for
            each spatial axis. Required.
        pads_begin: Positions that the forward pass cuts off in front of its output along each spatial
            axis (front, top, left). Non-negative integers, one for each spatial axis. Required while
            auto_pad is 'none', ignored otherwise.
        pads_end: Positions that the forward pass cuts off behind its output along each spatial axis
            (back, bottom, right). Non-negative integers, one for each spatial axis. Required while
            auto_pad is 'none', ignored otherwise.
        dilations: Distance between neighbouring kernel taps along each spatial axis; 1 is a dense
            kernel. Positive integers, one for each spatial axis. Required.
        auto_pad: Where the padding comes from: the two pads attributes, a rule that keeps the size, or
            none at all. One of 'none', 'same_upper', 'same_lower', 'valid', in any case. Default
            'none'.
        output_padding: Extra positions behind the forward output along each spatial axis, which strides
            above 1 leave open. Non-negative integers, one for each spatial axis. Default 0 for every
            axis.
        groups: Number of groups that input and output channels are divided into; group g sees only its
            own channels. A positive integer. Default 1.
        data_format: Axis order of src and diff_dst: channels before or behind the spatial axes. One of
            'NCX', 'NXC'. Default 'NXC'.
        weights_format: Axis order of diff_weights and of weights_shape. One of 'IOX', 'XOI'. Default
            'XOI'.
        out: Takes the gradient: contiguous, of the weights' shape, of the inputs' type or f32.
        accumulate: Add to what out, which must be f32, holds.
        num_threads: Threads for this call; the result has the same bits for any number.

    Returns:
        Gradient with respect to the weights. It is out when that was given.

    Raises:
        SpecError: shapes, layout or memory do not fit; the message has the formula and its numbers.
        DTypeError: unsupported or mixed element types.
        CompileError: a kernel was needed for the first time, and could not be compiled.
    """
    attribute, tensor = split_shape(weights_shape)
    operation = ConvTransposeBackwardWeights(
        strides=strides,
        pads_begin=pads_begin,
        pads_end=pads_end,
        dilations=dilations,
        auto_pad=auto_pad,
        output_padding=output_padding,
        groups=groups,
        data_format=data_format,
        weights_format=weights_format,
        weights_shape=attribute,
    )
    return operation(src, diff_dst, tensor, out=out, accumulate=accumulate, num_threads=num_threads)
