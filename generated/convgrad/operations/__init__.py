# SPDX-License-Identifier: Apache-2.0
# Generated from the specifications and templates/python/operations_init.py.j2.
# Do not edit: `python -m codegen generate` writes it again.
"""One module for each operation: its description, its class, its function."""

from convgrad.operations.conv_transpose_backprop_filters import ConvTransposeBackpropFilters
from convgrad.operations.conv_transpose_backward_weights import ConvTransposeBackwardWeights
from convgrad.operations.convolution_backprop_filters import ConvolutionBackpropFilters
from convgrad.operations.convolution_backward_weights import ConvolutionBackwardWeights

OPERATIONS = (
    ConvTransposeBackpropFilters,
    ConvTransposeBackwardWeights,
    ConvolutionBackpropFilters,
    ConvolutionBackwardWeights,
)
"""Every operation of the package."""
