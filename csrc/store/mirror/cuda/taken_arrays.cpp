#include "store/mirror/taken_arrays.h"

#include <chrono>
#include <thread>

#include "base/cuda/staging.h"
#include "base/errors.h"
#include "base/threads/blocking.h"
#include "base/threads/interrupt.h"
#include "store/mirror/cuda/device_index.h"

namespace gear::store {
namespace {

constexpr size_t kParts = 2;
constexpr uint64_t kAlign = 256;
constexpr std::chrono::microseconds kPoll{20};

uint64_t room_of(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

class Taken final : public ReadEnd {
 public:
  explicit Taken(int device) : event_(base::Event::on(device)) {}
  bool done() const noexcept override { return event_.done_or_lost(); }
  base::Event& event() { return event_; }
  const base::Event& event() const { return event_; }

 private:
  base::Event event_;
};

class DeviceTakenArrays final : public TakenArrays {
 public:
  explicit DeviceTakenArrays(DeviceIndex& mirror)
      : mirror_(mirror),
        stream_(mirror.device()),
        on_host_(base::GrowingBuffer::Place::kPinned, mirror.device()),
        on_device_(kParts, mirror.device()) {}

  ~DeviceTakenArrays() override {
    if (taken_) {
      taken_->event().drain();
      mirror_.stream().drain();
    }
  }

  int device() const override { return mirror_.device(); }
  uintptr_t stream() const override {
    return reinterpret_cast<uintptr_t>(static_cast<cudaStream_t>(stream_));
  }

  std::shared_ptr<const ReadEnd> take(std::span<const Array> arrays, uintptr_t stream,
                                      std::span<const uintptr_t> others,
                                      std::span<const std::byte*> copies) override {
    GEAR_CHECK(!unreleased_ && arrays.size() == copies.size());
    const base::OnDevice current(device());
    const auto made_on = reinterpret_cast<cudaStream_t>(stream);
    uint64_t host_bytes = 0;
    uint64_t device_bytes = 0;
    for (const Array& array : arrays) {
      (array.to_host ? host_bytes : device_bytes) += room_of(array.bytes);
    }
    auto taken = std::make_shared<Taken>(device());
    std::byte* on_host = on_host_.get(host_bytes);
    std::byte* on_device = on_device_.acquire_on_device(device_bytes, made_on);
    for (size_t i = 0; i < arrays.size(); ++i) {
      std::byte*& next = arrays[i].to_host ? on_host : on_device;
      GEAR_CUDA_TRY(
          cudaMemcpyAsync(next, arrays[i].data, arrays[i].bytes, cudaMemcpyDefault, made_on));
      copies[i] = next;
      next += room_of(arrays[i].bytes);
    }
    taken->event().record(made_on);
    for (const uintptr_t other : others) {
      taken->event().make_wait(reinterpret_cast<cudaStream_t>(other));
    }
    taken_ = taken;
    unreleased_ = true;
    return taken;
  }

  void wait() override {
    auto next_look = std::chrono::steady_clock::now() + base::kInterruptEvery;
    while (!taken_->event().done()) {
      {
        const base::Blocking waiting;
        std::this_thread::sleep_for(kPoll);
      }
      const auto now = std::chrono::steady_clock::now();
      if (now >= next_look) {
        base::check_interrupt();
        next_look = now + base::kInterruptEvery;
      }
    }
  }

  void follow() override {
    const base::OnDevice current(device());
    taken_->event().make_wait(mirror_.stream());
  }

  void release() override {
    const base::OnDevice current(device());
    on_device_.release(mirror_.stream());
    unreleased_ = false;
  }

 private:
  DeviceIndex& mirror_;
  base::Stream stream_;
  base::GrowingBuffer on_host_;  // of one call: its copies are read before the next is taken
  base::Staging on_device_;
  std::shared_ptr<Taken> taken_;
  bool unreleased_ = false;
};

}  // namespace

std::unique_ptr<TakenArrays> make_taken_arrays(Mirror& mirror) {
  const base::OnDevice current(mirror.device());
  return std::make_unique<DeviceTakenArrays>(*mirror.device_index());
}

}  // namespace gear::store
