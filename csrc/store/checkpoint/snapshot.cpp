#include "store/checkpoint/snapshot.h"

#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/threads/origin.h"
#include "store/checkpoint/manifest.h"
#include "store/checkpoint/shard_file.h"
#include "store/checkpoint/share.h"

namespace gear::store {
namespace {

// With the pages' bytes still to come.
std::shared_ptr<Shard> make_shard(SavedIndex&& saved, memory::TierChoice tier,
                                  const std::string& name, uint32_t owner) {
  ShardOptions options;
  options.page_steps = saved.options.page_steps;
  options.capacity = saved.options.num_slots();
  options.tier = tier.tier;
  options.device = tier.device;
  options.name = name;
  options.evict = saved.options.evict;
  options.max_times_sampled = saved.options.max_times_sampled;
  options.owner = owner;
  options.rate_limiter = saved.rate_limiter;
  return base::make_shared_here<Shard>(Schema::parse(saved.schema_text), options,
                                       std::move(saved.state), saved.slots);
}

}  // namespace

void save_shard(Shard& shard, const std::string& directory, std::span<const KeptUpdate> kept) {
  shard.check_process("save");
  auto lock = shard.lock();
  while (!shard.settle(lock) && !shard.mirrors().settled()) {
    lock.unlock();
    lock = shard.lock_between_draws();
  }
  shard.pages().flush();
  shard.pages().wait();
  const PreparedDirectory prepared = prepare_directory(directory);
  Manifest manifest;
  manifest.save = prepared.previous ? prepared.previous->save + 1 : 1;
  manifest.shard_file = base::cat("shard-0-of-1.", std::to_string(manifest.save), ".gear");
  const std::string path = manifest.shard_path(directory);
  base::remove_file(path);  // left by a save that was killed
  try {
    base::File file = base::File::create(path);
    ShardFile::write(shard, kept, file, manifest);
    file.sync();
    file.close();
    base::sync_directory(directory);
    commit_manifest(directory, manifest);
  } catch (...) {
    discard_save(directory, manifest, prepared.made);
    throw;
  }
  // Under the lock, which orders the saves of this buffer into one directory; its sink may want the
  // lock, and logs behind it.
  const std::optional<std::string> untidy = tidy_directory(directory, manifest);
  lock.unlock();
  if (untidy) {
    base::log(base::Level::kWarning, *untidy);
  }
}

LoadedShard load_shard(const std::string& directory, memory::TierChoice tier,
                       const std::string& name, uint32_t owner) {
  const ShardFile file = ShardFile::open(directory);
  SavedIndex saved = file.read_index();
  std::vector<KeptUpdate> kept_updates = std::move(saved.kept_updates);
  const auto shard = make_shard(std::move(saved), tier, name, owner);
  fill_pages(*shard, [&](uint64_t i) { return SavedPage{file, shard->index().state(), i}; });
  return {shard, std::move(kept_updates)};
}

std::shared_ptr<Shard> load_share(const std::vector<std::string>& directories,
                                  memory::TierChoice tier, const std::string& name, uint32_t rank,
                                  uint32_t size) {
  std::vector<ShardFile> files;
  std::vector<SavedIndex> parts;
  for (const std::string& directory : directories) {
    files.push_back(ShardFile::open(directory));
    parts.push_back(files.back().read_index());
  }
  apply_kept_updates(parts);
  Share share = share_of(parts, rank, size);
  const auto shard = make_shard(std::move(share.saved), tier, name, rank);
  fill_pages(*shard, [&](uint64_t i) {
    const auto [part, nth] = share.origins[i];
    return SavedPage{files[part], parts[part].state, nth};
  });
  return shard;
}

CheckpointInfo inspect_checkpoint(const std::string& directory) {
  const ShardFile file = ShardFile::open(directory);
  const SavedIndex saved = file.read_index();
  const Schema schema = Schema::parse(saved.schema_text);
  CheckpointInfo info;
  info.format = file.header().format;
  info.schema_text = saved.schema_text;
  info.schema_hash = schema.hash();
  info.step_bytes = schema.step_bytes();
  info.page_steps = saved.options.page_steps;
  info.pages = saved.options.num_pages;
  info.pages_used = file.header().pages_used;
  info.steps = saved.state.num_steps;
  info.episodes = saved.state.num_episodes;
  info.bytes = file.bytes();
  info.errors = file.damages(saved.state);
  return info;
}

}  // namespace gear::store
