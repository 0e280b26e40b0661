#include "deliver/make_source.h"

#include "base/cuda/cuda.h"
#include "base/errors.h"
#include "deliver/cuda/device_source.h"
#include "deliver/cuda/device_stage.h"
#include "deliver/host_source.h"
#include "link/link_cache.h"

namespace gear::deliver {
namespace {

// Anchors of these ids gathered by a GPU: in its own memory.
std::shared_ptr<DeviceBlock> gather_ids(store::Shard& shard, const std::vector<int64_t>& ids,
                                        std::shared_ptr<const plan::BatchLayout> layout, int device,
                                        plan::Batch& batch) {
  const base::OnDevice on(device);
  std::shared_ptr<DeviceBlock> block =
      make_device_blocks(layout->bytes, 0, memory::Tier::kDevice, device)->acquire();
  select::Selection selection;
  gather::AnchorUpload upload(ids.size(), shard.layout().page_steps, 1, device);
  const base::PinnedArray<plan::PlanTotals> totals(layout->windows.size(), device);

  DeviceRoute route(shard, layout, device, {});

  auto lock = shard.lock();
  shard.wait_for_gpu(lock, [&] { return route.has_room(); });
  for (const int64_t id : ids) {
    selection.add(shard.index().resolve(id), 1.0F);
  }
  route.sync();
  DeviceRoute::Fill fill =
      route.begin({store::Unit::kStep, ids.size(), block, totals.get(), false, false, false});
  upload.send(selection, fill.draw(), route.stream());
  route.plan_and_gather(fill);
  fill.end();
  // The ids as they were given: an episode's id stays an episode's.
  GEAR_CUDA_TRY(cudaMemcpyAsync(block->device_data() + layout->ids, ids.data(),
                                ids.size() * sizeof(int64_t), cudaMemcpyHostToDevice,
                                route.stream()));
  block->end_fill(route.stream());
  lock.unlock();
  block->wait();
  for (size_t w = 0; w < layout->windows.size(); ++w) {
    batch.rows.push_back(totals[w].rows);
    for (const size_t o : layout->windows[w].outputs) {
      batch.bytes += totals[w].steps * shard.layout().step_bytes[layout->outputs[o].column];
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

plan::Batch collect_ids_by_device(store::Shard& shard, const std::vector<int64_t>& ids,
                                  const std::vector<plan::Output>& outputs, bool packed,
                                  int device) {
  plan::Batch batch;
  if (shard.options().tier != memory::Tier::kDevice) {
    batch = collect_ids_by_host(shard, ids, outputs, packed);
    const base::OnDevice on(device);
    auto block =
        make_device_blocks(batch.layout->bytes, 0, memory::Tier::kDevice, device)->acquire();
    const base::Stream stream(device);
    block->fill({batch.block.get(), batch.layout->bytes}, stream);
    batch.path = plan::Path::kStaged;
    put_block(std::move(block), batch);
    return batch;
  }
  check_outputs(outputs, shard.schema(), ids.size(), shard.index().num_slots());
  batch.layout = std::make_shared<plan::BatchLayout>(shard.schema(), outputs, ids.size(), packed);
  batch.items = ids.size();
  batch.path = plan::Path::kDevice;
  std::shared_ptr<DeviceBlock> block =
      gather_ids(shard, ids, batch.layout, device >= 0 ? device : shard.region().device(), batch);
  if (device >= 0) {
    put_block(std::move(block), batch);
    return batch;
  }
  batch.block = host_block(batch.layout->bytes);
  block->read({batch.block.get(), batch.layout->bytes});
  return batch;
}

int choose_gpu(int wanted) {
  if (wanted < 0) {
    return base::current_device();
  }
  const base::OnDevice on(wanted);
  return wanted;
}

}  // namespace gear::deliver
