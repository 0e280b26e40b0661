#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <vector>

namespace gear::memory {

/// Allocates arrays that are read and written at random places: at a cache line's begin and, from
/// 1 MiB on, in whole huge pages (where the system has them), of which a processor remembers where
/// more memory lies. Throws std::bad_alloc.
template <class T>
class LargeAllocator {
 public:
  using value_type = T;

  LargeAllocator() = default;
  template <class U>
  LargeAllocator(const LargeAllocator<U>&) noexcept {}  // NOLINT: what a rebind needs

  T* allocate(size_t count) {
    const Block block(count);
    void* data = ::operator new(block.bytes, block.alignment);
    // A kernel built without huge pages refuses; ordinary pages do as well.
    if (block.huge) {
      static_cast<void>(::madvise(data, block.bytes, MADV_HUGEPAGE));
    }
    return static_cast<T*>(data);
  }

  void deallocate(T* data, size_t count) noexcept {
    ::operator delete(data, Block(count).alignment);
  }

  friend bool operator==(const LargeAllocator&, const LargeAllocator&) noexcept { return true; }

 private:
  static constexpr size_t kLine = 64;
  static constexpr size_t kHugePage = size_t{2} << 20;
  static constexpr size_t kHugeFrom = size_t{1} << 20;

  struct Block {
    explicit Block(size_t count)
        : bytes(count * sizeof(T)), huge(bytes >= kHugeFrom), alignment{huge ? kHugePage : kLine} {
      if (huge) {
        bytes = (bytes + kHugePage - 1) / kHugePage * kHugePage;
      }
    }
    size_t bytes;
    bool huge;
    std::align_val_t alignment;
  };
};

template <class T>
using LargeVector = std::vector<T, LargeAllocator<T>>;

}  // namespace gear::memory
