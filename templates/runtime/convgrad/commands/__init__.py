# SPDX-License-Identifier: Apache-2.0
"""What `python -m convgrad` offers: build, doctor, demo. Nothing that computes a gradient imports from here."""
