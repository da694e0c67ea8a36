# SPDX-License-Identifier: Apache-2.0
"""`python -m convgrad bench`: kernels against torch and oneDNN, against the roofs of the machine, and against float64.

problem      what one layer asks for, and the strings that say so
suites       the layers of well-known networks, as data
session      the run: a child process measures, this one reports
operands     the tensors of a problem, and its gradient in float64
operation    the operation whose gradient a problem is
worker       the child process: one problem at a time, contenders interleaved
contender    this package's kernel, torch's and oneDNN's, behind one interface
clock        loops and clocks in C
roofs        what the machine could do: multiply-adds, and reading from each level of memory
statistics   medians of pairs, and how sure they are
report       tables and JSON
figure       the picture
"""
