#include "torch/tensors.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

namespace gear::process_group {
namespace {

void check_tensor(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined(), "[mpi] an undefined tensor was given");
  TORCH_CHECK_VALUE(tensor.is_cpu() || tensor.is_cuda(), "[mpi] a tensor on ", tensor.device(),
                    " was given: those on cpu and cuda are allowed; move it with .cpu()");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "[mpi] a tensor of layout ", tensor.layout(),
                    " was given: dense (strided) ones are allowed, and all_reduce by SUM of one "
                    "sparse tensor (COO) of the host; use .to_dense()");
}

Stage& stage_of(const at::Tensor& dense, Tensors& tensors) {
  TORCH_CHECK_VALUE(
      tensors.devices->stages(dense.device()), "[mpi] a tensor on ", dense.device(),
      " was given to gear_mpi, and this torch has NCCL, whose messages between GPUs need no memory "
      "of the host: make the process group of \"cpu:gear_mpi,cuda:nccl\"; or set "
      "GEAR_MPI_CUDA=staged, with which gear_mpi takes it by way of the host");
  if (!tensors.stage) {
    tensors.stage =
        std::make_shared<Stage>(dense.device(), tensors.devices->copier(dense.device()));
  }
  TORCH_CHECK_VALUE(tensors.stage->device() == dense.device(), "[mpi] tensors on ",
                    tensors.stage->device(), " and on ", dense.device(),
                    " were given to one operation: those of one GPU are allowed");
  return *tensors.stage;
}

Block bytes_of(const at::Tensor& dense, Tensors& tensors, bool comes, bool leaves) {
  if (dense.is_cpu() && !tensors.devices->stages(dense.device())) {
    return {static_cast<std::byte*>(dense.data_ptr()), dense.nbytes()};
  }
  return stage_of(dense, tensors).add(dense, comes, leaves);
}

// Contiguous: itself, or a copy that is copied back at the end.
at::Tensor dense_of_written(const at::Tensor& tensor, Tensors& tensors) {
  check_tensor(tensor);
  at::Tensor dense = tensor.contiguous();
  if (!dense.is_same(tensor)) {
    tensors.copies.emplace_back(dense, tensor);
  }
  tensors.kept.push_back(dense);
  return dense;
}

Block written(const at::Tensor& tensor, Tensors& tensors, bool comes) {
  return bytes_of(dense_of_written(tensor, tensors), tensors, comes, true);
}

Element element_of(at::ScalarType type) {
  switch (type) {
    case at::kBool:
      return Element::kBool;
    case at::kByte:
      return Element::kU8;
    case at::kChar:
      return Element::kI8;
    case at::kShort:
      return Element::kI16;
    case at::kInt:
      return Element::kI32;
    case at::kLong:
      return Element::kI64;
    case at::kHalf:
      return Element::kF16;
    case at::kBFloat16:
      return Element::kBf16;
    case at::kFloat:
    case at::kComplexFloat:
      return Element::kF32;
    case at::kDouble:
    case at::kComplexDouble:
      return Element::kF64;
    default:
      C10_THROW_ERROR(ValueError,
                      c10::str("[mpi] tensors of ", type,
                               " cannot be reduced: bool, uint8, int8 to int64, float16, bfloat16, "
                               "float32, float64, complex64 and complex128 can; other dtypes can "
                               "be sent, gathered and scattered"));
  }
}

Reduction reduction_of(const ::c10d::ReduceOp& op) {
  switch (op.op_) {
    case ::c10d::ReduceOp::SUM:
    case ::c10d::ReduceOp::AVG:
    case ::c10d::ReduceOp::PREMUL_SUM:
      return Reduction::kSum;
    case ::c10d::ReduceOp::PRODUCT:
      return Reduction::kProduct;
    case ::c10d::ReduceOp::MIN:
      return Reduction::kMin;
    case ::c10d::ReduceOp::MAX:
      return Reduction::kMax;
    case ::c10d::ReduceOp::BAND:
      return Reduction::kAnd;
    case ::c10d::ReduceOp::BOR:
      return Reduction::kOr;
    case ::c10d::ReduceOp::BXOR:
      return Reduction::kXor;
    default:
      C10_THROW_ERROR(ValueError, "[mpi] an unknown reduction was given");
  }
}

}  // namespace

Block input(const at::Tensor& tensor, Tensors& tensors) {
  check_tensor(tensor);
  at::Tensor dense = tensor.contiguous();
  tensors.kept.push_back(dense);
  return bytes_of(dense, tensors, true, false);
}

Block output(const at::Tensor& tensor, Tensors& tensors) { return written(tensor, tensors, false); }

Block changed(const at::Tensor& tensor, Tensors& tensors) { return written(tensor, tensors, true); }

at::Tensor changed_in_place(const at::Tensor& tensor, Tensors& tensors) {
  at::Tensor dense = dense_of_written(tensor, tensors);
  stage_of(dense, tensors);
  return dense;
}

Cargo cargo_of(const at::Tensor& sparse) {
  return {.bytes = static_cast<uint64_t>(sparse.numel()) * sparse.element_size(),
          .type = sparse.scalar_type(),
          .on_gpu = sparse.is_cuda()};
}

Cargo cargo_of(const std::vector<at::Tensor>& tensors) {
  Cargo cargo;
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor);
    cargo.bytes += tensor.nbytes();
    cargo.on_gpu = cargo.on_gpu || tensor.is_cuda();
  }
  if (!tensors.empty()) {
    cargo.type = tensors.front().scalar_type();
  }
  return cargo;
}

Cargo cargo_of(const std::vector<std::vector<at::Tensor>>& lists) {
  Cargo cargo;
  for (const auto& list : lists) {
    const Cargo one = cargo_of(list);
    cargo = {cargo.bytes + one.bytes, one.type, cargo.on_gpu || one.on_gpu};
  }
  return cargo;
}

at::Tensor& only(std::vector<at::Tensor>& list) {
  TORCH_CHECK_VALUE(list.size() == 1, "[mpi] ", list.size(), " tensors were given: one is allowed");
  return list.front();
}

Arithmetic arithmetic_of(const at::Tensor& tensor, const ::c10d::ReduceOp& op, int size) {
  check_tensor(tensor);
  Arithmetic arithmetic;
  arithmetic.element = element_of(tensor.scalar_type());
  arithmetic.reduction = reduction_of(op);
  const bool is_average = op.op_ == ::c10d::ReduceOp::AVG;
  if (is_average) {
    arithmetic.divisor = size;
  }
  const bool possible = can_reduce(arithmetic.element, arithmetic.reduction) &&
                        !(tensor.is_complex() && arithmetic.reduction != Reduction::kSum) &&
                        !(arithmetic.element == Element::kBool && is_average);
  TORCH_CHECK_VALUE(possible, "[mpi] ", is_average ? "AVG" : reduction_name(arithmetic.reduction),
                    " of ", tensor.scalar_type(),
                    " was asked for: bitwise reductions take integers and bool, AVG all but bool, "
                    "and of complex numbers there are SUM and AVG");
  return arithmetic;
}

bool scales(const ::c10d::ReduceOp& op) { return op.op_ == ::c10d::ReduceOp::PREMUL_SUM; }

void scale(at::Tensor& tensor, const ::c10d::ReduceOp& op) {
  const c10::NoGradGuard no_grad;
  const auto* const factor =
      dynamic_cast<const ::c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(factor != nullptr, "[mpi] PREMUL_SUM has no factor");
  TORCH_CHECK_VALUE(tensor.is_floating_point() || tensor.is_complex(), "[mpi] PREMUL_SUM of ",
                    tensor.scalar_type(), " was asked for: floating point is allowed");
  if (factor->tensor_factor.defined()) {
    tensor.mul_(factor->tensor_factor.to(tensor.device()));
  } else {
    tensor.mul_(factor->double_factor);
  }
}

}  // namespace gear::process_group
