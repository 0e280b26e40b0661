#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "emu/holds.h"

namespace gear::emu {

/// What an operation of an emulated group returns. Its values come first, and then it is held until
/// the modelled end: it ends with the later of both.
class HeldWork final : public ::c10d::Work {
 public:
  /// `operation`: as models call it; `began`: when it did here.
  HeldWork(int rank, ::c10d::OpType type, const char* title, const char* operation, Time began,
           std::vector<at::Tensor> results);

  // One of these is called, once.
  /// The values are there.
  void hold(Flows::Pointer flow);
  /// They never are.
  void fail(std::exception_ptr failure);
  /// The same when `flow` ends, with these words.
  void fail_with(Flows::Pointer flow, std::string words);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override { return results_; }
  /// Throws what the values raised, or DistBackendError with the words given; and it does for a
  /// `timeout` that passes.
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  bool has_ended() const;
  bool wait_for_values(Time deadline);
  bool settle();
  double late_s() const;
  void follow();

  const char* operation_;
  Time began_;
  std::vector<at::Tensor> results_;
  // By mutex_, which ::c10d::Work has:
  bool has_values_ = false;
  bool is_followed_ = false;
  Flows::Pointer flow_;  // then; null: there is nothing to wait for
  Time valued_;          // when they came
  std::exception_ptr failure_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::atomic<bool> is_settled_{false};
};

}  // namespace gear::emu
