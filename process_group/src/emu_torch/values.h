#pragma once

#include <ATen/ATen.h>

#include <array>
#include <chrono>
#include <functional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "emu/members.h"

namespace gear::emu {

/// What the operations of a group give, of which some members are real: what they would give if
/// each emulated member held its mirror's data. Real members give each other theirs by a group of
/// torch over them, one for tensors of the host and one for those of GPUs.
///
/// Each function checks its arguments, throws ValueError for what cannot be, and returns what does
/// the rest, which reads and writes the tensors: where they are of the host it blocks until the
/// results are there, and where they are of a GPU it gives all of it to the caller's stream. What
/// it gives up may wait for a lock of Python.
class Values {
 public:
  using List = std::vector<at::Tensor>;
  using Lists = std::vector<List>;
  using Op = ::c10d::ReduceOp;
  /// Of the group of real members, a wait may last so long.
  using Move = std::function<void(std::chrono::milliseconds wait)>;
  using Largest = std::array<int64_t, 3>;
  using Inner = c10::intrusive_ptr<::c10d::Backend>;

  /// `inner`: a group of the real members for tensors of the host; null where this process is the
  /// only one.
  Values(Members members, Inner inner) : members_(std::move(members)), host_(std::move(inner)) {}

  const Members& members() const noexcept { return members_; }
  bool is_alone() const noexcept { return host_ == nullptr; }
  /// The same for tensors on GPUs, before the first of them.
  void connect_gpus(Inner inner) { gpu_ = std::move(inner); }
  /// Of the real members, for tensors of that device; where it is_alone() there is none.
  ::c10d::Backend& inner(at::Device device) const;
  void set_timeout(std::chrono::milliseconds timeout);
  /// What GPUs have been given is waited for.
  void shut_down();
  /// Gives the groups of the real members up; nothing is called afterwards.
  void leave() noexcept {
    host_.reset();
    gpu_.reset();
  }

  Move broadcast(const List& tensors, int64_t root) const;
  /// Each by itself. A sparse one by SUM alone, as gloo has it.
  Move all_reduce(const List& tensors, const Op& op) const;
  Move reduce(const List& tensors, const Op& op, int64_t root) const;
  /// `outputs` by input, then by rank.
  Move all_gather(const Lists& outputs, const List& inputs) const;
  /// Each output holds what all ranks give, one after the other.
  Move all_gather_flat(const List& outputs, const List& inputs) const;
  Move gather(const Lists& outputs, const List& inputs, int64_t root) const;
  Move scatter(const List& outputs, const Lists& inputs, int64_t root) const;
  Move reduce_scatter(const List& outputs, const Lists& inputs, const Op& op) const;
  Move reduce_scatter_flat(const List& outputs, const List& inputs, const Op& op) const;
  Move all_to_all(const List& outputs, const List& inputs) const;
  /// Of rows; no splits: as many for every rank.
  Move all_to_all_rows(const at::Tensor& output, const at::Tensor& input,
                       const std::vector<int64_t>& output_splits,
                       const std::vector<int64_t>& input_splits) const;

  /// Of each number the largest of the real members.
  Largest largest(const Largest& own, std::chrono::milliseconds wait) const;

 private:
  int size() const noexcept { return members_.size(); }
  ::c10d::Backend& inner(const at::Tensor& of) const { return inner(of.device()); }
  void check_rank(int64_t rank, const char* what) const;
  void check_each(size_t given, const char* what) const;
  void check_known(int64_t root, const at::Tensor& tensor, const char* what) const;
  List exchanged(const List& for_real, const List& outputs, std::chrono::milliseconds wait) const;
  List gathered(const at::Tensor& own, std::chrono::milliseconds wait) const;
  Move scattered_sum(const List& outputs, Lists parts, const Op& op) const;
  at::Tensor own_part(const at::Tensor& all) const;
  void weigh(at::Tensor& tensor, const Op& op) const;
  void weigh_into(const at::Tensor& tensor, const at::Tensor& from, const Op& op) const;
  void sum(at::Tensor& tensor, const Op& op, std::chrono::milliseconds wait) const;
  void finish(at::Tensor& tensor, const Op& op) const;

  Members members_;
  Inner host_;
  Inner gpu_;
};

}  // namespace gear::emu
