#include "c10d/torch/gloo.h"

#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>

#include <algorithm>

#include "c10d/engine/engine.h"

namespace gear::c10d {
namespace {

using ::c10d::ReduceOp;

// What gloo has not; it says so itself when an operation is under way, and names nothing then.
const char* lacks(const Cargo& cargo, const ReduceOp* reduction) {
  constexpr std::array kTypes{at::kBool, at::kByte,     at::kChar,  at::kInt,   at::kLong,
                              at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
  if (cargo.type && std::ranges::find(kTypes, *cargo.type) == kTypes.end()) {
    return "tensors of this dtype";
  }
  if (reduction == nullptr || !cargo.type) {
    return nullptr;
  }
  switch (reduction->op_) {
    case ReduceOp::AVG:
      return "AVG";
    case ReduceOp::PREMUL_SUM:
      return "PREMUL_SUM";
    case ReduceOp::BAND:
    case ReduceOp::BOR:
    case ReduceOp::BXOR:
      return c10::isIntegralType(*cargo.type, false) ? nullptr : "bitwise reductions of this dtype";
    default:
      return nullptr;
  }
}

}  // namespace

Gloo::~Gloo() {
  if (group_ && Py_IsInitialized() != 0 && PyGILState_Check() != 0) {
    const pybind11::gil_scoped_release released;
    group_.reset();
  }
}

void Gloo::set_timeout(std::chrono::milliseconds timeout) {
  if (group_) {
    group_->setTimeout(timeout);
  }
}

void Gloo::set(Kind kind, uint64_t from, uint64_t to) {
  TORCH_CHECK_VALUE(from == to || has_joined(), "[mpi] ", kind_name(kind),
                    " by gloo: the group has none");
  Range& range = ranges_[static_cast<size_t>(kind)];
  range.from = from;
  range.to = to;
}

std::pair<uint64_t, uint64_t> Gloo::range(Kind kind) const {
  const Range& range = ranges_[static_cast<size_t>(kind)];
  return {range.from, range.to};
}

Gloo::WorkPointer Gloo::run(Kind kind, const Cargo& cargo, const ReduceOp* reduction,
                            const std::optional<Entry>& entry,
                            const std::function<WorkPointer(::c10d::Backend&)>& call) {
  TORCH_CHECK_VALUE(
      !cargo.on_gpu, "[mpi] ", kind_name(kind),
      " goes by gloo, as its route says, and tensors of a GPU go by MPI alone: route ",
      kind_name(kind), " by mpi");
  const char* const lacking = lacks(cargo, reduction);
  TORCH_CHECK_VALUE(lacking == nullptr, "[mpi] ", kind_name(kind), " of ", cargo.dtype(),
                    " goes by gloo, as its route says, and gloo has no ", lacking, ": route ",
                    kind_name(kind), " by mpi");
  std::string failure;
  uint64_t number = 0;
  Engine::instance().exclusively([&] {
    failure = ring_->communicator.failure();
    number = ring_->communicator.take_number(kind);
  });
  if (!failure.empty()) {
    C10_THROW_ERROR(DistBackendError, failure);
  }
  WorkPointer work;
  try {
    work = call(*group_);
  } catch (const c10::Error& error) {
    C10_THROW_ERROR(ValueError, c10::str("[mpi] ", kind_name(kind), " of ", cargo.dtype(),
                                         " goes by gloo, as its route says, and gloo refuses it: ",
                                         error.what_without_backtrace(), ": route ",
                                         kind_name(kind), " by mpi"));
  }
  if (entry) {
    // `ring` keeps the name that the entry points to.
    work->getFuture()->addCallback(
        [filled = *entry, number, ring = ring_](c10::ivalue::Future& future) mutable {
          filled.end = Clock::now();
          filled.number = static_cast<int64_t>(number);
          filled.failed = future.hasError();
          Log::current()->write(filled);
        });
  }
  return work;
}

}  // namespace gear::c10d
