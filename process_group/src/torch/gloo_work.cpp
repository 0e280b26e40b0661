#include "torch/gloo_work.h"

#include <ATen/core/ivalue_inl.h>
#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>

#include <stdexcept>
#include <utility>

#include "engine/engine.h"

namespace gear::process_group {

GlooGroup::~GlooGroup() {
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) {
    const pybind11::gil_scoped_release released;
    backend_.reset();
  }
}

// ---- the start ----

namespace {

GlooStart::FuturePointer future_of(::c10d::Work& work) {
  try {
    return work.getFuture();
  } catch (const c10::Error&) {  // torch's way to say that such a work has none
    return nullptr;
  }
}

}  // namespace

GlooStart::GlooStart(std::shared_ptr<Ring> ring, const Signature& signature,
                     std::shared_ptr<GlooGroup> group, const char* dtype, Begin begin,
                     double timeout_s)
    : Call(std::move(ring), signature.kind, timeout_s),
      number_(ring_->group.take_number(kind_)),
      comparison_(*ring_, number_, signature),
      group_(std::move(group)),
      dtype_(dtype),
      begin_(std::move(begin)) {
  group_->waiting.push_back(number_);
}

Step GlooStart::advance() {
  agreed_ = agreed_ || comparison_.advance();
  if (!agreed_ || group_->waiting.front() != number_) {
    return Step::kIdle;
  }
  group_->waiting.pop_front();
  ring_->roll_call.over(number_);
  try {
    begun_ = begin_(group_->backend());
    future_ = future_of(*begun_);
  } catch (const c10::Error& error) {
    refusal_ = std::make_exception_ptr(c10::ValueError(
        c10::SourceLocation{__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
        c10::str("[mpi] ", kind_name(kind_), " of ", dtype_,
                 " goes by gloo, as its route says, and gloo refuses it: ",
                 error.what_without_backtrace(), ": route ", kind_name(kind_), " by mpi")));
  }
  return Step::kEnded;
}

std::optional<std::string> GlooStart::late(Time now) {
  std::vector<int> waited_for;
  if (!agreed_ && comparison_.waited_for() >= 0) {
    waited_for.push_back(comparison_.waited_for());
  }
  return ring_->roll_call.ask(number_, kind_, waited_for, timeout_s_, now);
}

void GlooStart::forget() {
  begin_ = nullptr;
  group_.reset();
}

// ---- the work ----

GlooWork::GlooWork(int rank, ::c10d::OpType type, std::shared_ptr<Ring> ring,
                   std::optional<Entry> entry)
    : ::c10d::Work(rank, type),
      ring_(std::move(ring)),
      entry_(entry),
      future_(
          c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {
}

void GlooWork::begin(const std::function<std::shared_ptr<GlooStart>()>& make, bool awaited) {
  const auto self = c10::intrusive_ptr<GlooWork>::unsafe_reclaim_from_nonowning(this);
  Engine::instance().submit(
      [&] {
        start_ = make();
        start_->on_done = [self] { self->announce(); };
        return start_;
      },
      awaited);
}

std::exception_ptr GlooWork::failure_to_begin() const {
  if (!start_->failure.empty()) {
    return std::make_exception_ptr(c10::DistBackendError(
        c10::SourceLocation{__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, start_->failure));
  }
  return start_->refusal();
}

void GlooWork::write(bool failed) {
  if (entry_ && !is_written_.exchange(true)) {
    entry_->end = std::chrono::steady_clock::now();
    entry_->number = start_->number();
    entry_->failed = failed;
    Log::current()->write(*entry_);
  }
}

void GlooWork::announce() {
  start_->forget();
  if (const auto failure = failure_to_begin()) {
    write(true);
    finish(failure);
    future_->setError(failure);
    return;
  }
  if (!start_->future()) {
    future_->setError(std::make_exception_ptr(std::runtime_error(
        "[mpi] gloo has no future of a reduce_scatter: call wait(), or route it by mpi")));
    return;
  }
  const auto self = c10::intrusive_ptr<GlooWork>::unsafe_reclaim_from_nonowning(this);
  start_->future()->addCallback([self](c10::ivalue::Future& of_gloo) {
    self->write(of_gloo.hasError());
    if (of_gloo.hasError()) {
      self->future_->setError(of_gloo.exception_ptr());
    } else {
      self->future_->markCompleted(of_gloo.value());
    }
  });
}

bool GlooWork::isCompleted() {
  if (!has_begun()) {
    Engine::instance().drive();
  }
  return has_begun() && (failure_to_begin() || start_->begun()->isCompleted());
}

bool GlooWork::isSuccess() const {
  return has_begun() && !failure_to_begin() && start_->begun()->isSuccess();
}

std::exception_ptr GlooWork::exception() const {
  if (!has_begun()) {
    return nullptr;
  }
  const auto failure = failure_to_begin();
  return failure ? failure : start_->begun()->exception();
}

std::vector<at::Tensor> GlooWork::result() {
  TORCH_CHECK(isSuccess(),
              "[mpi] the result of an operation by gloo was asked for before it has "
              "succeeded: wait for it first");
  return start_->begun()->result();
}

bool GlooWork::wait(std::chrono::milliseconds timeout) {
  std::optional<double> timeout_s;
  if (timeout != kNoTimeout && timeout > std::chrono::milliseconds::zero()) {
    timeout_s = std::chrono::duration<double>(timeout).count();
  }
  Engine::instance().wait(*start_, timeout_s);
  if (const auto failure = failure_to_begin()) {
    std::rethrow_exception(failure);
  }
  try {
    const bool has_ended = start_->begun()->wait(timeout);
    if (!start_->future()) {
      write(false);
    }
    return has_ended;
  } catch (...) {
    if (!start_->future()) {
      write(true);
    }
    throw;
  }
}

void GlooWork::synchronize() { wait(kNoTimeout); }

}  // namespace gear::process_group
