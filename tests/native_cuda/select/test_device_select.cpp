#include <doctest/doctest.h>

#include <vector>

#include "base/errors.h"
#include "base/numbers/philox.h"
#include "device_memory.h"
#include "held_stream.h"
#include "index_view.h"
#include "select/cuda/device_sampler.h"
#include "select/sampler.h"

using namespace gear;
using namespace gear::select;
using gear::store::Evict;
using gear::store::Index;
using gear::store::kNone;
using gear::store::Unit;
using gear::tests::from_device;
using gear::tests::HeldStream;

namespace {

constexpr uint64_t kMostItems = 9000;

uint64_t random(uint64_t& counter, uint64_t range) {
  return base::scale_to(base::philox(3, 4, counter++), range);
}

// Two indexes that live the same, one of them with a mirror on the device.
class Twins {
 public:
  explicit Twins(uint64_t num_pages = 50, uint64_t page_steps = 7)
      : cpu({num_pages, page_steps, 0, Evict::kFifo, 0}),
        gpu({num_pages, page_steps, 0, Evict::kFifo, 0}),
        mirror(gpu, 0, nullptr) {}

  void add_episode() {
    const uint64_t steps = 1 + random(counter_, 40);
    const bool ends = random(counter_, 4) != 0;
    const uint64_t kind = random(counter_, 3);
    const uint64_t at = counter_;
    for (Index* index : {&cpu, &gpu}) {
      counter_ = at;
      uint32_t e = kNone;
      for (uint64_t i = 0; i < steps; ++i) {
        if (!has_room(*index, e)) {
          index->next_page(e);
          index->attach_page(e);
        }
        const float priority = kind == 0 ? -1.0F : static_cast<float>(random(counter_, 50)) / 8;
        index->append(e, std::vector<float>{priority});
      }
      if (ends) {
        index->end_episode(e, store::EpisodeState::kTerminated, -1.0, 0);
      }
    }
  }

  void mark(const std::vector<int64_t>& ids, bool may_be_drawn) {
    CHECK(cpu.mark(*cpu_mask, ids, may_be_drawn) == gpu.mark(*gpu_mask, ids, may_be_drawn));
  }

  void update(const std::vector<int64_t>& ids) {
    std::vector<float> priorities;
    for (size_t i = 0; i < ids.size(); ++i) {
      priorities.push_back(static_cast<float>(random(counter_, 1000)) / 100);
    }
    cpu.update(ids, priorities);
    if (mirror.holds_priorities()) {
      mirror.update(ids.data(), priorities.data(), ids.size(), false, 0);
    } else {
      gpu.update(ids, priorities);
    }
  }

  Index cpu;
  Index gpu;
  store::DeviceIndex mirror;
  std::shared_ptr<store::Mask> cpu_mask = cpu.make_mask();
  std::shared_ptr<store::Mask> gpu_mask = gpu.make_mask();

 private:
  uint64_t counter_ = 0;
};

// Both samplers select; the same to the bit. Returns the ids.
class SamePair {
 public:
  SamePair(Twins& twins, const SamplerOptions& options, bool masked = false)
      : twins_(twins),
        options_(options),
        cpu_(std::make_unique<Sampler>(through(masked ? twins.cpu_mask : nullptr), twins.cpu)),
        gpu_(DeviceSampler::make(
            {through(masked ? twins.gpu_mask : nullptr), twins.gpu, twins.mirror, kMostItems})) {
    REQUIRE(draws_on_device(options, twins.gpu));
  }

  std::vector<int64_t> select(uint64_t count) {
    Selection wanted;
    cpu_->select(twins_.cpu, count, wanted);
    twins_.mirror.sync();
    const uint64_t items = gpu_->advance(count);
    REQUIRE(items == wanted.size());
    expect_position();
    if (items == 0) {
      return {};
    }
    if (items != captured_items_) {
      gpu_->launch(items, out());
    } else {
      GEAR_CUDA_TRY(cudaGraphLaunch(graph_, twins_.mirror.stream()));
    }
    const cudaStream_t stream = twins_.mirror.stream();
    const auto slots = from_device(slots_.get(), items, stream);
    CHECK(from_device(probabilities_.get(), items, stream) == wanted.probabilities);
    CHECK(from_device(weights_.get(), items, stream) == wanted.weights);
    CHECK(from_device(lengths_.get(), items, stream) == std::vector<int32_t>(items, 1));
    CHECK(from_device(mask_.get(), items, stream) == std::vector<uint8_t>(items, 1));
    const auto named = from_device(ids_.get(), items, stream);
    std::vector<int64_t> ids;
    for (uint64_t i = 0; i < items; ++i) {
      CAPTURE(i);
      REQUIRE(slots[i] == twins_.cpu.slot(wanted.anchors[i]));
      ids.push_back(twins_.cpu.id(wanted.anchors[i], options_.unit));
    }
    CHECK(named == ids);
    CHECK(twins_.gpu.take_draws().draws == twins_.cpu.take_draws().draws);
    return ids;
  }

  // From here on selections of `items` replay a graph.
  void capture(uint64_t items) {
    REQUIRE(gpu_->capturable());
    const cudaStream_t stream = twins_.mirror.stream();
    cudaGraph_t graph = nullptr;
    GEAR_CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    gpu_->launch(items, out());
    GEAR_CUDA_TRY(cudaStreamEndCapture(stream, &graph));
    GEAR_CUDA_TRY(cudaGraphInstantiate(&graph_, graph, 0));
    GEAR_CUDA_TRY(cudaGraphDestroy(graph));
    captured_items_ = items;
  }

  ~SamePair() {
    if (graph_ != nullptr) {
      cudaGraphExecDestroy(graph_);
    }
  }

  void set_beta(double beta) {
    cpu_->law().set_beta(beta);
    gpu_->law().set_beta(beta);
  }

  void restore(const SamplerPosition& position) {
    cpu_->law().restore(position);
    gpu_->law().restore(position);
  }
  SamplerPosition position() const { return gpu_->law().position(); }

 private:
  SamplerOptions through(std::shared_ptr<store::Mask> mask) const {
    SamplerOptions options = options_;
    options.mask = std::move(mask);
    return options;
  }

  DeviceDraw out() const {
    return {slots_.get(), probabilities_.get(), weights_.get(),
            ids_.get(),   lengths_.get(),       reinterpret_cast<bool*>(mask_.get())};
  }

  void expect_position() const {
    CHECK(gpu_->law().position().numbers == cpu_->law().position().numbers);
    CHECK(gpu_->law().position().beta == cpu_->law().position().beta);
  }

  Twins& twins_;
  SamplerOptions options_;
  std::unique_ptr<Sampler> cpu_;
  std::unique_ptr<DeviceSampler> gpu_;
  base::DeviceArray<uint32_t> slots_{kMostItems, 0};
  base::DeviceArray<float> probabilities_{kMostItems, 0};
  base::DeviceArray<float> weights_{kMostItems, 0};
  base::DeviceArray<int64_t> ids_{kMostItems, 0};
  base::DeviceArray<int32_t> lengths_{kMostItems, 0};
  base::DeviceArray<uint8_t> mask_{kMostItems, 0};
  cudaGraphExec_t graph_ = nullptr;
  uint64_t captured_items_ = 0;
};

SamplerOptions options_of(Policy policy, Unit unit = Unit::kStep) {
  SamplerOptions options;
  options.policy = policy;
  options.unit = unit;
  options.seed = 42;
  return options;
}

// Whose importance weights are divided by that of the least of all.
SamplerOptions by_all() {
  SamplerOptions options = options_of(Policy::kWeighted);
  options.normalize = Normalize::kBuffer;
  return options;
}

}  // namespace

TEST_CASE("what is drawn on the device is what is drawn on the host, to the bit") {
  const SamplerOptions kinds[] = {
      options_of(Policy::kUniform), options_of(Policy::kUniform, Unit::kEpisode),
      options_of(Policy::kWeighted), by_all(), options_of(Policy::kTopK)};
  for (const SamplerOptions& options : kinds) {
    CAPTURE(static_cast<int>(options.policy));
    CAPTURE(static_cast<int>(options.unit));
    CAPTURE(static_cast<int>(options.normalize));
    Twins twins;
    for (int i = 0; i < 4; ++i) {
      twins.add_episode();
    }
    SamePair pair(twins, options);
    for (int round = 0; round < 12; ++round) {
      CAPTURE(round);
      std::vector<int64_t> ids = pair.select(round % 3 == 0 ? 1 : 257);
      ids.resize(std::min<size_t>(ids.size(), 60));
      if (options.policy == Policy::kWeighted && round == 5) {
        pair.set_beta(0.75);
      }
      if (round % 2 == 0) {
        twins.update(ids);
      }
      twins.add_episode();
      if (round % 4 == 3) {
        twins.update(ids);  // some of them evicted
      }
    }
    twins.mirror.settle();
    CHECK(twins.gpu.slots().priorities == twins.cpu.slots().priorities);
  }
}

TEST_CASE("draws through a mask are those of the host, of pages of any size") {
  for (const uint64_t page_steps : {7, 64, 100}) {
    for (const Policy policy :
         {Policy::kUniform, Policy::kWeighted, Policy::kTopK, Policy::kSequential}) {
      CAPTURE(page_steps);
      CAPTURE(static_cast<int>(policy));
      Twins twins(40, page_steps);
      SamplerOptions options = options_of(policy);
      options.lookahead = 2;
      for (int i = 0; i < 6; ++i) {
        twins.add_episode();
      }
      SamePair pair(twins, options, true);
      SamePair all(twins, options);  // beside it: of the same mirror
      for (int round = 0; round < 10; ++round) {
        CAPTURE(round);
        std::vector<int64_t> ids = all.select(40);
        ids.resize(std::min<size_t>(ids.size(), 20));
        twins.mark(ids, round % 3 == 2);
        ids = pair.select(round % 2 == 0 ? 31 : 300);
        twins.update(ids);
        if (policy != Policy::kSequential || round == 5) {
          twins.add_episode();
        }
        if (policy == Policy::kSequential) {
          pair.restore({{0, static_cast<uint64_t>(round), 0}, 0});
          all.restore({{0, static_cast<uint64_t>(round), 0}, 0});
        }
      }
    }
  }
}

TEST_CASE("a captured selection continues the sequence, with the beta of the time") {
  for (const Policy policy : {Policy::kUniform, Policy::kWeighted}) {
    CAPTURE(static_cast<int>(policy));
    Twins twins;
    for (int i = 0; i < 6; ++i) {
      twins.add_episode();
    }
    SamePair pair(twins, options_of(policy));
    pair.select(32);
    pair.capture(32);
    for (int round = 0; round < 6; ++round) {
      twins.update(pair.select(32));
      twins.add_episode();
      if (policy == Policy::kWeighted) {
        pair.set_beta(0.1 * round);
      }
    }
    pair.restore({{5}, 0.3});
    pair.select(32);
    CHECK(pair.position().numbers.at(0) == 37);
  }
}

TEST_CASE("large selections, that are searched in another way, are the same") {
  for (const Policy policy : {Policy::kUniform, Policy::kWeighted, Policy::kSequential}) {
    CAPTURE(static_cast<int>(policy));
    Twins twins(3000, 3);
    for (int i = 0; i < 500; ++i) {
      twins.add_episode();
    }
    SamePair pair(twins, options_of(policy));
    const std::vector<int64_t> ids = pair.select(8500);
    if (policy != Policy::kSequential) {
      twins.update(ids);
    }
    pair.select(8193);
    pair.select(8192);
  }
}

TEST_CASE("epochs on the device hold the steps and end where those of the host do") {
  for (const Unit unit : {Unit::kStep, Unit::kEpisode}) {
    for (const bool drop_last : {false, true}) {
      Twins twins;
      for (int i = 0; i < 6; ++i) {
        twins.add_episode();
      }
      SamplerOptions options = options_of(Policy::kSequential, unit);
      options.drop_last = drop_last;
      SamePair pair(twins, options);
      for (int round = 0; round < 30; ++round) {
        pair.select(13);
      }
      pair.restore({{0, 1, 0}, 0});
      twins.add_episode();
      for (int round = 0; round < 10; ++round) {
        pair.select(29);
      }
    }
  }
}

TEST_CASE("topk finds its place among equal priorities, zeros and more items than there are") {
  Twins twins(300, 16);
  for (Index* index : {&twins.cpu, &twins.gpu}) {
    for (int i = 0; i < 90; ++i) {
      uint32_t e = kNone;
      for (uint64_t step = 0; step < 48; ++step) {
        if (!has_room(*index, e)) {
          index->next_page(e);
          index->attach_page(e);
        }
        const float priority = i < 60 ? 2.0F : i < 80 ? 0.0F : static_cast<float>(i % 3);
        index->append(e, std::vector<float>{priority});
      }
      index->end_episode(e, store::EpisodeState::kTruncated, -1.0, 0);
    }
  }
  SamePair pair(twins, options_of(Policy::kTopK));
  for (const uint64_t count : {1, 32, 300}) {
    pair.select(count);
  }
  Twins few;
  few.add_episode();
  SamePair all(few, options_of(Policy::kTopK));
  all.select(300);
}

TEST_CASE("that all weights were 0 is said once of what was launched before they were not") {
  constexpr uint64_t kItems = 8;
  Index index({4, 4, 0, Evict::kFifo, 0});
  uint32_t e = kNone;
  index.next_page(e);
  index.attach_page(e);
  index.append(e, std::vector<float>{1.0F, 2.0F});
  store::DeviceIndex mirror(index, 0, nullptr);
  const auto sampler = DeviceSampler::make({options_of(Policy::kWeighted), index, mirror, kItems});
  base::DeviceArray<uint32_t> slots(kItems, 0);
  base::DeviceArray<float> probabilities(kItems, 0);
  base::DeviceArray<float> weights(kItems, 0);
  const DeviceDraw out{slots.get(), probabilities.get(), weights.get()};
  const std::vector<int64_t> ids = {index.id({0, 0}, Unit::kStep), index.id({0, 1}, Unit::kStep)};
  const auto update = [&](float priority) {
    const std::vector<float> priorities(ids.size(), priority);
    mirror.update(ids.data(), priorities.data(), ids.size(), false, 0);
  };
  update(0);
  sampler->launch(sampler->advance(kItems), out);
  mirror.stream().synchronize();
  HeldStream held(mirror.stream());
  sampler->launch(kItems, out);  // ahead, and still under way when the first is known
  CHECK_THROWS_AS(sampler->advance(kItems), base::InvalidArgument);
  held.let_go();
  update(1);
  mirror.stream().synchronize();
  sampler->launch(sampler->advance(kItems), out);
  CHECK(from_device(probabilities.get(), kItems, mirror.stream()) ==
        std::vector<float>(kItems, 0.5F));
}

TEST_CASE("what has no form on the device is left to the host") {
  Twins twins;
  twins.add_episode();
  SamplerOptions in_order = options_of(Policy::kSequential);
  in_order.shuffle = false;
  for (const SamplerOptions& options :
       {options_of(Policy::kFifo), options_of(Policy::kLifo), in_order,
        options_of(Policy::kWeighted, Unit::kEpisode), options_of(Policy::kTopK, Unit::kEpisode)}) {
    CHECK_FALSE(draws_on_device(options, twins.gpu));
  }
  SamplerOptions wrong = options_of(Policy::kWeighted);
  wrong.alpha = -1;
  CHECK_THROWS_AS(DeviceSampler::make({wrong, twins.gpu, twins.mirror, 8}),
                  gear::base::InvalidArgument);
}
