#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "engine/log.h"
#include "ranks/ring.h"
#include "torch/gloo_work.h"
#include "torch/tensors.h"

namespace gear::process_group {

/// The other route: a group of torch's gloo over the ranks of a group of MPI, and which operations
/// it carries: of each kind, those of a range of bytes. What is set is the same on all ranks, and
/// set between the same calls.
class Gloo {
 public:
  explicit Gloo(std::shared_ptr<Ring> ring) : ring_(std::move(ring)) {}
  Gloo(const Gloo&) = delete;
  Gloo& operator=(const Gloo&) = delete;

  /// The group, once.
  void join(c10::intrusive_ptr<::c10d::Backend> group) {
    group_ = std::make_shared<GlooGroup>(std::move(group));
  }
  bool has_joined() const noexcept { return group_ != nullptr; }
  void set_timeout(std::chrono::milliseconds timeout);

  /// It carries those of from <= bytes < to. Throws ValueError before join().
  void set(Kind kind, uint64_t from, uint64_t to);
  /// [from, to): what was set.
  std::pair<uint64_t, uint64_t> range(Kind kind) const;
  bool carries(Kind kind, uint64_t bytes) const noexcept {
    const Range& range = ranges_[static_cast<size_t>(kind)];
    return bytes >= range.from.load(std::memory_order_relaxed) &&
           bytes < range.to.load(std::memory_order_relaxed);
  }

  /// Throws ValueError where gloo does not take the tensors or the reduction, if there is one.
  static void check(Kind kind, const Cargo& cargo, const ::c10d::ReduceOp* reduction);

  /// Begins an operation as the group's next: `begin` is called when all ranks have said that they
  /// give the same. `entry`: for the log, if there is one; `awaited`: the caller waits for it at
  /// once. Throws DistBackendError where the group of MPI has failed.
  c10::intrusive_ptr<GlooWork> run(::c10d::OpType type, const Signature& signature,
                                   const Cargo& cargo, const std::optional<Entry>& entry,
                                   double timeout_s, bool awaited, GlooStart::Begin begin);

 private:
  struct Range {
    std::atomic<uint64_t> from{0};
    std::atomic<uint64_t> to{0};
  };

  std::shared_ptr<Ring> ring_;
  std::shared_ptr<GlooGroup> group_;
  std::array<Range, static_cast<size_t>(Kind::kReceive) + 1> ranges_;
};

}  // namespace gear::process_group
