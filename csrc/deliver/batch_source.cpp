#include "deliver/batch_source.h"

#include <cstring>

#include "base/errors.h"
#include "deliver/collector.h"
#include "deliver/device_source.h"

namespace gear::deliver {

namespace {

// Whether a GPU has a part in bringing what the shard holds to `device`.
bool needs_gpu(const store::Shard& shard, int device) {
  return device >= 0 || shard.options().tier == memory::Tier::kDevice;
}

bool fits(const BatchSource::PendingBatch& pending, const plan::BatchLayout& layout) {
  if (pending.epoch_end) {
    return true;
  }
  if (pending.data.size() != layout.bytes || pending.items > layout.batch_size ||
      pending.rows.size() != layout.windows.size()) {
    return false;
  }
  for (size_t w = 0; w < pending.rows.size(); ++w) {
    if (pending.rows[w] > pending.items * layout.windows[w].window.length()) {
      return false;
    }
  }
  return true;
}

[[noreturn]] void refuse_to_draw(const store::Index& index, store::Unit unit) {
  throw base::InvalidArgument(base::cat(
      "[select] nothing to sample: ", index.state().num_steps, " steps in ",
      index.state().num_episodes, " episodes are stored, none of them offered as an anchor; ",
      unit == store::Unit::kStep
          ? base::cat("a step of an open episode is offered once ", index.state().lookahead,
                      " steps follow it: append more or end the episode")
          : std::string("an episode is offered once it has ended: end one")));
}

}  // namespace

void check_path(const CollectorOptions& options, memory::Tier tier) {
  const bool fits = options.path == plan::Path::kZeroCopy ? tier == memory::Tier::kPinned
                                                          : tier != memory::Tier::kDevice;
  if (options.path == plan::Path::kAuto || (options.device >= 0 && fits)) {
    return;
  }
  throw base::InvalidArgument(base::cat(
      "[collect] path '", plan::path_name(options.path), "' from tier '", memory::tier_name(tier),
      "' to a ", options.device < 0 ? "CPU" : "GPU",
      ": 'zero_copy' leads from tier 'pinned' to a GPU, 'staged' from any tier of host memory "
      "to a GPU; use path='auto'"));
}

std::unique_ptr<BatchSource> make_batch_source(std::shared_ptr<store::Shard> shard,
                                               const CollectorOptions& options) {
  const memory::Tier tier = shard->options().tier;
  check_path(options, tier);
  if (needs_gpu(*shard, options.device)) {
    return make_device_source(std::move(shard), options);
  }
  return std::make_unique<Collector>(std::move(shard), options);
}

plan::Batch collect_ids(store::Shard& shard, const std::vector<int64_t>& ids,
                        const std::vector<plan::Output>& outputs, bool packed, int device) {
  if (needs_gpu(shard, device)) {
    return collect_ids_by_device(shard, ids, outputs, packed, device);
  }
  return collect_ids_by_host(shard, ids, outputs, packed);
}

std::vector<std::byte> copy_of(const plan::Batch& batch) {
  std::vector<std::byte> bytes(batch.layout->bytes);
  if (batch.delivery) {
    batch.delivery->read(bytes);
  } else {
    std::memcpy(bytes.data(), batch.block.get(), bytes.size());
  }
  return bytes;
}

void check_pending(const BatchSource::State& state, const plan::BatchLayout& layout) {
  for (const BatchSource::PendingBatch& pending : state.pending) {
    if (fits(pending, layout)) {
      continue;
    }
    throw base::InvalidArgument(base::cat(
        "[collect] the loader's state holds a batch of ", pending.data.size(), " bytes, ",
        pending.items, " items and ", pending.rows.size(), " windows, this loader's have ",
        layout.bytes, ", at most ", layout.batch_size, " and ", layout.windows.size(),
        ": make the loader with the options it was saved with"));
  }
}

bool wait_to_draw(store::Shard& shard, std::unique_lock<std::mutex>& lock,
                  const CollectorOptions& options, std::optional<double> timeout_s, bool pending) {
  const store::Unit unit = options.sampler.unit;
  const store::Index& index = shard.index();
  const store::SumTree& offered = unit == store::Unit::kStep ? index.anchors() : index.heads();
  if (!shard.rate_limiter().active() && offered.total() == 0) {
    if (timeout_s == 0.0 && pending) {
      return false;
    }
    refuse_to_draw(index, unit);
  }
  return shard.wait_sample(lock, options.batch_size, unit, timeout_s);
}

}  // namespace gear::deliver
