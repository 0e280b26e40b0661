#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/log.h"
#include "torch/tensors.h"

namespace gear::process_group {

/// What an operation of torch.distributed returns: one or several calls of the engine.
class Work final : public ::c10d::Work {
 public:
  Work(int rank, ::c10d::OpType type, const char* title, Tensors tensors);

  /// Its entry in the log, which has everything but the end, if there is a log; before begin().
  void log_as(std::optional<Entry> entry) { entry_ = entry; }

  /// Submits each; `awaited` as of Engine::submit.
  void begin(const std::vector<std::function<std::shared_ptr<Call>()>>& makes, bool awaited);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  /// Throws DistBackendError with the words of the call that failed.
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  bool all_done() const;
  void settle();  // after the last call: outputs are complete
  void deliver();
  void announce();  // after that: whoever waits on the future may go on
  void complete(c10::ivalue::Future& future) const;

  Tensors tensors_;
  std::vector<std::shared_ptr<Call>> calls_;
  std::atomic<size_t> unsettled_{0};
  std::atomic<size_t> unannounced_{0};
  std::string refusal_;  // of a call that the engine did not take
  std::exception_ptr failure_;
  std::optional<Entry> entry_;
  mutable std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool announced_ = false;
};

}  // namespace gear::process_group
