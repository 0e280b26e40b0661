#include "group/parcels/parcel_arena.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/errors.h"

namespace gear::group {
namespace {

constexpr uint64_t kAlign = 64;  // a cache line

uint64_t aligned(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

void ParcelArena::make(uint64_t bytes) {
  if (arena_ && arena_->bytes() == bytes) {
    return;
  }
  former_ = std::exchange(arena_, memory::make_region(memory::Tier::kHost, bytes));
  const transport::Bytes memory(arena_->data(), arena_->bytes());
  if (exposed_) {
    exposed_->renew(memory);
  } else if ((exposed_ = data_.expose(memory))) {
    reader_ = exposed_->connect(data_, from_);
  } else {
    throw base::TransportError(base::cat(
        "[transport] the ranks cannot register memory for rows that they pack, ", bytes,
        " bytes here: raise the limit (ulimit -l), or set GEAR_PACK_BELOW=0 on every rank"));
  }
  former_.reset();
}

std::optional<uint64_t> ParcelArena::place(uint64_t bytes) {
  const uint64_t begin = used_;
  used_ += aligned(bytes);
  if (used_ > wanted()) {
    wanted_.store(std::bit_ceil(used_), std::memory_order_relaxed);
  }
  return used_ <= arena_->bytes() ? std::optional(begin) : std::nullopt;
}

std::span<const transport::ConstBytes> ParcelArena::read(std::span<const Piece> pieces) {
  reads_.clear();
  arrived_.clear();
  uint64_t landed_bytes = 0;
  for (const Piece& piece : pieces) {
    if (piece.bytes > arena_->bytes() || piece.at > arena_->bytes() - piece.bytes) {
      throw base::TransportError(base::cat("[transport] rank ", piece.owner, " has packed ",
                                           piece.bytes, " bytes of rows for rank ", data_.rank(),
                                           " at ", piece.at, " of ", arena_->bytes(),
                                           ": ranks of one group must run the same build"));
    }
    reads_.push_back({piece.owner, piece.at, piece.bytes, landed_bytes});
    landed_bytes += aligned(piece.bytes);
  }
  if (!reads_.empty()) {
    const transport::ConstBytes landed = reader_->read(reads_, landed_bytes);
    for (const transport::RemoteRead& one : reads_) {
      arrived_.push_back(landed.subspan(one.to, one.bytes));
    }
  }
  return arrived_;
}

}  // namespace gear::group
