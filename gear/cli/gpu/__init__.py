"""`gear gpu`: the GPUs of this machine, what NVML tells of them, and who uses them."""
