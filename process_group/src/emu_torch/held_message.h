#pragma once

#include <functional>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "emu/holds.h"

namespace gear::emu {

/// A message between real members: `under` of the group of these, and then a hold.
class HeldMessage final : public ::c10d::Work {
 public:
  /// `real`: the members that `under` counts; `hold` is called once, when that has ended.
  HeldMessage(int rank, ::c10d::OpType type, const char* title, std::vector<int> real,
              c10::intrusive_ptr<::c10d::Work> under, std::function<Flows::Pointer()> hold)
      : ::c10d::Work(rank, type, title),
        real_(std::move(real)),
        under_(std::move(under)),
        hold_(std::move(hold)) {}

  bool isCompleted() override;
  bool isSuccess() const override { return under_->isSuccess(); }
  std::exception_ptr exception() const override { return under_->exception(); }
  /// The member of the emulated group.
  int sourceRank() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }

 private:
  Flows::Pointer held();
  void settle();

  std::vector<int> real_;
  c10::intrusive_ptr<::c10d::Work> under_;
  std::function<Flows::Pointer()> hold_;
  std::mutex held_mutex_;
  Flows::Pointer flow_;
};

}  // namespace gear::emu
