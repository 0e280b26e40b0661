#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "engine/call.h"
#include "engine/log.h"
#include "ranks/comparison.h"

namespace gear::process_group {

/// A group of torch's gloo, and the order in which its operations begin.
class GlooGroup {
 public:
  explicit GlooGroup(c10::intrusive_ptr<::c10d::Backend> backend) : backend_(std::move(backend)) {}
  /// Waits for gloo's threads, without Python's lock: they may be about to ask for it.
  ~GlooGroup();
  GlooGroup(const GlooGroup&) = delete;
  GlooGroup& operator=(const GlooGroup&) = delete;

  ::c10d::Backend& backend() noexcept { return *backend_; }
  /// The numbers of calls that have not begun. Under the engine's lock.
  std::deque<uint64_t> waiting;

 private:
  c10::intrusive_ptr<::c10d::Backend> backend_;
};

/// What comes before an operation by gloo: all ranks of the group say by MPI that they give the
/// same, and those before it have begun. gloo compares nothing: it makes numbers up of float16 and
/// bfloat16, and ends the process that gets more bytes than it expects. It ends when gloo has
/// begun.
class GlooStart final : public Call {
 public:
  using WorkPointer = c10::intrusive_ptr<::c10d::Work>;
  using FuturePointer = c10::intrusive_ptr<c10::ivalue::Future>;
  using Begin = std::function<WorkPointer(::c10d::Backend& gloo)>;

  /// Takes the group's next number; under the engine's lock. `dtype` lives for ever.
  GlooStart(std::shared_ptr<Ring> ring, const Signature& signature,
            std::shared_ptr<GlooGroup> group, const char* dtype, Begin begin, double timeout_s);

  Step advance() override;
  std::optional<std::string> late(Time now) override;
  void cancel() noexcept override {}
  int64_t number() const noexcept override { return static_cast<int64_t>(number_); }

  // When it is done:
  /// gloo's; null where it has not begun.
  const WorkPointer& begun() const noexcept { return begun_; }
  /// gloo's future; null of a reduce_scatter, which gloo ends in wait().
  const FuturePointer& future() const noexcept { return future_; }
  /// What gloo said against it; null: nothing.
  const std::exception_ptr& refusal() const noexcept { return refusal_; }
  /// Gives up the tensors, which may wait for Python's lock.
  void forget();

 private:
  uint64_t number_;
  Comparison comparison_;
  bool agreed_ = false;
  std::shared_ptr<GlooGroup> group_;
  const char* dtype_;
  Begin begin_;
  WorkPointer begun_;
  FuturePointer future_;
  std::exception_ptr refusal_;
};

/// What an operation by gloo returns: its start, and then gloo's own.
class GlooWork final : public ::c10d::Work {
 public:
  /// `entry`: for the log, if there is one; it points into `ring`.
  GlooWork(int rank, ::c10d::OpType type, std::shared_ptr<Ring> ring, std::optional<Entry> entry);

  /// Submits what `make` makes; `awaited` as of Engine::submit.
  void begin(const std::function<std::shared_ptr<GlooStart>()>& make, bool awaited);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  bool has_begun() const { return start_->done.load(std::memory_order_acquire); }
  std::exception_ptr failure_to_begin() const;
  void announce();
  void write(bool failed);

  std::shared_ptr<Ring> ring_;
  std::optional<Entry> entry_;
  std::atomic<bool> is_written_{false};
  std::shared_ptr<GlooStart> start_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace gear::process_group
