#include "emu_torch/stream_work.h"

#include <ATen/core/ivalue_inl.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include "base/threads/interrupt.h"

namespace gear::emu {
namespace {

using c10::impl::VirtualGuardImpl;

c10::Stream current_of(const c10::Stream& stream) {
  return VirtualGuardImpl(stream.device_type()).getStream(stream.device());
}

// What nobody has waited for, until its stream has come to its end, and as much longer as with
// NCCL: its watchdog looks for ended works every 100 ms, so that what DDP has dropped stays for
// several steps, and programs' most memory is the same only if it does here.
constexpr auto kLookedForEvery = std::chrono::milliseconds(100);

class Left {
 public:
  static Left& instance() {
    static Left& left = *new Left;
    return left;
  }

  void keep(std::shared_ptr<c10::Event> end, std::any kept) {
    const std::lock_guard guard(mutex_);
    all_.push_back({std::move(end), std::chrono::steady_clock::now(), std::move(kept)});
  }

  void look() {
    std::vector<std::any> gone;  // what they free may wait for a lock
    const auto before = std::chrono::steady_clock::now() - kLookedForEvery;
    const std::lock_guard guard(mutex_);
    std::erase_if(all_, [&](One& one) {
      const bool goes = one.since < before && one.end->query();
      if (goes) {
        gone.push_back(std::move(one.kept));
      }
      return goes;
    });
  }

 private:
  struct One {
    std::shared_ptr<c10::Event> end;
    std::chrono::steady_clock::time_point since;
    std::any kept;
  };

  std::mutex mutex_;
  std::vector<One> all_;
};

}  // namespace

StreamWork::StreamWork(int rank, ::c10d::OpType type, const char* title, const c10::Stream& stream,
                       std::vector<at::Tensor> results, std::any kept, bool is_captured,
                       bool blocks)
    : ::c10d::Work(rank, type, title),
      stream_(stream),
      end_(std::make_shared<c10::Event>(stream.device_type())),
      results_(std::move(results)),
      kept_(std::move(kept)),
      is_captured_(is_captured),
      blocks_(blocks) {
  end_->record(stream_);
  if (recordFunctionEndCallback_) {
    recordFunctionEndCallback_();
    recordFunctionEndCallback_ = nullptr;
  }
}

void StreamWork::tidy() { Left::instance().look(); }

StreamWork::~StreamWork() {
  if (kept_.has_value() && !is_captured_) {
    Left::instance().keep(std::move(end_), std::move(kept_));
  }
}

bool StreamWork::isCompleted() { return end_->query(); }

bool StreamWork::wait(std::chrono::milliseconds timeout) {
  end_->block(current_of(stream_));
  {
    std::any kept;  // freed without the lock; what frees it comes after the stream
    const std::lock_guard guard(mutex_);
    std::swap(kept, kept_);
  }
  if (!blocks_) {
    return true;
  }
  const auto begin = std::chrono::steady_clock::now();
  auto next_interrupt = begin + base::kInterruptEvery;
  while (!end_->query()) {
    const auto now = std::chrono::steady_clock::now();
    const auto waited = now - begin;
    if (timeout > std::chrono::milliseconds::zero() && waited >= timeout) {
      C10_THROW_ERROR(DistBackendError, c10::str("[emu] an operation has not ended within ",
                                                 timeout.count(), " ms, as wait() was given"));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (now >= next_interrupt) {
      base::check_interrupt();
      next_interrupt = now + base::kInterruptEvery;
    }
  }
  return true;
}

void StreamWork::synchronize() { wait(kNoTimeout); }

void StreamWork::abort() {
  TORCH_CHECK(false,
              "[emu] an operation of gear_emu cannot be aborted: wait for it, or give its group a "
              "shorter timeout");
}

c10::intrusive_ptr<c10::ivalue::Future> StreamWork::getFuture() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{stream_.device()});
  // Its event is of the stream that is current now, which has to be here and no further.
  const VirtualGuardImpl device(stream_.device_type());
  const c10::Stream here =
      is_captured_ ? stream_ : device.getStreamFromGlobalPool(stream_.device());
  end_->block(here);
  const c10::StreamGuard on_stream(here);
  future->markCompleted(at::IValue(results_));
  return future;
}

}  // namespace gear::emu
