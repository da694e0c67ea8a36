# SPDX-License-Identifier: Apache-2.0
"""Kernels compiled with the sizes of one problem as constants: when they are made, and how many there are.

A geometry runs at once on the kernel for any size. When it comes back, its specialised kernel is compiled by one thread
in the background, checked, cached on disk, and taken by the calls that follow; the bits of the results do not change. A
later process finds it in the cache at its first call. `set_specialize`, or CONVGRAD_SPECIALIZE, chooses:

    auto   as described (the default)
    wait   each geometry's first call waits for its specialised kernel
    never  only the kernels for any size, from the next call on

The batch is no constant, so all batch sizes of a layer share one kernel. Layers whose other sizes keep changing do not
start a compilation for each of them: see `calls_needed`. The LOADED_LIMIT kernels called last stay in memory; another
one is closed as soon as no call is in it, and opened from the disk when its geometry has come back again.

A compilation that fails is not tried again in this process; the calls go on with the kernel for any size, and one
warning says so.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import os
import threading
import warnings
import weakref
from collections import OrderedDict, deque
from time import monotonic

from convgrad.errors import CompileError
from convgrad.geometry import Geometry
from convgrad.loader import find_specialised, open_specialised
from convgrad.mode import VARIABLE, get_specialize
from convgrad.planner import Schedule, plan_schedule
from convgrad.shared_object import SharedObject

LOADED_LIMIT = 256
"""Specialised kernels in memory."""
QUEUE_LIMIT = 32
"""Kernels that wait for the background thread; what finds it full asks again at a later call."""
COMPILES_PER_LAYER = 16
"""Compilations that one layer may start in this process, however many sizes its data come in."""
KNOWN_LIMIT = 4096
"""Geometries, and layers, whose calls are counted."""
EXIT_SECONDS = 0.5
"""How long the end of the process may wait for the background thread to stop its compiler and to clear up."""

def calls_needed(distinct: int, compiled: int) -> int | None:
    """Return how many calls a geometry needs before it is compiled; None: it is not compiled.

    distinct  geometries of its layer (the same but for extents and padding) that this process has seen
    compiled  those of them whose compilation was started

    Two: it has come back. More once its layer has had several, or while ever new ones keep arriving: random lengths do
    come back now and then, but few of them often enough to pay for a compiler.
    """
    if compiled >= COMPILES_PER_LAYER:
        return None
    return max(2, distinct // 8) << (compiled // 4 * 2)


class _Layer:
    """Counts of the geometries that differ in nothing but their extents and padding."""

    __slots__ = ("compiled", "distinct")

    def __init__(self) -> None:
        self.distinct = self.compiled = 0


class Specialisation:
    """One specialised kernel: not there yet, on its way, loaded, or impossible. Shared by all plans that it serves."""

    __slots__ = (
        "__weakref__",
        "calls",
        "evictions",
        "failed",
        "layer",
        "lock",
        "queued",
        "schedule",
        "shared_object",
    )

    def __init__(self, schedule: Schedule, layer: _Layer) -> None:
        self.schedule = schedule
        self.layer = layer
        self.calls = 0
        """Calls without it, since it was last loaded. (Threads may lose some.)"""
        self.evictions = 0
        self.failed = False
        self.queued = False
        self.lock = threading.Lock()  # held by the one thread that builds it
        self.shared_object: SharedObject | None = None
        _alive.add(self)

    def ask(self) -> SharedObject | None:
        """Count a call that goes without it, and see to it that one day it is there; "wait": now."""
        if self.failed:
            return None
        if get_specialize() == "wait":
            return self.build()
        self.calls += 1
        if not self.queued and not self._is_premature():
            _enqueue(self)
        return None

    def _is_premature(self) -> bool:
        if self.evictions:  # it is on the disk. What is thrown out again and again has to wait longer each time.
            return self.calls < 2 << min(self.evictions, 16)
        needed = calls_needed(self.layer.distinct, self.layer.compiled)
        return needed is None or self.calls < needed

    def find(self) -> None:
        """Load it if the cache on disk has it."""
        with self.lock:
            if self.shared_object is None and (found := find_specialised(self.schedule)) is not None:
                self._take(found)

    def build(self, stop: threading.Event | None = None) -> SharedObject | None:
        """Load it, compiling it first if need be. None if that fails, now or earlier: the first such failure warns."""
        with self.lock:
            if (known := self.shared_object) is not None or self.failed:
                return known
            try:
                new = open_specialised(self.schedule, stop)
            except (CompileError, MemoryError) as error:
                if stop is None or not stop.is_set():
                    self.failed = True
                    _warn(self.schedule, error)
                return None
            self._take(new)
            return new

    def _take(self, new: SharedObject) -> None:
        new.last_call = monotonic()
        self.shared_object = new
        self.calls = 0
        _bound_loaded(self)


class Follower:
    """What a plan knows of its specialised kernel for one number of threads. Safe to share between threads."""

    __slots__ = ("_problem", "_schedule", "_specialisation")

    def __init__(self, geometry: Geometry, dtype: str, isa: str, threads: int) -> None:
        self._problem = (geometry, dtype, isa, threads)
        self._schedule: Schedule | None = None
        self._specialisation: Specialisation | None = None

    @property
    def schedule(self) -> Schedule:
        """How this plan runs the specialised kernel."""
        if self._schedule is None:
            self._schedule = _plan(*self._problem)
        return self._schedule

    @property
    def shared_object(self) -> SharedObject | None:
        """The specialised kernel if the next call takes it; asking counts as no call."""
        if get_specialize() == "never" or self._specialisation is None:
            return None
        return self._specialisation.shared_object

    @property
    def ready(self) -> bool:
        """Whether the next call takes the specialised kernel."""
        return self.shared_object is not None

    def note_call(self) -> SharedObject | None:
        """Return the specialised kernel for the call about to be made, or None: then the one for any size runs.

        The caller holds on to the answer until the kernel has returned. Raises SpecError if CONVGRAD_SPECIALIZE is
        wrong.
        """
        if get_specialize() == "never":
            return None
        specialisation = self._specialisation or self._join()
        shared_object = specialisation.shared_object
        if shared_object is None:
            return specialisation.ask()
        shared_object.last_call = monotonic()
        return shared_object

    def wait(self) -> bool:
        """Make the specialised kernel ready now, unless the mode is "never". Return whether it is."""
        if get_specialize() == "never":
            return False
        return (self._specialisation or self._join()).build() is not None

    def _join(self) -> Specialisation:
        self._specialisation = specialisation = _find(self.schedule)
        return specialisation


@functools.lru_cache(maxsize=1024)
def _plan(geometry: Geometry, dtype: str, isa: str, threads: int) -> Schedule:
    # Kept, because a function call makes a new plan each time.
    return plan_schedule(geometry, dtype, isa, specialised=True, threads=threads)


_guard = threading.Lock()
"""Held for moments, while one of these is changed."""
_known: OrderedDict[object, Specialisation] = OrderedDict()
_layers: OrderedDict[object, _Layer] = OrderedDict()
_loaded: list[Specialisation] = []
_queue: deque[Specialisation] = deque()
_thread: threading.Thread | None = None
_stop = threading.Event()
_warned = False
_alive: weakref.WeakSet[Specialisation] = weakref.WeakSet()


def _find(schedule: Schedule) -> Specialisation:
    """Return the specialisation of these sizes, whatever the batch; a new one is looked up on the disk."""
    geometry = schedule.geometry
    key = (schedule.kernel, schedule.isa, None if schedule.sizes is None else tuple(sorted(schedule.sizes.items())))
    with _guard:
        known = _known.get(key)
        if known is not None:
            _known.move_to_end(key)
            return known
        sizes = (geometry.G, geometry.P, geometry.W, geometry.K, geometry.stride, geometry.dilation)
        layer = _layers.setdefault((schedule.kernel.symbol, schedule.isa, *sizes), _Layer())
        layer.distinct += 1
        known = _known[key] = Specialisation(schedule, layer)
        known.failed = not schedule.sizes  # this strategy has no specialised kernels
        for table in (_known, _layers):
            if len(table) > KNOWN_LIMIT:
                table.popitem(last=False)
    if not known.failed:
        known.find()
    return known


def _bound_loaded(new: Specialisation) -> None:
    """Enter a specialisation just loaded, and let go of those called longest ago. Running calls keep theirs open."""
    with _guard:
        _loaded.append(new)
        while len(_loaded) > LOADED_LIMIT:
            oldest = min(_loaded[:-1], key=lambda one: one.shared_object.last_call if one.shared_object else 0.0)
            _loaded.remove(oldest)
            oldest.evictions += 1
            oldest.shared_object = None


def _enqueue(specialisation: Specialisation) -> None:
    global _thread
    with _guard:
        if specialisation.queued or len(_queue) >= QUEUE_LIMIT or _stop.is_set():
            return
        specialisation.queued = True
        if not specialisation.evictions:
            specialisation.layer.compiled += 1
        _queue.append(specialisation)
        if _thread is None:
            # What the thread would import: a fork in the middle of that leaves a module that no child can import.
            for module in ("convgrad.self_test", "filelock", "resource"):
                importlib.import_module(module)
            # A daemon: the end of the process does not wait for it.
            _thread = threading.Thread(target=_build_queued, name="convgrad-specialise", daemon=True)
            _thread.start()


def _build_queued() -> None:
    """Build what is queued, and end."""
    global _thread
    while True:
        with _guard:
            if not _queue or _stop.is_set():
                _thread = None
                return
            specialisation = _queue.popleft()
        try:
            specialisation.build(_stop)
        except Exception as error:  # whatever it is, the calls have the kernel for any size
            specialisation.failed = True
            _warn(specialisation.schedule, error)
        finally:
            specialisation.queued = False


def _warn(schedule: Schedule, error: Exception) -> None:
    global _warned
    with _guard:
        warn, _warned = not _warned, True
    if warn:
        with contextlib.suppress(RuntimeWarning):  # where warnings are errors: the result is right all the same
            warnings.warn(
                f"convgrad: {schedule.kernel.symbol} could not be compiled with fixed sizes; the slower kernel for any "
                f"size is used instead. {error}\n(Said once. {VARIABLE}=never keeps convgrad from trying.)",
                RuntimeWarning,
                stacklevel=2,
            )


def _stop_at_exit() -> None:
    """Stop the compiler that may be running, so that nothing is left behind."""
    _stop.set()
    if (thread := _thread) is not None:
        thread.join(EXIT_SECONDS)


def _reset_after_fork() -> None:
    """In the child there is no background thread, and what it had in hand is nobody's."""
    global _guard, _thread, _stop
    _guard, _stop = threading.Lock(), threading.Event()
    _thread = None
    _queue.clear()
    for specialisation in list(_alive):
        specialisation.lock = threading.Lock()
        specialisation.queued = False


atexit.register(_stop_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
