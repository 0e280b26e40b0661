// Shuffled epochs without replacement, as sequential.cpp. Where the epoch stands is kept by the
// host and given to each launch.
#include "select/cuda/device_draw.cuh"
#include "select/epoch.h"

namespace gear::select {
namespace {

template <bool kMany, class Rows>
__global__ void __launch_bounds__(store::kMostSearchThreads)
    walk_epoch(const __grid_constant__ store::DeviceTree tree, Rows rows, AnchorTables tables,
               base::Permutation order, uint64_t first, uint64_t count, float probability,
               DeviceDraw out) {
  store::search<uint32_t, kMany>(
      tree, count, [&](uint64_t item, uint64_t) { return order(first + item); },
      [&](uint64_t item, const store::TreeHit& hit) {
        const auto page = static_cast<uint32_t>(hit.leaf);
        const uint32_t row = store::nth_row(rows, page, static_cast<uint32_t>(hit.remainder));
        write_anchor(out, tables, item, page * tables.page_steps.divisor() + row, page);
        out.probabilities[item] = probability;
        out.weights[item] = 1.0F;
      });
}

class DeviceSequential final : public DeviceSampler {
 public:
  DeviceSequential(const SamplerOptions& options, store::Index& index, store::DeviceIndex& mirror)
      : options_(options), index_(index), mirror_(mirror), items_(options, mirror) {}

  uint64_t advance(uint64_t count) override {
    const Counted counted = select::counted(options_, index_);
    const uint64_t items =
        epoch_.next(counted.counts.total(), counted.version, count, options_.drop_last);
    index_.count_sampled(items);
    return items;
  }

  void launch(uint64_t items, const DeviceDraw& out) override {
    const base::OnDevice current(mirror_.device());
    const AnchorTables tables = anchor_tables(mirror_.view(), options_.unit);
    items_.with_rows([&]<class Rows>(Rows rows) {
      store::launch_search<uint32_t>(walk_epoch<false, Rows>, walk_epoch<true, Rows>, items_.counts,
                                     items, mirror_.stream(), items_.counts, rows, tables,
                                     epoch_.order(options_.seed), epoch_.first(), items,
                                     epoch_.probability(), out);
    });
  }

  bool capturable() const override { return false; }
  SamplerPosition position() const override { return epoch_.position(); }
  void restore(const SamplerPosition& position) override { epoch_.restore(position); }

 private:
  SamplerOptions options_;
  store::Index& index_;
  store::DeviceIndex& mirror_;
  CountedItems items_;
  Epoch epoch_;
};

}  // namespace

std::unique_ptr<DeviceSampler> make_device_sequential(const SamplerOptions& options,
                                                      store::Index& index,
                                                      store::DeviceIndex& mirror) {
  return std::make_unique<DeviceSequential>(options, index, mirror);
}

}  // namespace gear::select
