# SPDX-License-Identifier: Apache-2.0
"""The exported documentation: pages of operations, their errors, examples and drawings, all from the specifications."""
