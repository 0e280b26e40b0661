// Uniform with replacement, as uniform.cpp: a search of the tree of page counts per draw, whose
// sums are numbers of slots: 32 bits.
#include "select/cuda/device_draw.cuh"

namespace gear::select {
namespace {

template <bool kMany, class Rows>
__global__ void __launch_bounds__(store::kMostSearchThreads)
    draw_uniform(const __grid_constant__ store::DeviceTree tree, Rows rows, AnchorTables tables,
                 uint64_t seed, DrawState* state, uint64_t count, DeviceDraw out) {
  const unsigned long long made = state->made;
  store::search<uint32_t, kMany>(
      tree, count, [&](uint64_t item, auto total) { return draw_target(seed, made + item, total); },
      [&](uint64_t item, const store::TreeHit& hit) {
        const auto page = static_cast<uint32_t>(hit.leaf);
        const uint32_t row = store::nth_row(rows, page, static_cast<uint32_t>(hit.remainder));
        write_anchor(out, tables, item, page * tables.page_steps.divisor() + row, page);
        out.probabilities[item] = static_cast<float>(1.0 / static_cast<double>(hit.total));
        out.weights[item] = 1.0F;
      });
  if (last_to_finish(state)) {
    state->made = made + count;
  }
}

class DeviceUniform final : public DeviceSampler {
 public:
  DeviceUniform(const SamplerOptions& options, store::Index& index, store::DeviceIndex& mirror)
      : options_(options),
        index_(index),
        mirror_(mirror),
        items_(options, mirror),
        position_(mirror, 0) {}

  uint64_t advance(uint64_t count) override {
    position_.advance(count);
    index_.count_sampled(count);
    return count;
  }

  void launch(uint64_t items, const DeviceDraw& out) override {
    const base::OnDevice current(mirror_.device());
    const AnchorTables tables = anchor_tables(mirror_.view(), options_.unit);
    items_.with_rows([&]<class Rows>(Rows rows) {
      store::launch_search<uint32_t>(draw_uniform<false, Rows>, draw_uniform<true, Rows>,
                                     items_.counts, items, mirror_.stream(), items_.counts, rows,
                                     tables, options_.seed, position_.get(), items, out);
    });
  }

  bool capturable() const override { return true; }
  SamplerPosition position() const override { return {position_.made(), 0, 0, 0}; }
  void restore(const SamplerPosition& position) override { position_.restore(position.draws, 0); }

 private:
  SamplerOptions options_;
  store::Index& index_;
  store::DeviceIndex& mirror_;
  CountedItems items_;
  DevicePosition position_;
};

}  // namespace

std::unique_ptr<DeviceSampler> make_device_uniform(const SamplerOptions& options,
                                                   store::Index& index,
                                                   store::DeviceIndex& mirror) {
  return std::make_unique<DeviceUniform>(options, index, mirror);
}

}  // namespace gear::select
