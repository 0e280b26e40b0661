// Items one wide, as select::Space: a search of the tree of page counts per draw, whose sums are
// numbers of slots: 32 bits. Where its targets fall is a matter of the chance.
#include "select/cuda/device_draw.cuh"

namespace gear::select {
namespace {

// With replacement; how many were made is known to the device.
struct IndependentTargets {
  uint64_t seed;
  DrawState* state;

  __device__ uint64_t begin() const { return state->made; }
  template <class Total>
  __device__ auto at(uint64_t made, uint64_t item, Total total) const {
    return draw_target(seed, made + item, total);
  }
  __device__ void end(uint64_t made, uint64_t count) const {
    if (last_to_finish(state)) {
      state->made = made + count;
    }
  }
};

// Of an epoch, which the host keeps and gives to each launch.
struct EpochTargets {
  base::Permutation order;
  uint64_t first;

  __device__ uint64_t begin() const { return first; }
  template <class Total>
  __device__ uint64_t at(uint64_t begin, uint64_t item, Total) const {
    return order(begin + item);
  }
  __device__ void end(uint64_t, uint64_t) const {}
};

template <bool kMany, class Rows, class Targets>
__global__ void __launch_bounds__(store::kMostSearchThreads)
    draw_equal(const __grid_constant__ store::DeviceTree tree, Rows rows, AnchorTables tables,
               Targets targets, uint64_t count, DeviceDraw out) {
  const uint64_t begin = targets.begin();
  store::search<uint32_t, kMany>(
      tree, count, [&](uint64_t item, auto total) { return targets.at(begin, item, total); },
      [&](uint64_t item, const store::TreeHit& hit) {
        const auto page = static_cast<uint32_t>(hit.leaf);
        const uint32_t row = store::nth_row(rows, page, static_cast<uint32_t>(hit.remainder));
        write_anchor(out, tables, item, page * tables.page_steps.divisor() + row, page);
        out.probabilities[item] = static_cast<float>(1.0 / static_cast<double>(hit.total));
        out.weights[item] = 1.0F;
      });
  targets.end(begin, count);
}

class DeviceEqual final : public DeviceSelection {
 public:
  DeviceEqual(const Law& law, store::DeviceIndex& mirror)
      : mirror_(mirror),
        items_(law.options(), mirror),
        position_(mirror, law),
        capturable_(law.epoch() == nullptr) {}

  void launch(const Law& law, uint64_t items, const DeviceDraw& out) override {
    if (const Epoch* epoch = law.epoch()) {
      launch(law, EpochTargets{epoch->order(), epoch->first()}, items, out);
    } else {
      launch(law, IndependentTargets{law.options().seed, position_.get()}, items, out);
    }
  }

  void restore(const Law& law) override { position_.restore(law); }
  bool capturable() const override { return capturable_; }

 private:
  template <class Targets>
  void launch(const Law& law, const Targets& targets, uint64_t items, const DeviceDraw& out) {
    const base::OnDevice current(mirror_.device());
    const AnchorTables tables = anchor_tables(mirror_.view(), law.options().unit);
    items_.with_rows([&]<class Rows>(Rows rows) {
      store::launch_search<uint32_t>(
          draw_equal<false, Rows, Targets>, draw_equal<true, Rows, Targets>, items_.counts, items,
          mirror_.stream(), items_.counts, rows, tables, targets, items, out);
    });
  }

  store::DeviceIndex& mirror_;
  CountedItems items_;
  DevicePosition position_;
  bool capturable_;
};

}  // namespace

std::unique_ptr<DeviceSelection> make_device_equal(const Law& law, store::DeviceIndex& mirror) {
  return std::make_unique<DeviceEqual>(law, mirror);
}

}  // namespace gear::select
