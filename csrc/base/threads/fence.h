#pragma once

namespace gear::base {

/// No load or store crosses it, in the compiler or in the processor. For memory that others read or
/// write beside the C++ memory model: other processes and devices. (ThreadSanitizer's builds refuse
/// std::atomic_thread_fence.)
inline void full_fence() { __sync_synchronize(); }

}  // namespace gear::base
