#include "c10d/torch/work.h"

#include <ATen/core/ivalue_inl.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "base/errors.h"

namespace gear::c10d {

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
  std::vector<std::shared_ptr<Call>> made;
  calls_.reserve(makes.size());
  for (const auto& make : makes) {
    Engine::instance().submit(
        [&] {
          std::shared_ptr<Call> call = make();
          calls_.push_back(call);
          call->on_end = [self] {
            if (--self->unsettled_ == 0) {
              self->settle();
            }
          };
          call->on_done = [self] {
            if (--self->unannounced_ == 0) {
              self->announce();
            }
          };
          return call;
        },
        awaited);
  }
}

bool Work::all_done() const {
  return std::ranges::all_of(
      calls_, [](const auto& call) { return call->done.load(std::memory_order_acquire); });
}

void Work::settle() {
  for (const auto& call : calls_) {
    if (!call->failure.empty()) {
      failure_ = std::make_exception_ptr(c10::DistBackendError(
          c10::SourceLocation{__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, call->failure));
      // MPI may still read what a rank that is gone was sent.
      static_cast<void>(new std::vector<at::Tensor>(std::move(tensors_.kept)));
      break;
    }
  }
  if (!failure_) {
    const c10::NoGradGuard no_grad;
    for (auto& [from, to] : tensors_.copies) {
      to.copy_(from);
    }
  }
  tensors_.kept.clear();
  tensors_.copies.clear();
  if (entry_) {
    entry_->end = Clock::now();
    entry_->number = calls_.empty() ? -1 : calls_.front()->number();
    entry_->failed = failure_ != nullptr;
    Log::current()->write(*entry_);
  }
}

void Work::announce() {
  finish(failure_);
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard guard(future_mutex_);
    announced_ = true;
    future = future_;
  }
  if (!future) {
    return;
  }
  if (failure_) {
    future->setError(failure_);
  } else {
    future->markCompleted(at::IValue(tensors_.results));
  }
}

bool Work::isCompleted() {
  if (!all_done()) {
    Engine::instance().drive();
  }
  return all_done();
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
      future_ =
          c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
      if (announced_) {
        future = future_;
      }
    }
    if (!future) {
      return future_;
    }
  }
  if (failure_) {
    future->setError(failure_);
  } else {
    future->markCompleted(at::IValue(tensors_.results));
  }
  return future;
}

}  // namespace gear::c10d
