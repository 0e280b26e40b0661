#pragma once

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "c10d/collectives.h"
#include "c10d/schedule.h"
#include "c10d/torch/work.h"

namespace gear::c10d {

/// Tensors of torch as bytes for schedules. Each throws ValueError for tensors that gear_mpi cannot
/// take: those of a GPU, and sparse ones.

/// The bytes of a tensor that is read. What is not contiguous is copied.
Block input(const at::Tensor& tensor, Tensors& tensors);
/// Of one that is written, or read and written; what is not contiguous is copied back at the end.
Block output(const at::Tensor& tensor, Tensors& tensors);

/// The only one of `list`, as most operations of torch.distributed have it.
at::Tensor& only(std::vector<at::Tensor>& list);

/// What a reduction of `tensor` over `size` ranks computes; a complex number is two. Throws
/// ValueError if that is not possible.
Arithmetic arithmetic_of(const at::Tensor& tensor, const ::c10d::ReduceOp& op, int size);

/// Whether `op` multiplies what each rank gives; `scale` does that, in place.
bool scales(const ::c10d::ReduceOp& op);
void scale(at::Tensor& tensor, const ::c10d::ReduceOp& op);

}  // namespace gear::c10d
