#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <utility>
#include <vector>

#include "schedule/collectives.h"
#include "schedule/schedule.h"
#include "torch/gpu/devices.h"
#include "torch/gpu/stage.h"

namespace gear::process_group {

/// The tensors of an operation.
struct Tensors {
  const Devices* devices = &host_alone();  ///< which go by way of the host
  std::shared_ptr<Stage> stage = nullptr;  ///< of those, if there are any
  std::vector<at::Tensor> results{};       ///< what the operation's future gives
  std::vector<at::Tensor> kept{};          ///< read or written until the end
  /// Contiguous stand-ins of outputs, and the outputs: copied at the end.
  std::vector<std::pair<at::Tensor, at::Tensor>> copies{};
  /// Makes outputs of what has come, at the end; null: they are there by then.
  std::unique_ptr<std::function<void()>> last = nullptr;
};

/// What an operation moves, as its route and its log go by.
struct Cargo {
  uint64_t bytes = 0;
  std::optional<at::ScalarType> type{};  ///< of the first tensor
  bool on_gpu = false;

  /// Lives for ever.
  const char* dtype() const { return type ? c10::toString(*type) : ""; }
};

/// Tensors of torch as bytes for schedules. Each throws ValueError for tensors that gear_mpi cannot
/// take: sparse ones, and those of a GPU unless `devices` has them.

/// The bytes of a tensor that is read. What is not contiguous is copied.
Block input(const at::Tensor& tensor, Tensors& tensors);
/// Of one that is written, all of it; what is not contiguous is copied back at the end.
Block output(const at::Tensor& tensor, Tensors& tensors);
/// Of one that is read, and then written.
Block changed(const at::Tensor& tensor, Tensors& tensors);
/// The same of a tensor on a GPU, which is not copied to the host: contiguous, its copy if need be.
at::Tensor changed_in_place(const at::Tensor& tensor, Tensors& tensors);

/// A sparse tensor counts as the dense one of its shape, which all ranks know.
Cargo cargo_of(const at::Tensor& sparse);
Cargo cargo_of(const std::vector<at::Tensor>& tensors);
Cargo cargo_of(const std::vector<std::vector<at::Tensor>>& lists);

/// The only one of `list`, as most operations of torch.distributed have it.
at::Tensor& only(std::vector<at::Tensor>& list);

/// What a reduction of `tensor` over `size` ranks computes; a complex number is two. Throws
/// ValueError if that is not possible.
Arithmetic arithmetic_of(const at::Tensor& tensor, const ::c10d::ReduceOp& op, int size);

/// Whether `op` multiplies what each rank gives; `scale` does that, in place.
bool scales(const ::c10d::ReduceOp& op);
void scale(at::Tensor& tensor, const ::c10d::ReduceOp& op);

}  // namespace gear::process_group
