#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/region.h"
#include "store/checkpoint/snapshot_index.h"
#include "store/shard.h"

namespace gear::store {

/// Writes the shard into a checkpoint directory; format and guarantees: docs/format.md. Where GPUs
/// are ahead with priorities, waits for them and for the end of a draw over ranks that is out;
/// throws InvalidArgument in the thread that has it out. Holds the shard's lock from there on:
/// writers and loaders wait. On any failure the checkpoint that was there stays, and no partial
/// file is left. `kept`: what this rank has yet to tell the others. Throws as
/// Shard::check_process().
void save_shard(Shard& shard, const std::string& directory, std::span<const KeptUpdate> kept = {});

struct LoadedShard {
  std::shared_ptr<Shard> shard;
  std::vector<KeptUpdate> kept_updates;  ///< for its Peers
};

/// What was saved. Throws CorruptData naming the file and what is wrong with it.
LoadedShard load_shard(const std::string& directory, memory::TierChoice tier,
                       const std::string& name, uint32_t owner);

/// The share of rank `rank` of `size` of the shards that another number of ranks saved, each into
/// one of `directories`, in their order; see share_of(). Ids are new ones. Throws as load_shard().
/// Cost: beside the share, memory for the indexes of all shards while it loads.
std::shared_ptr<Shard> load_share(const std::vector<std::string>& directories,
                                  memory::TierChoice tier, const std::string& name, uint32_t rank,
                                  uint32_t size);

struct CheckpointInfo {
  uint32_t format = 0;
  std::string schema_text;
  std::string schema_hash;
  uint64_t step_bytes = 0;
  uint64_t page_steps = 0;
  uint64_t pages = 0;
  uint64_t pages_used = 0;
  uint64_t steps = 0;
  uint64_t episodes = 0;
  uint64_t bytes = 0;               ///< on disk
  std::vector<std::string> errors;  ///< pages whose checksum is wrong, in words
};

/// Reads the index and checks every page without building a shard.
CheckpointInfo inspect_checkpoint(const std::string& directory);

}  // namespace gear::store
