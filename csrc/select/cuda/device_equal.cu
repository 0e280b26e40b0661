// Items one wide, as select::Space: a search of the tree of page counts per draw, whose sums are
// numbers of slots: 32 bits. Where its targets fall is a matter of the chance.
#include "base/cuda/last_block.cuh"
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
    if (base::is_last_block(&state->blocks_done) && threadIdx.x == 0) {
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
    draw_equal(const __grid_constant__ store::DeviceTree tree, Rows rows, store::StepNames names,
               Targets targets, uint64_t count, DeviceDraw out) {
  const uint64_t begin = targets.begin();
  store::search<uint32_t, kMany>(
      tree, count, [&](uint64_t item, auto total) { return targets.at(begin, item, total); },
      [&](uint64_t item, const store::TreeHit& hit) {
        const auto page = static_cast<uint32_t>(hit.leaf);
        const uint32_t row = store::nth_row(rows, page, static_cast<uint32_t>(hit.remainder));
        write_anchor(out, names, item, page * names.page_steps.divisor() + row, page);
        out.probabilities[item] = static_cast<float>(1.0 / static_cast<double>(hit.total));
        out.weights[item] = 1.0F;
      });
  targets.end(begin, count);
}

class DeviceEqual final : public DeviceSampler {
 public:
  explicit DeviceEqual(const DeviceSamplerParts& parts)
      : DeviceSampler(parts), items_(parts.options, mirror()), position_(mirror(), law()) {}

  void launch(uint64_t items, const DeviceDraw& out) override {
    if (const Epoch* epoch = law().epoch()) {
      launch(EpochTargets{epoch->order(), epoch->first()}, items, out);
    } else {
      launch(IndependentTargets{law().options().seed, position_.get()}, items, out);
    }
  }

  bool capturable() const override { return law().epoch() == nullptr; }

 private:
  void restored() override { position_.restore(law()); }

  template <class Targets>
  void launch(const Targets& targets, uint64_t items, const DeviceDraw& out) {
    const base::OnDevice current(mirror().device());
    const store::StepNames names = store::step_names(mirror().view(), law().options().unit);
    items_.with_rows([&]<class Rows>(Rows rows) {
      store::launch_search<uint32_t>(
          draw_equal<false, Rows, Targets>, draw_equal<true, Rows, Targets>, items_.counts, items,
          mirror().stream(), items_.counts, rows, names, targets, items, out);
    });
  }

  CountedItems items_;
  DevicePosition position_;
};

}  // namespace

std::unique_ptr<DeviceSampler> make_device_equal(const DeviceSamplerParts& parts) {
  return std::make_unique<DeviceEqual>(parts);
}

}  // namespace gear::select
