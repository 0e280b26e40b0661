#include "deliver/make_source.h"

#include "base/cuda/cuda.h"
#include "base/errors.h"
#include "deliver/cuda/device_source.h"
#include "deliver/cuda/device_stage.h"
#include "deliver/host_source.h"
#include "link/link_cache.h"

namespace gear::deliver {
namespace {

std::shared_ptr<DeviceBlock> one_block(const plan::Batch& batch, int device) {
  return make_device_blocks(batch.layout->bytes, 0, memory::Tier::kDevice, device)->acquire();
}

// Anchors of these ids gathered by a GPU: in its own memory.
std::shared_ptr<DeviceBlock> gather_ids(store::Shard& shard, const std::vector<int64_t>& ids,
                                        int device, plan::Batch& batch) {
  const base::OnDevice on(device);
  const plan::BatchLayout& layout = *batch.layout;
  std::shared_ptr<DeviceBlock> block = one_block(batch, device);
  select::Selection selection;
  gather::AnchorUpload upload(ids.size(), shard.layout().page_steps, 1, device);
  const base::PinnedArray<plan::PlanTotals> totals(layout.windows.size(), device);

  DeviceRoute route(shard, batch.layout, device, {});

  auto lock = shard.lock();
  shard.wait_for_gpu(lock, [&] { return route.mirror().can_sync(); });
  for (const int64_t id : ids) {
    selection.add(shard.index().resolve(id), 1.0F);
  }
  route.sync();
  DeviceRoute::Fill fill =
      route.begin({store::Unit::kStep, ids.size(), block, totals.get(), false, false, false});
  upload.send(selection, fill.draw(), route.stream());
  route.plan_and_gather(fill);
  // The ids as they were given: an episode's id stays an episode's.
  GEAR_CUDA_TRY(cudaMemcpyAsync(block->device_data() + layout.ids, ids.data(),
                                ids.size() * sizeof(int64_t), cudaMemcpyHostToDevice,
                                route.stream()));
  fill.end();
  lock.unlock();
  block->wait();
  for (size_t w = 0; w < layout.windows.size(); ++w) {
    batch.rows.push_back(totals[w].rows);
    for (const size_t o : layout.windows[w].outputs) {
      batch.bytes += totals[w].steps * shard.layout().step_bytes[layout.outputs[o].column];
    }
  }
  return block;
}

}  // namespace

bool uses_kernels(store::Shard& shard, const Request& request) {
  const LoaderOptions& options = request.options;
  const memory::Tier tier = shard.options().tier;
  if (tier != memory::Tier::kPinned || options.device < 0) {
    return tier == memory::Tier::kDevice;
  }
  if (options.path != plan::Path::kAuto) {
    return options.path == plan::Path::kZeroCopy;
  }
  return link::link_to(options.device)
             .choose(*request.layout, shard.layout(), shard.index().options().num_pages) ==
         plan::Path::kZeroCopy;
}

std::unique_ptr<Stage> make_stage(std::shared_ptr<const plan::BatchLayout> layout,
                                  const LoaderOptions& options) {
  return std::make_unique<DeviceStage>(std::move(layout), options.prefetch + 2, options.device);
}

std::unique_ptr<Source> make_device_source(std::shared_ptr<store::Shard> shard, Request request) {
  if (uses_kernels(*shard, request)) {
    return std::make_unique<DeviceSource>(std::move(shard), std::move(request));
  }
  std::unique_ptr<Stage> stage = make_stage(request.layout, request.options);
  return std::make_unique<HostSource>(std::move(shard), std::move(request), std::move(stage));
}

void collect_ids_by_device(store::Shard& shard, const std::vector<int64_t>& ids, int device,
                           plan::Batch& batch) {
  if (shard.options().tier != memory::Tier::kDevice) {
    collect_ids_by_host(shard, ids, batch);
    const base::OnDevice on(device);
    std::shared_ptr<DeviceBlock> block = one_block(batch, device);
    const base::Stream stream(device);
    block->fill({batch.block.get(), batch.layout->bytes}, stream);
    batch.path = plan::Path::kStaged;
    put_block(std::move(block), batch);
    return;
  }
  batch.path = plan::Path::kDevice;
  std::shared_ptr<DeviceBlock> block =
      gather_ids(shard, ids, device >= 0 ? device : shard.region().device(), batch);
  if (device >= 0) {
    put_block(std::move(block), batch);
    return;
  }
  batch.block = host_block(batch.layout->bytes);
  block->read({batch.block.get(), batch.layout->bytes});
}

int choose_gpu(int wanted) {
  if (wanted < 0) {
    return base::current_device();
  }
  const base::OnDevice on(wanted);
  return wanted;
}

}  // namespace gear::deliver
