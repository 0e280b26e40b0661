#pragma once

#include <atomic>
#include <thread>

#include "base/cuda/cuda.h"

namespace gear::tests {

/// Keeps what is put on a stream from here on from running, until it is let go.
class HeldStream {
 public:
  explicit HeldStream(cudaStream_t stream) {
    GEAR_CUDA_TRY(cudaLaunchHostFunc(stream, wait_for, &let_go_));
  }
  /// The stream has passed it: who let it go has waited for that.
  ~HeldStream() { let_go(); }
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;

  void let_go() { let_go_.store(true, std::memory_order_release); }

 private:
  static void wait_for(void* held) {
    while (!static_cast<std::atomic<bool>*>(held)->load(std::memory_order_acquire)) {
      std::this_thread::yield();
    }
  }

  std::atomic<bool> let_go_{false};
};

}  // namespace gear::tests
