#pragma once

// Order for memory that others read or write beside the C++ memory model: other processes, and
// network cards. (ThreadSanitizer's builds refuse std::atomic_thread_fence.)
//
// AArch64's "dmb ish", which __sync_synchronize() is there, and the order of atomics hold for CPUs:
// the inner shareable domain. A card that reads or writes memory is an observer of the outer
// shareable one, whose barriers "dmb osh" are: Linux has them in dma_mb(), and rdma-core in
// udma_to_device_barrier(). They hold for CPUs too.
namespace gear::base {

/// No load or store crosses it, in the compiler or in the processor.
inline void full_fence() {
#if defined(__aarch64__)
  asm volatile("dmb osh" ::: "memory");
#else
  __sync_synchronize();
#endif
}

/// Whoever sees a store behind it sees those before it.
inline void store_fence() {
#if defined(__aarch64__)
  asm volatile("dmb oshst" ::: "memory");
#elif defined(__x86_64__)
  asm volatile("" ::: "memory");  // the processor keeps the order of stores
#else
  __sync_synchronize();
#endif
}

}  // namespace gear::base
