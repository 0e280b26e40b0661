#pragma once

#include <cstddef>
#include <cstdint>

namespace gear::process_group {

/// Memory that copies of GPUs reach by themselves, while this lives: what torch's own page-locked
/// memory is, for memory that is there already. By the runtime that torch has loaded, of CUDA or of
/// ROCm.
class PageLock {
 public:
  /// In the context of the thread's device. Throws TransportError if the runtime refuses.
  PageLock(std::byte* data, uint64_t bytes);
  ~PageLock();
  PageLock(const PageLock&) = delete;
  PageLock& operator=(const PageLock&) = delete;

 private:
  std::byte* data_;
};

}  // namespace gear::process_group
