"""The GPUs that the driver shows this process."""

from __future__ import annotations

import ctypes


def visible_device_count() -> int:
    """Number of CUDA devices the driver shows this process; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def check_visible_device() -> int:
    """Prints and returns the number of visible CUDA devices."""
    count = visible_device_count()
    print(f"CHECK visible_device_count{'.' * 39}{count}.")
    return count
