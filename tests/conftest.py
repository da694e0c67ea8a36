# SPDX-License-Identifier: Apache-2.0
"""Tests run on the kernels for any size: thousands of geometries are no reason to compile thousands of kernels.

Those that are about specialised kernels ask for them.
"""

import os

os.environ["CONVGRAD_SPECIALIZE"] = "never"
