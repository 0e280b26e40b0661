#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "schedule/place.h"

namespace gear::process_group {

/// Memory that the ranks of a group map where all of them are on one node, and in which they hand
/// each other pieces of tensors. It has no name: what a killed rank leaves goes with the last rank.
///
///     lines, one a rank | room of rank 0 | room of rank 1 | ...
///     a room: kSlots slots, by turns one a step; a slot: a piece for each rank
///
/// All ranks take the same steps in the same order. In each, rank r
///   1. puts down what it has for the others, in its pieces for them        (kGiven)
///   2. reduces what all have for it, and puts the result in its own piece  (kReduced)
///   3. takes the others' results                                           (kTaken)
/// A slot's pieces for others may be overwritten when all have reduced, its own when all have
/// taken. The engine's lock is held around all calls but make().
class NodeMemory {
 public:
  static constexpr uint64_t kSlots = 3;  // with more, copies of later steps hold up earlier ones
  enum class Progress : uint8_t { kGiven, kReduced, kTaken };

  /// Collective over `ranks`, whose places are `place`. Null, on all of them, where one does not
  /// want it, is on another node, or cannot have the memory, of which a line on stderr says why.
  /// Pieces have at most `piece_bytes`, the same on all ranks. Throws TransportError when ranks do
  /// not come within timeout_s.
  static std::shared_ptr<NodeMemory> make(MPI_Comm ranks, Place place, bool wanted,
                                          uint64_t piece_bytes, double timeout_s);
  ~NodeMemory();
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;

  std::byte* data() const noexcept { return data_; }
  uint64_t bytes() const noexcept { return bytes_; }
  /// Of a piece, at most; a multiple of 64.
  uint64_t piece_bytes() const noexcept { return piece_bytes_; }
  std::byte* piece(int of_rank, int for_rank, uint64_t step) const noexcept;

  /// The first of `count` steps, which are the caller's.
  uint64_t take_steps(uint64_t count) noexcept;

  /// Whether this rank has come to `step`, which it has not done.
  bool is_next(Progress progress, uint64_t step) const noexcept;
  /// This rank has done its next step. What it wrote before, others see.
  void advance(Progress progress) noexcept;
  /// Whether all ranks have done all steps up to `step`.
  bool have_done(Progress progress, uint64_t step) const noexcept;
  /// The same of the step that had the slot of `step` before.
  bool have_left(Progress progress, uint64_t step) const noexcept;
  /// Those who have not.
  std::vector<int> missing(Progress progress, uint64_t step) const;

 private:
  struct Line;
  struct Head;

  NodeMemory(Place place, std::byte* data, uint64_t bytes, uint64_t piece_bytes);
  Line& line(int rank) const noexcept;
  bool have_counted(Progress progress, uint64_t count) const noexcept;

  Place place_;
  std::byte* data_;
  uint64_t bytes_;
  uint64_t piece_bytes_;
  uint64_t next_step_ = 0;
};

}  // namespace gear::process_group
