# SPDX-License-Identifier: Apache-2.0
"""The generator: turns specifications and templates into the files below generated/. Never imported at run time."""
