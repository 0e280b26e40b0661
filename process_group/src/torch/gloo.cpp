#include "torch/gloo.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "base/errors.h"

namespace gear::process_group {
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

void Gloo::set_timeout(std::chrono::milliseconds timeout) {
  if (group_) {
    group_->backend().setTimeout(timeout);
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

void Gloo::check(Kind kind, const Cargo& cargo, const ReduceOp* reduction) {
  TORCH_CHECK_VALUE(
      !cargo.on_gpu, "[mpi] ", kind_name(kind),
      " goes by gloo, as its route says, and tensors of a GPU go by MPI alone: route ",
      kind_name(kind), " by mpi");
  const char* const lacking = lacks(cargo, reduction);
  TORCH_CHECK_VALUE(lacking == nullptr, "[mpi] ", kind_name(kind), " of ", cargo.dtype(),
                    " goes by gloo, as its route says, and gloo has no ", lacking, ": route ",
                    kind_name(kind), " by mpi");
}

c10::intrusive_ptr<GlooWork> Gloo::run(::c10d::OpType type, const Signature& signature,
                                       const Cargo& cargo, const std::optional<Entry>& entry,
                                       double timeout_s, bool awaited, GlooStart::Begin begin) {
  auto work = c10::make_intrusive<GlooWork>(ring_->place.rank, type, ring_, entry);
  try {
    work->begin(
        [&] {
          return std::make_shared<GlooStart>(ring_, signature, group_, cargo.dtype(),
                                             std::move(begin), timeout_s);
        },
        awaited);
  } catch (const base::TransportError& error) {
    C10_THROW_ERROR(DistBackendError, error.what());
  }
  return work;
}

}  // namespace gear::process_group
