# SPDX-License-Identifier: Apache-2.0
"""What the operations are: closed, frozen, machine-readable specifications. Imports nothing else of this project."""

from specs.loader import SpecFileError, load_operation, load_operations
from specs.model import Operation

__all__ = ["Operation", "SpecFileError", "load_operation", "load_operations"]
