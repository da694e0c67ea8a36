# SPDX-License-Identifier: Apache-2.0
"""`python -m convgrad build`: every kernel compiled ahead, so that no call has to wait for the compiler."""

from __future__ import annotations

import time

from rich.progress import TextColumn

from convgrad.cache import VARIABLE, cache_directory
from convgrad.commands.console import make_console, make_progress, print_json
from convgrad.commands.doctor import find_cached
from convgrad.kernel_table import KERNELS
from convgrad.loader import BuildStep, build_all


def run_build(*, jobs: int | None, as_json: bool) -> bool:
    """Compile all that is not in the cache yet, and print how that goes.

    Returns:
        Whether all of it is in the cache now (without a usable cache it was compiled in vain).

    Raises:
        CompileError: there is no compiler, or it failed.
    """
    console, bar = make_console(), make_console(stderr=True)
    finished: list[BuildStep] = []
    start = time.perf_counter()
    with make_progress(bar, TextColumn("{task.fields[name]}")) as progress:
        task = progress.add_task("compiling", total=1 + len(KERNELS), name="")

        def report(step: BuildStep) -> None:
            finished.append(step)
            progress.update(task, completed=step.position, name=step.name)
            if not as_json and not bar.is_terminal:
                how = f"compiled in {step.seconds:.1f} s" if step.compiled else "in the cache already"
                console.print(f"{step.position:3d}/{step.total} {step.name} {how}")

        build_all(progress=report, jobs=jobs)
    seconds = time.perf_counter() - start
    compiled = sum(step.compiled for step in finished)
    cached = find_cached()
    complete = all(cached.values())
    if as_json:
        print_json(
            {
                "ok": complete,
                "cache": str(cache_directory()),
                "compiled": compiled,
                "seconds": seconds,
                "steps": [step._asdict() for step in finished],
            }
        )
    else:
        console.print(
            f"{len(finished)} modules: {compiled} compiled, {len(finished) - compiled} in the cache already; "
            f"{seconds:.1f} s"
        )
        if complete:
            console.print(f"cache: {cache_directory()}", soft_wrap=True)
        else:
            console.print(
                f"the cache could not keep {sum(not there for there in cached.values())} of them: set {VARIABLE} to a "
                "folder of your own; `python -m convgrad doctor` says more",
                soft_wrap=True,
            )
    return complete
