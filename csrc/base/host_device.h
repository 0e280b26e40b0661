#pragma once

/// Marks a function that the host and kernels share: one source, the same bits on both.
#if defined(__CUDACC__)
#define GEAR_HD __host__ __device__
#else
#define GEAR_HD
#endif
