#include "base/cuda/cuda.h"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "thread_without_gpu.h"

using gear::base::DeviceArray;
using gear::base::Event;
using gear::base::OnDevice;
using gear::base::PinnedArray;
using gear::base::Stream;
using gear::tests::current_context;
using gear::tests::in_another_thread;

namespace {

constexpr int kDevice = 0;

void CUDART_CB wait_for(void* let_go) {
  while (!static_cast<std::atomic<bool>*>(let_go)->load(std::memory_order_acquire)) {
    std::this_thread::yield();
  }
}

// A stream that stands still until it is let go, and an event behind that.
class HeldStream {
 public:
  HeldStream() : stream_(kDevice) {
    const OnDevice on(kDevice);
    event_ = Event();
    GEAR_CUDA_TRY(cudaLaunchHostFunc(stream_, wait_for, &let_go_));
    event_.record(stream_);
  }
  ~HeldStream() {
    let_go();
    stream_.drain();
  }

  void let_go() { let_go_.store(true, std::memory_order_release); }
  const Event& event() const { return event_; }

 private:
  std::atomic<bool> let_go_{false};
  Stream stream_;
  Event event_{};
};

}  // namespace

TEST_CASE("a capture of one thread survives what others ask, wait for and allocate") {
  HeldStream held;
  const Stream captured(kDevice);
  const DeviceArray<std::byte> memory(64, kDevice);
  const OnDevice on(kDevice);
  GEAR_CUDA_TRY(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
  GEAR_CUDA_TRY(cudaMemsetAsync(memory.get(), 7, 64, captured));
  in_another_thread([&] {
    for (int i = 0; i < 3; ++i) {
      CHECK_FALSE(held.event().done());
      CHECK_FALSE(held.event().done_or_lost());
    }
    held.let_go();
    held.event().synchronize();
    CHECK(held.event().done());
    CHECK(held.event().done_or_lost());
    // Memory is given back when the GPU stands still: not before the held stream was let go.
    {
      const DeviceArray<std::byte> device(1 << 20, kDevice);
    }
    {
      const PinnedArray<std::byte> host(1 << 20, kDevice);
    }
    {
      const Stream stream(kDevice);
    }
  });
  cudaGraph_t graph = nullptr;
  GEAR_CUDA_TRY(cudaStreamEndCapture(captured, &graph));
  size_t nodes = 0;
  GEAR_CUDA_TRY(cudaGraphGetNodes(graph, nullptr, &nodes));
  CHECK(nodes == 1);
  GEAR_CUDA_TRY(cudaGraphDestroy(graph));
}

TEST_CASE("the capture mode of a thread is its own again afterwards") {
  in_another_thread([] {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    GEAR_CUDA_TRY(cudaThreadExchangeStreamCaptureMode(&mode));
    {
      const OnDevice outer(kDevice);
      const OnDevice inner(kDevice);
      mode = cudaStreamCaptureModeRelaxed;
      GEAR_CUDA_TRY(cudaThreadExchangeStreamCaptureMode(&mode));
      CHECK(mode == cudaStreamCaptureModeRelaxed);
    }
    mode = cudaStreamCaptureModeGlobal;
    GEAR_CUDA_TRY(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == cudaStreamCaptureModeThreadLocal);
  });
}

TEST_CASE("a thread without a GPU has none after it asked, waited, allocated and freed") {
  HeldStream held;
  in_another_thread([&] {
    REQUIRE(current_context() == nullptr);
    CHECK_FALSE(held.event().done());
    CHECK(current_context() == nullptr);
    CHECK_FALSE(held.event().done_or_lost());
    CHECK(current_context() == nullptr);
    held.let_go();
    held.event().synchronize();
    CHECK(current_context() == nullptr);
    {
      const PinnedArray<std::byte> host(4096, kDevice);
    }
    CHECK(current_context() == nullptr);
    {
      const DeviceArray<std::byte> device(4096, kDevice);
    }
    CHECK(current_context() == nullptr);
    {
      const Stream stream(kDevice);
    }
    CHECK(current_context() == nullptr);
  });
}
