# SPDX-License-Identifier: Apache-2.0
# Generated from the specifications and templates/python/init.py.j2.
# Do not edit: `python -m codegen generate` writes it again.
"""Gradients of convolutions with respect to their weights, computed by C kernels that a generator wrote.

ConvTransposeBackpropFilters and conv_transpose_backprop_filters
ConvTransposeBackwardWeights and conv_transpose_backward_weights
ConvolutionBackpropFilters and convolution_backprop_filters
ConvolutionBackwardWeights and convolution_backward_weights

NumPy arrays in, NumPy arrays out; torch tensors in, torch tensors out. Kernels are compiled the first time that they
are needed, and cached (see `python -m convgrad doctor`).
"""

from convgrad.errors import CacheSecurityError, CompileError, DTypeError, SpecError
from convgrad.mode import get_specialize, set_specialize
from convgrad.operations.conv_transpose_backprop_filters import (
    ConvTransposeBackpropFilters,
    conv_transpose_backprop_filters,
)
from convgrad.operations.conv_transpose_backward_weights import (
    ConvTransposeBackwardWeights,
    conv_transpose_backward_weights,
)
from convgrad.operations.convolution_backprop_filters import (
    ConvolutionBackpropFilters,
    convolution_backprop_filters,
)
from convgrad.operations.convolution_backward_weights import (
    ConvolutionBackwardWeights,
    convolution_backward_weights,
)
from convgrad.plan import Plan
from convgrad.threads import get_num_threads, set_num_threads

__all__ = [
    "CacheSecurityError",
    "CompileError",
    "ConvTransposeBackpropFilters",
    "ConvTransposeBackwardWeights",
    "ConvolutionBackpropFilters",
    "ConvolutionBackwardWeights",
    "DTypeError",
    "Plan",
    "SpecError",
    "conv_transpose_backprop_filters",
    "conv_transpose_backward_weights",
    "convolution_backprop_filters",
    "convolution_backward_weights",
    "get_num_threads",
    "get_specialize",
    "set_num_threads",
    "set_specialize",
]
