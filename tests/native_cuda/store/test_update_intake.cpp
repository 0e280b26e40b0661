#include "store/mirror/cuda/updates/update_intake.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/gpu/devices.h"
#include "device_memory.h"
#include "store/id.h"
#include "thread_without_gpu.h"

using namespace gear;
using gear::store::UpdateEntry;
using gear::store::UpdateIntake;
using gear::tests::current_context;
using gear::tests::in_another_thread;
using gear::tests::to_device;

namespace {

constexpr uint64_t kApart = 64;   // calls; two of them that are so far apart share a state
constexpr uint64_t kCall = 2048;  // entries: eight thread blocks
constexpr uint64_t kSlots[] = {5000};

// Calls one behind the other, on the host.
struct Calls {
  explicit Calls(uint64_t num_calls) : ids(num_calls * kCall), priorities(num_calls * kCall) {
    for (uint64_t i = 0; i < ids.size(); ++i) {
      const auto slot = static_cast<uint32_t>(i * 7 % kSlots[0]);
      ids[i] = store::StepId{slot, 0, 0, false}.pack();
      priorities[i] = static_cast<float>(i % 1013) + 0.5F;
    }
  }
  void spoil(uint64_t call, uint64_t position) {
    priorities[call * kCall + position] = std::numeric_limits<float>::quiet_NaN();
  }

  std::vector<int64_t> ids;
  std::vector<float> priorities;
};

// The same on GPU 0.
struct DeviceCalls {
  explicit DeviceCalls(const Calls& calls)
      : ids(to_device(std::span<const int64_t>(calls.ids))),
        priorities(to_device(std::span<const float>(calls.priorities))) {}

  void give(UpdateIntake& intake, uint64_t call, cudaStream_t stream) const {
    intake.keep(ids.get() + call * kCall, priorities.get() + call * kCall, kCall, true, stream);
  }

  base::DeviceArray<int64_t> ids;
  base::DeviceArray<float> priorities;
};

// What is not as if the calls had come one after the other, but for those that are refused.
uint64_t wrong_entries(const std::vector<UpdateEntry>& kept, const Calls& calls,
                       const std::vector<uint64_t>& allowed) {
  uint64_t wrong = kept.size() == allowed.size() * kCall ? 0 : 1;
  for (uint64_t i = 0; i < std::min<uint64_t>(kept.size(), allowed.size() * kCall); ++i) {
    const uint64_t from = allowed[i / kCall] * kCall + i % kCall;
    wrong += kept[i].id != calls.ids[from] || kept[i].priority != calls.priorities[from] ||
                     kept[i].order != i % kCall
                 ? 1
                 : 0;
  }
  return wrong;
}

std::string refusal(UpdateIntake& intake) {
  try {
    intake.raise_failed();
  } catch (const base::InvalidArgument& error) {
    return error.what();
  }
  return "none";
}

// A kernel's first launch loads it, for which the whole GPU may have to come to its end.
void load_kernels() {
  const Calls calls(1);
  const DeviceCalls given(calls);
  const base::Stream stream(0);
  UpdateIntake intake(0, kSlots, stream);
  given.give(intake, 0, stream);
  CHECK(wrong_entries(intake.fetch(), calls, {0}) == 0);
}

// Stands still until it is let go; at its end at the latest.
class HeldStream {
 public:
  HeldStream() : stream_(0) {
    GEAR_CUDA_TRY(cudaLaunchHostFunc(
        stream_,
        [](void* held) {
          while (!static_cast<std::atomic<bool>*>(held)->load(std::memory_order_acquire)) {
            std::this_thread::yield();
          }
        },
        &let_go_));
  }
  ~HeldStream() {
    let_go();
    stream_.drain();
  }
  void let_go() { let_go_.store(true, std::memory_order_release); }
  operator cudaStream_t() const { return stream_; }

 private:
  std::atomic<bool> let_go_{false};
  base::Stream stream_;
};

// Whether the stream comes to its end. Where something holds it, that is never.
bool comes_to_its_end(cudaStream_t stream) {
  base::Event end;
  end.record(stream);
  for (int i = 0; i < 300 && !end.done(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return end.done();
}

}  // namespace

TEST_CASE("a call waits for the one whose state it takes over, on whatever stream that is") {
  const base::OnDevice on(0);
  load_kernels();
  const Calls calls(kApart + 1);
  const DeviceCalls given(calls);
  const base::Stream mirror(0);
  const base::Stream other(0);
  UpdateIntake intake(0, kSlots, mirror);
  std::vector<uint64_t> all{0};
  HeldStream held;
  given.give(intake, 0, held);
  for (uint64_t call = 1; call < kApart; ++call) {
    given.give(intake, call, other);
    all.push_back(call);
  }
  other.synchronize();  // these have states of their own
  given.give(intake, kApart, other);
  all.push_back(kApart);
  CHECK_FALSE(comes_to_its_end(other));
  held.let_go();
  other.synchronize();
  CHECK(wrong_entries(intake.fetch(), calls, all) == 0);
  intake.raise_failed();
}

TEST_CASE("of calls side by side on two streams, each is refused for what it holds itself") {
  const base::OnDevice on(0);
  load_kernels();
  Calls calls(2 * kApart);
  std::vector<uint64_t> allowed;
  std::vector<uint64_t> refused;
  for (uint64_t call = 0; call < 2 * kApart; ++call) {
    // Of two that share a state one is wrong: now the earlier one, now the later one.
    if ((call < kApart) == (call % 2 == 0)) {
      calls.spoil(call, call * 13 % kCall);
      refused.push_back(call);
    } else {
      allowed.push_back(call);
    }
  }
  const DeviceCalls given(calls);
  const base::Stream mirror(0);
  UpdateIntake intake(0, kSlots, mirror);
  const base::Stream first(0);
  const base::Stream second(0);
  for (int round = 0; round < 10; ++round) {
    CAPTURE(round);
    {
      HeldStream held;
      base::Event begin;
      begin.record(held);
      begin.make_wait(first);
      begin.make_wait(second);
      for (uint64_t call = 0; call < 2 * kApart; ++call) {
        given.give(intake, call, call < kApart ? first : second);
      }
    }
    CHECK(wrong_entries(intake.fetch(), calls, allowed) == 0);
    for (const uint64_t call : refused) {
      const std::string message = refusal(intake);
      CAPTURE(message);
      CHECK(message.find(base::cat("position ", call * 13 % kCall, ":")) != std::string::npos);
      CHECK(message.find(base::cat("update ", 2 * kApart - call, " calls ago")) !=
            std::string::npos);
    }
    CHECK(refusal(intake) == "none");
  }
}

TEST_CASE("all that an intake has is of its own GPU, whichever is current") {
  const int device = base::device_count() - 1;
  if (device == 0) {
    MESSAGE("one GPU: none is current, or the intake's own");
  }
  const Calls calls(9);
  const DeviceCalls on_first(calls);
  const std::vector<uint64_t> all{0, 1, 2, 3, 4, 5, 6, 7, 8};
  SUBCASE("none is") {
    in_another_thread([&] {
      REQUIRE(current_context() == nullptr);
      {
        const base::Stream mirror(device);
        UpdateIntake intake(0, kSlots, mirror);
        CHECK(current_context() == nullptr);
        for (const uint64_t call : all) {
          intake.keep(calls.ids.data() + call * kCall, calls.priorities.data() + call * kCall,
                      kCall, false, nullptr);
        }
        CHECK(wrong_entries(intake.fetch(), calls, all) == 0);
        intake.raise_failed();
      }
      CHECK(current_context() == nullptr);
    });
  }
  SUBCASE("GPU 0 is") {
    const base::OnDevice on(0);
    const base::Stream mirror(device);
    const base::Stream on_device(device);
    const base::Stream stream_of_first(0);
    UpdateIntake intake(0, kSlots, mirror);
    base::DeviceArray<int64_t> ids(calls.ids.size(), device);
    base::DeviceArray<float> priorities(calls.ids.size(), device);
    {
      const base::OnDevice there(device);
      GEAR_CUDA_TRY(cudaMemcpy(ids.get(), calls.ids.data(), ids.bytes(), cudaMemcpyDefault));
      GEAR_CUDA_TRY(cudaMemcpy(priorities.get(), calls.priorities.data(), priorities.bytes(),
                               cudaMemcpyDefault));
      GEAR_CUDA_TRY(cudaDeviceSynchronize());  // the copies may still be on their way
    }
    for (const uint64_t call : all) {
      if (call % 3 == 0) {
        on_first.give(intake, call, stream_of_first);
      } else if (call % 3 == 1) {
        intake.keep(ids.get() + call * kCall, priorities.get() + call * kCall, kCall, true,
                    on_device);
      } else {
        intake.keep(calls.ids.data() + call * kCall, calls.priorities.data() + call * kCall, kCall,
                    false, nullptr);
      }
    }
    CHECK(wrong_entries(intake.fetch(), calls, all) == 0);
    intake.raise_failed();
    CHECK(base::current_device() == 0);
  }
}
