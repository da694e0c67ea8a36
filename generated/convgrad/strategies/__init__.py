# SPDX-License-Identifier: Apache-2.0
"""Ways to compute the sum, one module each: when it applies, which tiles it may use, and what each of them costs."""
