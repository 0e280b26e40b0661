#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "c10d/engine.h"

namespace gear::c10d {

/// The tensors of an operation.
struct Tensors {
  std::vector<at::Tensor> results;  ///< what the operation's future gives
  std::vector<at::Tensor> kept;     ///< read or written until the end
  /// Contiguous stand-ins of outputs, and the outputs: copied at the end.
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
};

/// What an operation of torch.distributed returns: one or several calls of the engine.
class Work final : public ::c10d::Work {
 public:
  Work(int rank, ::c10d::OpType type, const char* title, Tensors tensors);

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
  void settle();    // after the last call: outputs are complete
  void announce();  // after that: whoever waits on the future may go on

  Tensors tensors_;
  std::vector<std::shared_ptr<Call>> calls_;
  std::atomic<size_t> unsettled_{0};
  std::atomic<size_t> unannounced_{0};
  std::exception_ptr failure_;
  mutable std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool announced_ = false;
};

}  // namespace gear::c10d
