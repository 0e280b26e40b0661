#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "group/peers/peers.h"
#include "memory/region.h"
#include "store/publish/published_index.h"
#include "transport/one_sided/remote_memory.h"

namespace gear::group {

/// The shards of all ranks as any of them may read them at any time: pages, and what each rank
/// publishes of its index. Where this rank maps an owner's pages it reads by pointer, else
/// one-sided through the transport; in neither case has the owner a part in it.
class PublishedShards {
 public:
  /// Where a read goes to in an owner.
  enum class Part : uint8_t { kPages, kIndex };

  /// Bytes [from, from + bytes) of a part of `owner` go to `to`. Of kIndex: whole words.
  struct Read {
    uint32_t owner;
    uint64_t from;
    uint64_t bytes;
    std::byte* to;
  };

  /// From here on this rank publishes. Collective over `peers.control()`. Throws InvalidArgument,
  /// on all ranks alike, where some rank can read another's pages in neither way; and where a rank
  /// cannot make or map an index what became of that, a TransportError with its words on the
  /// others.
  explicit PublishedShards(Peers& peers);

  uint32_t size() const { return static_cast<uint32_t>(layouts_.size()); }
  const store::PublishedLayout& layout(uint32_t owner) const { return layouts_[owner]; }
  bool by_pointer(uint32_t owner) const { return pages_[owner].host != nullptr; }

  /// Reads. What an owner writes meanwhile may come torn; what a later call reads is of a later
  /// time. Throws TransportError, and what base::check_interrupt throws. Any thread.
  void read(Part part, std::span<const Read> reads);

 private:
  struct Far {
    transport::RemoteRead read;
    std::byte* to;
  };

  /// One thread at a time reads one-sided, in the order in which they come. A read may take long:
  /// base::check_interrupt ends the wait for it.
  class Turn {
   public:
    explicit Turn(PublishedShards& shards);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    void leave();

    PublishedShards& shards_;
  };

  void make_index(Peers& peers);
  void read_far(transport::RemoteReader& reader);

  std::vector<store::PublishedLayout> layouts_;           // by owner
  std::vector<PeerPages> pages_;                          // likewise
  std::vector<std::shared_ptr<memory::Region>> indexes_;  // likewise; null: read one-sided
  std::unique_ptr<transport::RemoteMemory> far_indexes_;
  std::mutex mutex_;  // of turns_
  std::condition_variable ended_;
  std::deque<const Turn*> turns_;                          // who has the first has what follows
  std::unique_ptr<transport::RemoteReader> page_reader_;   // null: all are read by pointer
  std::unique_ptr<transport::RemoteReader> index_reader_;  // likewise
  std::vector<Far> far_;
  std::vector<transport::RemoteRead> far_reads_;
};

}  // namespace gear::group
