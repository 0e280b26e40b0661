#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gear::group {

/// Where the pages of a rank's shard can be read from here.
struct PeerPages {
  const std::byte* host = nullptr;    ///< by the host; null: not at all
  const std::byte* device = nullptr;  ///< by kernels on the consumer's GPU; null: not at all
  uint64_t num_pages = 0;             ///< that this rank reads; 0: rows are sent
};

/// Which rank reads which rank's pages by pointer, for one loader, and how the other rows come.
struct PageAccess {
  std::vector<PeerPages> pages;     ///< by owner: as this rank reads them
  std::vector<uint8_t> by_pointer;  ///< [consumer, owner]
  bool messages = false;            ///< some rank does not read some other's so
  bool one_sided = false;  ///< consumers read those rows in their owners' memory; else sent
  bool packed = false;     ///< which packs them first: see ParcelArena

  /// [consumer, owner]: whether the consumer is told where the rows lie in the owner's pages.
  std::vector<uint8_t> told() const {
    return by_run() ? std::vector<uint8_t>(by_pointer.size(), 1) : by_pointer;
  }

  /// Whether consumers read those rows in their owners' pages, by Peers::remote().
  bool by_run() const { return one_sided && !packed; }

  /// Of one_sided: the owners pack from here on.
  void pack() {
    packed = true;
    for (PeerPages& one : pages) {
      one.num_pages = one.host != nullptr ? one.num_pages : 0;
    }
  }

  /// By owner: 1 where this rank cannot read its pages by pointer.
  std::vector<uint8_t> far() const {
    std::vector<uint8_t> far;
    for (const PeerPages& one : pages) {
      far.push_back(one.host == nullptr ? 1 : 0);
    }
    return far;
  }

  bool reads(uint32_t consumer, uint32_t owner) const {
    return by_pointer[consumer * pages.size() + owner] != 0;
  }
};

}  // namespace gear::group
