# SPDX-License-Identifier: Apache-2.0
"""How many CPUs this process may use: its affinity mask, and the quotas of its cgroups."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_NUMBER = re.compile(r"0*([1-9][0-9]{0,8})", re.ASCII)


def usable_cpus(root: Path = Path("/")) -> int:
    """Return how many CPUs this process may use: its affinity mask, bounded by the CPU quota of its cgroup.

    `root` is where /proc and /sys are.
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # A part of a CPU is better used than left: 1.5 CPUs are worth two threads.
    return min([cpus, *(max(1, -(-quota // period)) for quota, period in _quotas(root))])


def _quotas(root: Path) -> Iterator[tuple[int, int]]:
    """Yield (quota, period), both in microseconds, for the cgroup of this process and for those around it.

    Versions 1 and 2 of cgroups, mounted where they usually are. What cannot be read or understood sets no bound.
    """
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")  # "0::/path" is version 2, "4:cpu,cpuacct:/path" version 1
        if not controllers:
            mounts = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        elif "cpu" in controllers.split(","):
            mounts = [root / "sys/fs/cgroup" / name for name in dict.fromkeys((controllers, "cpu", "cpu,cpuacct"))]
        else:
            continue
        inner = PurePosixPath(path.lstrip("/"))
        if ".." in inner.parts:  # a cgroup outside the namespace of this process: only what is mounted is known
            inner = PurePosixPath()
        # A quota binds everything below. A container may see the path of its host, and then only the mount is there.
        for mount in mounts:
            for folder in (inner, *inner.parents):
                if controllers:
                    fields = [_read(mount / folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
                else:
                    fields = _read(mount / folder / "cpu.max").split()
                # No quota is "max" in version 2 and -1 in version 1: not digits, both of them.
                if len(fields) == 2 and all(_NUMBER.fullmatch(field) for field in fields):
                    yield int(fields[0]), int(fields[1])


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
