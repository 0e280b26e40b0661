#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "ranks/signature.h"
#include "schedule/collectives.h"
#include "torch/tensors.h"

namespace gear::process_group {

/// What an operation of torch.distributed does on this rank: schedules that run side by side, over
/// the bytes of tensors.
struct Operation {
  /// A tensor that GPUs of one node reduce in place, and how.
  struct Sum {
    at::Tensor dense;
    Arithmetic arithmetic;
  };

  std::vector<Schedule> schedules{};
  std::vector<Sum> sums{};              ///< in place of schedules
  std::vector<Signature> signatures{};  ///< of each, which all ranks must give alike
  Tensors tensors{};
};

/// Makes operations of the arguments that torch gives. Nothing has travelled where one throws
/// ValueError: for sizes that do not fit each other, and for tensors that gear_mpi does not take.
class Operations {
 public:
  using List = std::vector<at::Tensor>;
  using Lists = std::vector<List>;
  using Op = ::c10d::ReduceOp;

  /// `compression`: how sums of float32 travel; `devices`: which go by way of the host; `on_node`:
  /// whether GPUs may reduce by memory of the node.
  Operations(Place place, Compression compression, const Devices& devices, bool on_node)
      : place_(place), compression_(compression), devices_(devices), on_node_(on_node) {}

  Operation broadcast(const at::Tensor& tensor, int64_t root) const;
  /// Each of `tensors` by itself, as everywhere below where there are several inputs.
  Operation all_reduce(const List& tensors, const Op& op) const;
  /// Of a sparse tensor (COO), by SUM. Ranks may have other places in it.
  Operation all_reduce_sparse(const at::Tensor& tensor, const Op& op) const;
  Operation reduce(const at::Tensor& tensor, const Op& op, int64_t root) const;
  Operation barrier() const;
  Operation monitored_barrier() const;

  /// `outputs` by input, then by rank.
  Operation all_gather(const Lists& outputs, const List& inputs) const;
  /// Each output holds what all ranks give, one after the other.
  Operation all_gather_flat(const List& outputs, const List& inputs) const;
  Operation gather(const Lists& outputs, const at::Tensor& input, int64_t root) const;
  Operation scatter(const at::Tensor& output, const Lists& inputs, int64_t root) const;

  Operation reduce_scatter(const at::Tensor& output, const List& inputs, const Op& op) const;
  Operation reduce_scatter_flat(const List& outputs, const List& inputs, const Op& op) const;

  Operation all_to_all(const List& outputs, const List& inputs) const;
  /// Of rows; no splits: as many for every rank.
  Operation all_to_all_rows(const at::Tensor& output, const at::Tensor& input,
                            const std::vector<int64_t>& output_splits,
                            const std::vector<int64_t>& input_splits) const;

 private:
  Operation begin() const { return {.tensors = {.devices = &devices_}}; }
  bool is_for_node(const List& tensors, const Op& op) const;
  Arithmetic arithmetic_of(const at::Tensor& tensor, const Op& op) const;
  void add_scattering_sum(Operation& made, const at::Tensor& output, const List& inputs,
                          const Op& op) const;
  std::vector<std::optional<Block>> rows_of(const at::Tensor& tensor, Block bytes,
                                            const std::vector<int64_t>& splits,
                                            const char* what) const;
  void check_each_rank(size_t given, const char* what) const;
  void check_dtype(const at::Tensor& output, const at::Tensor& input, const char* what) const;
  void check_own(Block given, Block taken, const char* what) const;

  bool is_root(int64_t root) const;
  size_t own() const { return static_cast<size_t>(place_.rank); }
  size_t size() const { return static_cast<size_t>(place_.size); }

  Place place_;
  Compression compression_;
  const Devices& devices_;
  bool on_node_;
};

}  // namespace gear::process_group
