# SPDX-License-Identifier: Apache-2.0
"""How many threads a call may use. The number lives here and goes to the C runtime with each call.

Results have the same bits for any number. It is, in this order: what `set_num_threads` was given; CONVGRAD_NUM_THREADS;
the first number in OMP_NUM_THREADS; the CPUs that this process may use (affinity mask, bounded by the CPU quota of its
cgroup). The environment is read once, when the number is first asked for.

threadpoolctl finds this package under the name "convgrad" (user_api and internal_api), like any library: from the
time when the C runtime is loaded, at the first call or `prepare`. threadpoolctl is never imported from here (it takes
15 ms and sets an environment variable); once the program has imported it, the next call without num_threads= registers.
A program that imports it after its last such call calls `register_with_threadpoolctl` itself.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Final

from convgrad.attributes import read_integer
from convgrad.errors import SpecError, quote_value

VARIABLE: Final = "CONVGRAD_NUM_THREADS"
OPENMP_VARIABLE: Final = "OMP_NUM_THREADS"
MAX_THREADS: Final = 1024
"""WGRAD_MAX_THREADS of wgrad_runtime.h."""

_NUMBER = re.compile(r"0*([1-9][0-9]{0,8})", re.ASCII)

_num_threads: int | None = None
_registered = False


def set_num_threads(num_threads: int) -> None:
    """Set how many threads a call may use from now on, in the whole process.

    Raises SpecError if `num_threads` is not an integer from 1 to 1024. See get_num_threads for what holds before.
    """
    global _num_threads
    _num_threads = check_num_threads(num_threads)


def get_num_threads() -> int:
    """Return how many threads a call may use, the calling one included.

    Raises SpecError if CONVGRAD_NUM_THREADS decides it and is not an integer from 1 to 1024.
    """
    global _num_threads
    if not _registered and "threadpoolctl" in sys.modules:
        register_with_threadpoolctl()
    if _num_threads is None:
        _num_threads = _default_num_threads()
    return _num_threads


def check_num_threads(num_threads: int) -> int:
    """Return `num_threads` as an int. Raises SpecError if it is not an integer (bool is none) from 1 to 1024."""
    if type(num_threads) is int and 1 <= num_threads <= MAX_THREADS:
        return num_threads
    number = read_integer(num_threads)
    if number is None or not 1 <= number <= MAX_THREADS:
        raise SpecError(f"num_threads = {quote_value(num_threads)}: expected an integer from 1 to {MAX_THREADS}")
    return number


def _default_num_threads() -> int:
    text = os.environ.get(VARIABLE, "").strip()
    if text:
        match = _NUMBER.fullmatch(text)
        if match is None or int(match[1]) > MAX_THREADS:
            raise SpecError(
                f"{VARIABLE}={text!r}: expected an integer from 1 to {MAX_THREADS}; set it to one, or unset it to use "
                "every CPU that this process may use"
            )
        return int(match[1])
    from convgrad.cpus import usable_cpus  # which reads files: nothing that every import of the package has to wait for

    # OpenMP's variable is not ours to complain about. Its lists have a number for each level of nesting.
    match = _NUMBER.fullmatch(os.environ.get(OPENMP_VARIABLE, "").split(",")[0].strip())
    return min(int(match[1]) if match is not None else usable_cpus(), MAX_THREADS)


def register_with_threadpoolctl() -> bool:
    """Tell threadpoolctl of this package if it has been imported. Return whether it knows. May be called again."""
    global _registered
    threadpoolctl = sys.modules.get("threadpoolctl")
    # Another thread may be in the middle of importing it: then a later call does this.
    initializing = getattr(getattr(threadpoolctl, "__spec__", None), "_initializing", False)
    if not _registered and not initializing and hasattr(threadpoolctl, "register"):
        _registered = True
        _register(threadpoolctl)
    return _registered


def _register(threadpoolctl: Any) -> None:
    class ConvgradController(threadpoolctl.LibController):  # type: ignore[misc]
        """The number of threads of convgrad, for threadpool_limits and threadpool_info."""

        user_api = "convgrad"
        internal_api = "convgrad"
        # The cache calls every shared object module.so; which of them is the runtime, its symbols tell.
        filename_prefixes = ("module",)
        check_symbols = ("wgrad_run",)

        def get_num_threads(self) -> int:
            return get_num_threads()

        def set_num_threads(self, num_threads: int) -> None:
            set_num_threads(num_threads)

        def get_version(self) -> None:
            return None  # that of the package, whose metadata has it

    threadpoolctl.register(ConvgradController)
