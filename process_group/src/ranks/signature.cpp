#include "ranks/signature.h"

#include <bit>

#include "base/errors.h"

namespace gear::process_group {
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
    const std::string_view layout = signature.is_sparse ? "sparse " : "";
    text += signature.count < 0 ? base::cat(" of ", layout, dtype)
                                : base::cat(" of ", signature.count, " ", layout, dtype);
  }
  if (!reduction.empty()) {
    text += base::cat(" by ", reduction);
  }
  if (signature.root >= 0) {
    const bool gives = signature.kind == Kind::kBroadcast || signature.kind == Kind::kScatter;
    text += base::cat(gives ? " from rank " : " to rank ", signature.root);
  }
  if (signature.compression != Compression::kNone) {
    text += signature.compression == Compression::kBf16 ? ", compressed to bf16"
                                                        : ", compressed to f16";
  }
  if (signature.way != Way::kMessages) {
    text += signature.way == Way::kNode ? ", by memory of the node" : ", by gloo";
  }
  if (signature.parts != 1) {
    text += signature.is_of_all
                ? base::cat(", the first of ", signature.parts, " tensors")
                : base::cat(", tensor ", signature.part + 1, " of ", signature.parts);
  }
  return text;
}

Signature together(const std::vector<Signature>& signatures) {
  Signature one = signatures.front();
  if (signatures.size() > 1) {
    Hash hash;
    for (const Signature& signature : signatures) {
      for (const uint64_t number :
           std::bit_cast<std::array<uint64_t, sizeof(Signature) / sizeof(uint64_t)>>(signature)) {
        hash.add(number);
      }
    }
    one.division = hash.value();
    one.parts = static_cast<uint32_t>(signatures.size());
    one.is_of_all = true;
  }
  return one;
}

std::string difference(const std::string& peer, const Signature& theirs, const std::string& rank,
                       const Signature& own, uint64_t number) {
  std::string of_peer = text_of(theirs);
  std::string of_rank = text_of(own);
  if (of_peer == of_rank) {
    of_peer += own.is_sparse   ? ", of another shape,"
               : own.is_of_all ? ", with others behind it,"
                               : ", in other shares,";
  }
  return base::cat("[mpi] rank ", peer, " called ", of_peer, " where rank ", rank, " called ",
                   of_rank, " (call ", number,
                   " of the group): all ranks of a group make the same calls in the same order, "
                   "with the same dtype, number of elements, reduction and root");
}

}  // namespace gear::process_group
