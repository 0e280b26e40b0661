#include "emu_torch/held_work.h"

#include <ATen/core/ivalue_inl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "base/threads/interrupt.h"
#include "emu/timing.h"

namespace gear::emu {
namespace {

std::exception_ptr of_group(const std::string& words) {
  return std::make_exception_ptr(c10::DistBackendError(
      c10::SourceLocation{__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, words));
}

double seconds_between(Time from, Time to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

HeldWork::HeldWork(int rank, ::c10d::OpType type, const char* title, const char* operation,
                   Time began, std::vector<at::Tensor> results)
    : ::c10d::Work(rank, type, title),
      operation_(operation),
      began_(began),
      results_(std::move(results)) {}

void HeldWork::hold(Flows::Pointer flow) {
  {
    const std::lock_guard guard(mutex_);
    flow_ = std::move(flow);
    valued_ = Holds::instance().now();
    has_values_ = true;
  }
  cv_.notify_all();
  follow();
}

void HeldWork::fail(std::exception_ptr failure) {
  {
    const std::lock_guard guard(mutex_);
    failure_ = std::move(failure);
    has_values_ = true;
  }
  cv_.notify_all();
  follow();
}

void HeldWork::fail_with(Flows::Pointer flow, std::string words) {
  {
    const std::lock_guard guard(mutex_);
    failure_ = of_group(words);
  }
  hold(std::move(flow));
}

// The future is told by the thread of the holds; those who wait need none.
void HeldWork::follow() {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  Flows::Pointer flow;
  {
    const std::lock_guard guard(mutex_);
    if (!future_ || !has_values_ || is_followed_) {
      return;
    }
    is_followed_ = true;
    future = future_;
    flow = flow_;
  }
  const auto self = c10::intrusive_ptr<HeldWork>::unsafe_reclaim_from_nonowning(this);
  const auto then = [self, future] {
    if (self->settle()) {
      const Time end = self->flow_ ? self->flow_->end : Holds::instance().now();
      Timing::followed(self->operation_, self->began_, std::max(end, self->valued_),
                       self->late_s());
    }
    if (self->failure_) {
      future->setErrorIfNeeded(self->failure_);
    } else {
      future->markCompleted(at::IValue(self->results_));
    }
  };
  if (flow) {
    Holds::instance().follow(std::move(flow), then);
  } else {
    then();
  }
}

// Whether it has not been before.
bool HeldWork::settle() {
  if (is_settled_.exchange(true)) {
    return false;
  }
  if (recordFunctionEndCallback_) {
    recordFunctionEndCallback_();
    recordFunctionEndCallback_ = nullptr;
  }
  const std::lock_guard guard(mutex_);
  completed_ = true;
  exception_ = failure_;
  return true;
}

double HeldWork::late_s() const {
  return flow_ && !failure_ ? std::max(0.0, seconds_between(flow_->end, valued_)) : 0;
}

bool HeldWork::has_ended() const {
  Flows::Pointer flow;
  {
    const std::lock_guard guard(mutex_);
    if (!has_values_) {
      return false;
    }
    flow = flow_;
  }
  return !flow || Holds::instance().has_ended(flow);
}

bool HeldWork::isCompleted() {
  if (!has_ended()) {
    return false;
  }
  settle();
  return true;
}

bool HeldWork::isSuccess() const { return has_ended() && !failure_; }

std::exception_ptr HeldWork::exception() const { return has_ended() ? failure_ : nullptr; }

bool HeldWork::wait_for_values(Time deadline) {
  std::unique_lock lock(mutex_);
  while (!has_values_) {
    const Time now = Holds::instance().now();
    if (now >= deadline) {
      return false;
    }
    if (deadline - now < base::kInterruptEvery) {
      cv_.wait_until(lock, deadline);
    } else {
      cv_.wait_for(lock, base::kInterruptEvery);
    }
    lock.unlock();
    base::check_interrupt();
    lock.lock();
  }
  return true;
}

bool HeldWork::wait(std::chrono::milliseconds timeout) {
  Holds& holds = Holds::instance();
  const Time begin = holds.now();
  const Time deadline = timeout > std::chrono::milliseconds::zero() ? begin + timeout : Time::max();
  bool in_time = wait_for_values(deadline);
  if (in_time && flow_) {
    in_time = holds.wait(flow_, deadline);
  }
  if (!in_time) {
    Timing::waited(operation_, begin, holds.now(), 0);
    std::rethrow_exception(of_group(c10::str("[emu] an operation has not ended within ",
                                             timeout.count(), " ms, as wait() was given")));
  }
  const double late = settle() ? late_s() : 0;
  Timing::waited(operation_, begin, holds.now(), late);
  if (failure_) {
    std::rethrow_exception(failure_);
  }
  return true;
}

void HeldWork::synchronize() { wait(kNoTimeout); }

void HeldWork::abort() {
  TORCH_CHECK(false,
              "[emu] an operation of gear_emu cannot be aborted: wait for it, or give its group a "
              "shorter timeout");
}

c10::intrusive_ptr<c10::ivalue::Future> HeldWork::getFuture() {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard guard(mutex_);
    if (!future_) {
      future_ =
          c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    }
    future = future_;
  }
  follow();
  return future;
}

}  // namespace gear::emu
