#include "deliver/make_source.h"

#include <cstring>

#include "base/threads/thread_pool.h"
#include "deliver/host_source.h"
#include "gather/gather_cpu.h"

namespace gear::deliver {
namespace {

// Whether a GPU has a part in bringing what the shard holds to `device`.
bool needs_gpu(const store::Shard& shard, int device) {
  return device >= 0 || shard.options().tier == memory::Tier::kDevice;
}

}  // namespace

std::unique_ptr<Pipeline> make_pipeline(std::shared_ptr<store::Shard> shard, Request request) {
  const uint64_t prefetch = request.options.prefetch;
  std::unique_ptr<Source> source =
      needs_gpu(*shard, request.options.device)
          ? make_device_source(std::move(shard), std::move(request))
          : std::make_unique<HostSource>(std::move(shard), std::move(request));
  return std::make_unique<Pipeline>(std::move(source), prefetch);
}

plan::Batch collect_ids(store::Shard& shard, const std::vector<int64_t>& ids,
                        const std::vector<plan::Output>& outputs, bool packed, int device) {
  check_outputs(outputs, shard.schema(), ids.size(), shard.index().num_slots());
  plan::Batch batch;
  batch.layout = std::make_shared<plan::BatchLayout>(shard.schema(), outputs, ids.size(), packed);
  batch.items = ids.size();
  if (needs_gpu(shard, device)) {
    collect_ids_by_device(shard, ids, device, batch);
  } else {
    collect_ids_by_host(shard, ids, batch);
  }
  return batch;
}

void collect_ids_by_host(store::Shard& shard, const std::vector<int64_t>& ids, plan::Batch& batch) {
  base::ThreadPool& pool = base::ThreadPool::shared();
  select::Selection selection;
  plan::Plan plan;
  batch.block = host_block(batch.layout->bytes);  // may log, which nobody may under the lock
  auto lock = shard.lock();
  for (const int64_t id : ids) {
    selection.add(shard.index().resolve(id), 1.0F);
  }
  make_plan(shard.index(), shard.layout(), selection, batch, plan);
  // The ids as they were given: an episode's id stays an episode's.
  std::memcpy(batch.at<int64_t>(batch.layout->ids), ids.data(), ids.size() * sizeof(int64_t));
  const store::Read read = shard.begin_read();
  lock.unlock();
  gather::gather_cpu(shard.data(), shard.layout(), plan, batch, pool);
}

}  // namespace gear::deliver
