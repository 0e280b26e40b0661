#pragma once

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <any>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace gear::emu {

/// What an operation on tensors of a GPU returns: a stream has been given it, values and hold. A
/// wait has the caller's stream wait, and returns.
class StreamWork final : public ::c10d::Work {
 public:
  /// `stream` has been given all of it. `kept`: what it reads and writes, which stays until a
  /// caller has waited or the stream has come there; empty where that is the caller's own stream.
  /// `is_captured`: by a CUDA graph. `blocks`: a wait does wait, as for a barrier.
  StreamWork(int rank, ::c10d::OpType type, const char* title, const c10::Stream& stream,
             std::vector<at::Tensor> results, std::any kept, bool is_captured, bool blocks);
  ~StreamWork() override;
  StreamWork(const StreamWork&) = delete;
  StreamWork& operator=(const StreamWork&) = delete;

  bool isCompleted() override;
  bool isSuccess() const override { return true; }
  std::exception_ptr exception() const override { return nullptr; }
  std::vector<at::Tensor> result() override { return results_; }
  /// Throws DistBackendError where it blocks and `timeout` passes.
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  /// Others' streams wait for it.
  std::shared_ptr<c10::Event> end() const { return end_; }
  /// Frees what ended works have left for which nobody waited, as late as NCCL's watchdog does. Not
  /// while a CUDA graph is made.
  static void tidy();

 private:
  c10::Stream stream_;
  std::shared_ptr<c10::Event> end_;
  std::vector<at::Tensor> results_;
  std::any kept_;  // by mutex_, which ::c10d::Work has
  bool is_captured_;
  bool blocks_;
};

}  // namespace gear::emu
