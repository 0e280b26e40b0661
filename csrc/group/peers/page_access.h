#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gear::group {

/// Where the pages of a rank's shard can be read from here.
struct PeerPages {
  const std::byte* host = nullptr;    ///< by the host; null: not at all
  const std::byte* device = nullptr;  ///< by kernels on the consumer's GPU; null: not at all
  uint64_t num_pages = 0;             ///< that this rank reads; 0: rows are packed

  bool mapped() const { return host != nullptr || device != nullptr; }
};

/// How rows of an owner come to a consumer.
enum class Way : uint8_t {
  kPointer,  ///< the consumer reads the owner's pages
  kRead,     ///< it reads them one-sided, by Peers::remote()
  kPacked,   ///< the owner packs them, and the consumer reads that one-sided: see ParcelArena
  kMessage,  ///< the owner packs them, and sends that
};

/// The ways between this rank and the others, for one loader.
struct PageAccess {
  std::vector<PeerPages> pages;    ///< by owner: as this rank reads them
  std::vector<uint8_t> mapped_by;  ///< by consumer: 1 where it reads this rank's pages by pointer
  Way others = Way::kPointer;      ///< where kPointer does not lead; itself: it leads everywhere

  Way from(uint32_t owner) const { return pages[owner].mapped() ? Way::kPointer : others; }
  Way to(uint32_t consumer) const { return mapped_by[consumer] != 0 ? Way::kPointer : others; }
  /// Whether there are rows, of whatever ranks, that nobody reads by pointer.
  bool moves_rows() const { return others != Way::kPointer; }

  /// By consumer: 1 where it is told where the rows lie in this rank's pages.
  std::vector<uint8_t> told() const {
    return others == Way::kRead ? std::vector<uint8_t>(mapped_by.size(), 1) : mapped_by;
  }

  /// By owner: 1 where its rows do not come by pointer.
  std::vector<uint8_t> far() const {
    std::vector<uint8_t> far;
    far.reserve(pages.size());
    for (const PeerPages& one : pages) {
      far.push_back(one.mapped() ? 0 : 1);
    }
    return far;
  }

  /// kPacked in place of kRead.
  void pack() {
    others = Way::kPacked;
    for (PeerPages& one : pages) {
      one.num_pages = one.mapped() ? one.num_pages : 0;
    }
  }
};

}  // namespace gear::group
