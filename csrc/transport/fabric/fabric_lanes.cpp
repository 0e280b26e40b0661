#include "transport/fabric/fabric_lanes.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "base/errors.h"

namespace gear::transport::fabric {
namespace {

constexpr uint32_t kDepth = 256;
constexpr uint32_t kMostOpen = 4096;
constexpr size_t kCompletions = 64;  // taken at a time

uint32_t depth_of(const fi_info& info) {
  return static_cast<uint32_t>(std::clamp<size_t>(info.tx_attr->size, 1, kMostOpen));
}

// What an error says beyond its own words.
std::string_view hint(int error) {
  switch (error) {
    case FI_ECANCELED:
    case FI_ECONNRESET:
    case FI_ECONNREFUSED:
    case FI_ECONNABORTED:
    case FI_ENOTCONN:
    case FI_ESHUTDOWN:
    case FI_EIO:
      return "its connection has ended: it has ended itself, or has closed its buffer, which it "
             "may do only once all ranks have closed their loaders";
    case FI_ETIMEDOUT:
    case FI_EHOSTUNREACH:
    case FI_ENETUNREACH:
      return "it does not answer: it has ended, or the link is down (fi_info, ip link)";
    case FI_EKEYREJECTED:
    case FI_EACCES:
    case FI_EREMOTEIO:
      return "it does not offer the memory asked for: it has closed its buffer, which it may do "
             "only once all ranks have closed their loaders, or runs another build";
    default:
      return "see the system's log on both nodes, and what FI_LOG_LEVEL=warn prints";
  }
}

}  // namespace

FabricLanes::FabricLanes(const std::shared_ptr<const FabricDomain>& domain,
                         std::vector<Opaque> names, std::vector<uint8_t> partners,
                         uint64_t chunk_bytes)
    : names_(std::move(names)),
      partners_(std::move(partners)),
      chunk_bytes_(chunk_bytes),
      endpoint_(domain, depth_of(*domain->info()), false),
      owners_(names_.size(), FI_ADDR_NOTAVAIL),
      slots_(depth_of(*domain->info())),
      free_slots_(slots_.size()),
      entries_(kCompletions) {
  static_assert(offsetof(Slot, context) == 0);
  std::iota(free_slots_.begin(), free_slots_.end(), 0);
  limits_.per_owner = 1;
  limits_.open = static_cast<uint32_t>(slots_.size());
  limits_.depth = std::min(limits_.open, kDepth);
  limits_.most_bytes = std::min<uint64_t>(domain->info()->ep_attr->max_msg_size, uint64_t{1} << 30);
}

void FabricLanes::connect(std::span<const Opaque>) {
  for (uint32_t owner = 0; owner < names_.size(); ++owner) {
    if (partners_[owner] != 0) {
      owners_[owner] = endpoint_.add(names_[owner]);
    }
  }
}

ChunkedMemory FabricLanes::land_in(Bytes memory) {
  landing_.reset();
  landing_.emplace(endpoint_, memory, MemoryUse::kLanding, chunk_bytes_);
  return landing_->chunked();
}

uint32_t FabricLanes::post(uint32_t lane, std::span<const Piece> chain) {
  GEAR_CHECK(owners_[lane] != FI_ADDR_NOTAVAIL);
  uint32_t posted = 0;
  for (const Piece& piece : chain) {
    Slot& slot = slots_[free_slots_.back()];
    slot.lane = lane;
    const ssize_t code = ::fi_read(endpoint_.endpoint(), reinterpret_cast<void*>(piece.to),
                                   piece.bytes, reinterpret_cast<void*>(piece.to_key),
                                   owners_[lane], piece.from, piece.from_key, &slot.context);
    if (code == -FI_EAGAIN) {  // it takes more when others are over, or once it has connected
      break;
    }
    if (code != 0) {
      const int error = static_cast<int>(-code);
      throw base::TransportError(base::cat("[transport] fi_read from rank ", lane, " (", way(lane),
                                           "): ", endpoint_.domain().library().strerror(error),
                                           ": ", hint(error)));
    }
    free_slots_.pop_back();
    ++posted;
  }
  return posted;
}

std::span<const Ended> FabricLanes::ended() {
  ended_.clear();
  const ssize_t count = ::fi_cq_read(endpoint_.completions(), entries_.data(), entries_.size());
  if (count == -FI_EAVAIL) {
    end_failed();
  } else if (count != -FI_EAGAIN) {
    check_fabric(endpoint_.domain().library(), endpoint_.domain().text() + ", fi_cq_read", count);
    for (ssize_t i = 0; i < count; ++i) {
      ended_.push_back(end(entries_[static_cast<size_t>(i)].op_context));
    }
  }
  return ended_;
}

Ended FabricLanes::end(void* context) {
  const auto index = static_cast<uint32_t>(static_cast<Slot*>(context) - slots_.data());
  GEAR_CHECK(index < slots_.size());
  free_slots_.push_back(index);
  return {slots_[index].lane, 1, {}};
}

void FabricLanes::end_failed() {
  fi_cq_err_entry failed{};
  const FabricLibrary& library = endpoint_.domain().library();
  check_fabric(library, endpoint_.domain().text() + ", fi_cq_readerr",
               ::fi_cq_readerr(endpoint_.completions(), &failed, 0));
  const std::string words =
      base::cat(library.strerror(failed.err), " (", failed.err, "): ", hint(failed.err));
  if (failed.op_context == nullptr) {
    throw base::TransportError(base::cat("[transport] ", endpoint_.domain().text(), ": ", words));
  }
  ended_.push_back(end(failed.op_context));
  ended_.back().failure = words;
}

std::string FabricLanes::way(uint32_t) const { return endpoint_.domain().text(); }

}  // namespace gear::transport::fabric
