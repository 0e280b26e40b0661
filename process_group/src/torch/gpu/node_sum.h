#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/call.h"
#include "over_mpi/node_memory.h"
#include "ranks/comparison.h"
#include "torch/gpu/page_lock.h"
#include "torch/gpu/stage.h"

namespace gear::process_group {

/// Memory of the node that GPUs copy from and to: one of a group, for all its sums.
struct NodeStage {
  explicit NodeStage(std::shared_ptr<NodeMemory> of_ranks) : memory(std::move(of_ranks)) {}

  std::shared_ptr<NodeMemory> memory;
  std::optional<PageLock> lock;  ///< from the first sum of a GPU on
};

/// An all_reduce of a tensor on a GPU by ranks of one node. Each rank owns a part of the tensor;
/// its GPU reduces what all have of that part. No byte goes through MPI or a core of the host:
///
///     GPU --copy_in--> pieces for owners --copy_out--> owner's GPU, which reduces
///     GPU <--copy_out-- piece of the owner <--copy_in-- owner's GPU
///
/// Step by step of at most a piece a rank, several at once, so that both directions are busy. All
/// ranks get the same bits, and a run repeats them: the owner reduces in the order of the ranks
/// that come before it. It ends when its copies have.
class NodeSum final : public Call {
 public:
  /// Reduces `dense`, a contiguous tensor of more than no elements, in place. Takes the group's
  /// next number and steps of its memory; under the engine's lock, as everything.
  NodeSum(std::shared_ptr<Ring> ring, const Signature& signature, std::shared_ptr<NodeStage> node,
          std::shared_ptr<Stage> stage, const at::Tensor& dense, const Arithmetic& arithmetic,
          double timeout_s);

  Step advance() override;
  std::optional<std::string> late(Time now) override;
  void cancel() noexcept override;
  int64_t number() const noexcept override { return static_cast<int64_t>(number_); }

 private:
  /// Copies of a step, asked for in the order of steps.
  struct Line {
    uint64_t asked = 0;
    uint64_t ended = 0;
    std::deque<std::unique_ptr<Mark>> marks{};
  };
  using Progress = NodeMemory::Progress;

  bool ask(Line& line, bool may, const std::function<std::unique_ptr<Mark>(uint64_t step)>& copies);
  bool end(Line& line, std::optional<Progress> progress);
  std::unique_ptr<Mark> give(uint64_t step);
  std::unique_ptr<Mark> add(uint64_t step);
  std::unique_ptr<Mark> put(uint64_t step);
  std::unique_ptr<Mark> take(uint64_t step);
  void reduce(at::Tensor& own, const at::Tensor& other) const;
  void divide(at::Tensor& own) const;
  /// What `rank` owns of the elements of a step.
  at::Tensor part(uint64_t step, int rank) const;
  at::Tensor piece(uint64_t step, int of_rank, int for_rank, const at::Tensor& like) const;
  bool is_gpu_late() const;

  std::shared_ptr<NodeStage> node_;
  NodeMemory& memory_;
  std::shared_ptr<Stage> stage_;
  at::Tensor elements_;
  at::Tensor scratch_;
  Arithmetic arithmetic_;
  Place place_;
  uint64_t number_;
  Comparison comparison_;
  bool agreed_ = false;
  uint64_t part_elements_;  // of a step but the last
  uint64_t num_steps_;
  uint64_t first_;  // step of the group
  Line given_, added_, put_, taken_;
};

}  // namespace gear::process_group
