"""Steps the wall clock of a Python process by the seconds that stand in a file, as somebody does who sets the clock.

Python imports a module of this name by itself when it starts. `bench.fault_scene` puts this folder on the path of the
processes whose clock a fault steps, and names the file in STEPPED_CLOCK: one number, as C's double. The monotonic clock
goes on as it was, as it does when a machine's clock is set.
"""

import mmap
import os
import struct
import time

STEP = struct.Struct("d")

with open(os.environ["STEPPED_CLOCK"], "rb") as _file:  # noqa: PTH123
    _step = mmap.mmap(_file.fileno(), STEP.size, access=mmap.ACCESS_READ)
_time, _time_ns = time.time, time.time_ns


def _stepped() -> float:
    return _time() + float(STEP.unpack_from(_step)[0])


def _stepped_ns() -> int:
    return _time_ns() + round(float(STEP.unpack_from(_step)[0]) * 1e9)


time.time, time.time_ns = _stepped, _stepped_ns
