#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "group/peers/mappings.h"
#include "group/peers/outbox.h"
#include "group/peers/page_access.h"
#include "memory/peer_region.h"
#include "memory/shared/process_identity.h"
#include "store/shard.h"
#include "transport/one_sided/remote_memory.h"
#include "transport/transport.h"

namespace gear::group {

/// The other ranks of a buffer: what this rank knows of their shards. Shared by the buffer and its
/// loaders.
class Peers {
 public:
  /// `nodes`: number of every rank's node. `hide_names`: the shared memory's name is for the ranks
  /// alone, and goes once those of the node have mapped it. Collective over `control`. Throws
  /// InvalidArgument, on all ranks alike, where schemas, page sizes or owners of the shards do not
  /// make one buffer.
  Peers(std::shared_ptr<store::Shard> shard, std::shared_ptr<transport::Transport> control,
        std::vector<uint32_t> nodes, bool hide_names);

  store::Shard& shard() const { return *shard_; }
  transport::Transport& control() const { return *control_; }
  /// The pages of all ranks, where the transport reads them without their owners' part; else null.
  transport::RemoteMemory* remote() const { return remote_.get(); }
  uint32_t rank() const { return rank_; }
  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()); }
  const std::vector<uint32_t>& nodes() const { return nodes_; }
  const memory::ProcessIdentity& process(uint32_t rank) const { return known_[rank].process; }
  /// Names what ranks of a node share; the same on all ranks, of this buffer alone.
  std::string shared_name(uint32_t rank, uint64_t loader) const;
  /// Numbers the loaders, in the order in which they are made on every rank.
  uint64_t next_loader() { return loaders_++; }

  /// Maps what can be mapped, for kernels of GPU `device` or (-1) for the host, and tells the
  /// others. What cannot be mapped has no address: tier kHost, another node, and (logged) what
  /// open_peer_region refuses. The host reads that one-sided where there is remote(). Collective
  /// over `control`. Throws CudaError and OutOfMemory as that does, as transport::on_all.
  PageAccess agree_on_access(int device, transport::Transport& control);

  /// Owners pack runs of rows that are shorter than so many bytes for those who read them
  /// one-sided: see transport::agree_on_pack_below. Of use where one_sided; the first call is
  /// collective over `control`, and a rank of another node is measured where there is one.
  uint64_t pack_below(transport::Transport& control);

  /// Steps that a rank's shard has room for.
  uint64_t num_slots(uint32_t rank) const {
    return known_[rank].num_pages * known_[rank].page_steps;
  }
  /// What this rank has yet to tell them.
  Outbox& outbox() { return *outbox_; }

 private:
  /// What every rank tells the others at the start.
  struct Known {
    memory::RegionAddress region;
    memory::ProcessIdentity process;
    uint64_t page_steps;
    uint64_t num_pages;
    std::array<char, 24> made_up;  ///< a name; rank 0's begins those of memory for loaders
    uint32_t owner;
    uint32_t max_times_sampled;
    store::Evict evict;
    uint8_t hides_name;
    std::array<char, 2> zero;
    std::array<char, 17> schema_hash;
    std::array<char, 11> zeros;
  };

  void check_known() const;
  void expose();

  std::shared_ptr<store::Shard> shard_;
  std::shared_ptr<transport::Transport> control_;
  std::unique_ptr<transport::RemoteMemory> remote_;
  std::vector<uint32_t> nodes_;
  uint32_t rank_;
  std::vector<Known> known_;
  std::optional<Mappings> mappings_;
  std::optional<Outbox> outbox_;
  std::optional<uint64_t> pack_below_;
  uint64_t loaders_ = 0;
};

}  // namespace gear::group
