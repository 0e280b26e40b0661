#include "torch/work.h"

#include <ATen/core/ivalue_inl.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "base/errors.h"

namespace gear::process_group {

Work::Work(int rank, ::c10d::OpType type, const char* title, Tensors tensors)
    : ::c10d::Work(rank, type, title), tensors_(std::move(tensors)) {}

void Work::begin(const std::vector<std::function<std::shared_ptr<Call>()>>& makes, bool awaited) {
  unsettled_ = unannounced_ = makes.size();
  if (makes.empty()) {
    settle();
    announce();
    return;
  }
  const auto self = c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this);
  const auto settled = [self](size_t count) {
    if ((self->unsettled_ -= count) == 0) {
      self->settle();
    }
  };
  const auto announced = [self](size_t count) {
    if ((self->unannounced_ -= count) == 0) {
      self->announce();
    }
  };
  calls_.reserve(makes.size());
  size_t begun = 0;
  try {
    for (; begun < makes.size(); ++begun) {
      Engine::instance().submit(
          [&] {
            std::shared_ptr<Call> call = makes[begun]();
            calls_.push_back(call);
            call->on_end = [settled] { settled(1); };
            call->on_done = [announced] { announced(1); };
            return call;
          },
          awaited);
    }
  } catch (const std::exception& error) {
    // The tensors stay until the calls have ended that have begun, and longer if one has failed.
    refusal_ = error.what();
    if (begun < calls_.size()) {
      calls_[begun]->on_end = nullptr;
      calls_[begun]->on_done = nullptr;
      calls_.pop_back();
    }
    if (begun > 0) {
      settled(makes.size() - begun);
      announced(makes.size() - begun);
    }
    throw;
  }
}

bool Work::all_done() const {
  return std::ranges::all_of(
      calls_, [](const auto& call) { return call->done.load(std::memory_order_acquire); });
}

void Work::settle() {
  std::string words = refusal_;
  for (const auto& call : calls_) {
    if (words.empty()) {
      words = call->failure;
    }
  }
  if (!words.empty()) {
    failure_ = std::make_exception_ptr(c10::DistBackendError(
        c10::SourceLocation{__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, words));
    if (!calls_.empty()) {
      // MPI may still read what a rank that is gone was sent.
      static_cast<void>(new std::vector<at::Tensor>(std::move(tensors_.kept)));
      static_cast<void>(new std::shared_ptr<Stage>(tensors_.stage));
    }
  }
  if (!failure_) {
    try {
      deliver();
    } catch (const std::exception&) {  // of a GPU
      failure_ = std::current_exception();
    }
  }
  if (recordFunctionEndCallback_) {  // who has waited may end the profile that this writes to
    recordFunctionEndCallback_();
    recordFunctionEndCallback_ = nullptr;
  }
  if (entry_) {
    entry_->end = std::chrono::steady_clock::now();
    entry_->number = calls_.empty() ? -1 : calls_.front()->number();
    entry_->failed = failure_ != nullptr;
    Log::current()->write(*entry_);
  }
}

// Whatever is not in the tensors yet.
void Work::deliver() {
  if (tensors_.stage) {
    tensors_.stage->finish(tensors_.copies);
    return;
  }
  const UnseenGuard unseen;
  for (auto& [from, to] : tensors_.copies) {
    to.copy_(from);
  }
  if (tensors_.last) {
    (*tensors_.last)();
  }
}

void Work::complete(c10::ivalue::Future& future) const {
  if (failure_) {
    future.setError(failure_);
  } else if (tensors_.stage) {
    tensors_.stage->after_finish([&] { future.markCompleted(at::IValue(tensors_.results)); });
  } else {
    future.markCompleted(at::IValue(tensors_.results));
  }
}

// Tensors that Python has made wait for its lock when they are given up.
void Work::announce() {
  tensors_.kept.clear();
  tensors_.copies.clear();
  tensors_.last.reset();
  finish(failure_);
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard guard(future_mutex_);
    announced_ = true;
    future = future_;
  }
  if (future) {
    complete(*future);
  }
}

bool Work::isCompleted() {
  if (!all_done()) {
    Engine::instance().drive();
  }
  return all_done() && (failure_ || !tensors_.stage || tensors_.stage->is_finished());
}

bool Work::isSuccess() const { return all_done() && !failure_; }

std::exception_ptr Work::exception() const { return all_done() ? failure_ : nullptr; }

int Work::sourceRank() const { return calls_.empty() ? -1 : calls_.front()->source(); }

std::vector<at::Tensor> Work::result() { return tensors_.results; }

bool Work::wait(std::chrono::milliseconds timeout) {
  std::optional<double> timeout_s;
  if (timeout > std::chrono::milliseconds::zero()) {
    timeout_s = std::chrono::duration<double>(timeout).count();
  }
  for (const auto& call : calls_) {
    Engine::instance().wait(*call, timeout_s);
  }
  if (failure_) {
    std::rethrow_exception(failure_);
  }
  if (tensors_.stage) {
    tensors_.stage->hold_caller();
  }
  return true;
}

void Work::synchronize() { wait(kNoTimeout); }

void Work::abort() {
  TORCH_CHECK(false,
              "[mpi] an operation of gear_mpi cannot be aborted: wait for it, or give it a "
              "shorter timeout");
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard guard(future_mutex_);
    if (!future_) {
      std::vector<c10::Device> devices;
      if (tensors_.stage && !tensors_.stage->device().is_cpu()) {
        devices.push_back(tensors_.stage->device());
      }
      future_ = c10::make_intrusive<c10::ivalue::Future>(
          c10::ListType::create(c10::TensorType::get()), std::move(devices));
      if (announced_) {
        future = future_;
      }
    }
    if (!future) {
      return future_;
    }
  }
  complete(*future);
  return future;
}

}  // namespace gear::process_group
