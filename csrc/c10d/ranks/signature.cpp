#include "c10d/ranks/signature.h"

#include "base/errors.h"

namespace gear::c10d {
namespace {

template <size_t kLength>
std::string_view name_of(const std::array<char, kLength>& name) {
  const std::string_view all(name.data(), name.size());
  return all.substr(0, all.find('\0'));
}

// A peer's may be of no kind that this rank knows, if bytes were damaged.
std::string_view known_name(Kind kind) {
  return kind <= Kind::kReceive ? kind_name(kind) : "an unknown operation";
}

}  // namespace

std::string text_of(const Signature& signature) {
  std::string text(known_name(signature.kind));
  const std::string_view dtype = name_of(signature.dtype);
  const std::string_view reduction = name_of(signature.reduction);
  if (!dtype.empty()) {
    text += signature.count < 0 ? base::cat(" of ", dtype)
                                : base::cat(" of ", signature.count, " ", dtype);
  }
  if (!reduction.empty()) {
    text += base::cat(" by ", reduction);
  }
  if (signature.root >= 0) {
    const bool gives = signature.kind == Kind::kBroadcast || signature.kind == Kind::kScatter;
    text += base::cat(gives ? " from rank " : " to rank ", signature.root);
  }
  if (signature.wire != Wire::kSame) {
    text += signature.wire == Wire::kBf16 ? ", compressed to bf16" : ", compressed to f16";
  }
  if (signature.on_node) {
    text += ", by memory of the node";
  }
  if (signature.parts != 1) {
    text += base::cat(", tensor ", signature.part + 1, " of ", signature.parts);
  }
  return text;
}

std::string difference(const std::string& peer, const Signature& theirs, const std::string& rank,
                       const Signature& own, uint64_t number) {
  std::string of_peer = text_of(theirs);
  std::string of_rank = text_of(own);
  if (of_peer == of_rank) {
    of_peer += ", in other shares,";
  }
  return base::cat("[mpi] rank ", peer, " called ", of_peer, " where rank ", rank, " called ",
                   of_rank, " (call ", number,
                   " of the group): all ranks of a group make the same calls in the same order, "
                   "with the same dtype, number of elements, reduction and root");
}

}  // namespace gear::c10d
