#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "group/page_access.h"
#include "memory/peer_region.h"
#include "memory/shared/process_identity.h"
#include "store/checkpoint/snapshot_index.h"
#include "store/shard.h"
#include "transport/one_sided/remote_memory.h"
#include "transport/transport.h"

namespace gear::group {

/// Priorities that a GPU keeps for the ranks whose steps they are: see UpdateExchange. Under the
/// shard's lock.
class DeviceUpdates {
 public:
  virtual ~DeviceUpdates() = default;

  /// Keeps priorities of arrays as Mirror::update has them.
  virtual void keep(const int64_t* ids, const float* priorities, uint64_t count, bool on_device,
                    uintptr_t stream) = 0;
  /// Whether keep() would not wait for the GPU.
  virtual bool has_room() const = 0;
  /// How many; of calls that were refused too.
  virtual uint64_t kept() const = 0;
  /// Appends what is kept, which it forgets. Waits for the GPU.
  virtual void take(std::vector<int64_t>& ids, std::vector<float>& priorities) = 0;
  /// As Mirror::raise_failed_update.
  virtual void raise_failed() = 0;
};

/// The other ranks of a buffer: what this rank knows of their shards, and the priorities that it
/// has yet to tell them. Shared by the buffer and its loaders.
///
/// One place keeps those priorities: this one, until a loader's draws select on the GPUs of all
/// ranks; from there on what set_device_updates() was given, for as long as the buffer is. A draw
/// of that kind sends them from GPU to GPU; where the host must tell them (in another loader's
/// draw), exchange_updates() takes them back first. Between draws nothing tells them: a checkpoint
/// holds them as they are, so that a run goes on from it, or beside it, as if none had been made.
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

  /// Keeps priorities until the next exchange_updates(), on whatever rank's steps they are. Throws
  /// InvalidArgument, and keeps nothing, for a priority that is negative or not finite, or an id of
  /// no rank; and OutOfMemory for more than kLeastKept and two for each step that the buffer has
  /// room for, which nobody exchanges; and as Shard::check_process(). Any thread.
  void update(std::span<const int64_t> ids, std::span<const float> priorities);
  /// The same of arrays on a GPU, see Mirror::update. Returns at once where a GPU keeps them, which
  /// finds a wrong priority or id later: then the next update raises it. Else it waits for them.
  void update_from_device(const int64_t* ids, const float* priorities, uint64_t count,
                          uintptr_t stream);
  static constexpr uint64_t kLeastKept = 1 << 20;
  uint64_t num_kept();
  /// A copy of what is kept, for store::save_shard(). Waits for the GPU that keeps it.
  std::vector<store::KeptUpdate> kept_updates();
  /// Collective: what every rank kept reaches the owners, which apply it in the order of the ranks.
  /// Where this rank's GPU fails it has sent nothing, and what others sent is applied, before it
  /// throws CudaError.
  void exchange_updates(transport::Transport& control);

  /// From here on `updates` keeps the priorities, those that are kept already among them. On all
  /// ranks at the same place.
  void set_device_updates(std::shared_ptr<DeviceUpdates> updates);
  /// Null: none.
  const std::shared_ptr<DeviceUpdates>& device_updates() const { return device_updates_; }
  /// Steps that a rank's shard has room for.
  uint64_t num_slots(uint32_t rank) const {
    return known_[rank].num_pages * known_[rank].page_steps;
  }

 private:
  using Update = store::KeptUpdate;

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

  struct Mapped {
    uint32_t rank;
    int device;
    std::unique_ptr<memory::Region> region;
  };

  void check_known() const;
  void expose();
  std::vector<PeerPages> pages(int device);
  const memory::Region* map(uint32_t rank, int device);
  void apply(uint32_t from, std::span<const Update> updates);
  void check_room(uint64_t count, uint64_t kept) const;
  void put_into_outbox(std::span<const int64_t> ids, std::span<const float> priorities);

  std::shared_ptr<store::Shard> shard_;
  std::shared_ptr<transport::Transport> control_;
  std::unique_ptr<transport::RemoteMemory> remote_;
  std::vector<uint32_t> nodes_;
  uint32_t rank_;
  std::vector<Known> known_;
  std::vector<Mapped> mapped_;
  std::optional<uint64_t> pack_below_;
  uint64_t loaders_ = 0;
  uint64_t most_kept_ = kLeastKept;
  /// Under the shard's lock:
  std::shared_ptr<DeviceUpdates> device_updates_;  ///< null: none
  std::vector<std::vector<Update>> outbox_;        ///< by owner
  uint64_t kept_ = 0;                              ///< in it
};

}  // namespace gear::group
