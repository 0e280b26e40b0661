#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "../native/described_rows.h"
#include "../native/mirrored_history.h"
#include "device_memory.h"
#include "held_stream.h"
#include "index_view.h"
#include "memory/region.h"
#include "store/mirror/cuda/device_index.h"

using namespace gear;
using namespace gear::store;
using gear::tests::from_device;
using gear::tests::HeldStream;
using gear::tests::kMirroredAlpha;
using gear::tests::MirroredHistory;
using gear::tests::MirroredSteps;
using gear::tests::MirrorImage;
using gear::tests::to_device;

namespace {

// Leaves of a tree; whether every node is the sum of its children.
std::vector<uint64_t> leaves_of(const DeviceTree& tree, cudaStream_t stream, uint64_t& total,
                                bool& agrees) {
  const auto leaves = from_device(tree.levels[0], tree.counts[0], stream);
  auto below = leaves;
  for (int level = 1; level < tree.num_levels; ++level) {
    std::vector<uint64_t> sums(tree.counts[level], 0);
    for (uint64_t i = 0; i < below.size(); ++i) {
      sums[i / DeviceTree::kFanout] += below[i];
    }
    below = from_device(tree.levels[level], tree.counts[level], stream);
    agrees = agrees && below == sums;
  }
  total = below.at(0);
  return leaves;
}

using Sets = std::vector<std::shared_ptr<const DeviceDrawable>>;

MirrorImage image_of(DeviceIndex& mirror, uint64_t num_episodes, const Sets& sets) {
  const DeviceView& view = mirror.view();
  const cudaStream_t stream = mirror.stream();
  MirrorImage image;
  image.pages = from_device(view.pages, view.num_pages, stream);
  image.episodes = from_device(view.episodes, num_episodes, stream);
  bool& agree = image.levels_agree;
  image.heads = leaves_of(view.heads, stream, image.heads_total, agree);
  if (mirror.holds_priorities()) {
    image.priorities = from_device(view.priorities, view.num_pages * view.page_steps, stream);
  }
  for (const auto& steps : sets) {
    MirrorImage::Steps& seen = image.steps.emplace_back();
    const StepWords words = steps->words();
    seen.words = from_device(words.words, view.num_pages * words.per_page, stream);
    seen.counts = leaves_of(steps->counts(), stream, seen.counts_total, agree);
    if (mirror.holds_priorities()) {
      const auto tree = mirror.weights(steps, kMirroredAlpha);
      seen.weights = leaves_of(tree->tree, stream, seen.weights_total, agree);
    }
  }
  return image;
}

void live(const MirroredHistory::Options& options, uint64_t operations) {
  std::vector<std::shared_ptr<const DeviceWeights>> kept;
  Sets sets;
  const uint64_t num_episodes = options.index.num_pages;
  MirroredHistory history(
      options,
      [&](Index& index, const MirroredSteps& steps) {
        const auto mirror = std::make_shared<DeviceIndex>(index, 0, nullptr);
        for (uint64_t set = 0; set < MirroredSteps::kSets; ++set) {
          if (set == 1) {
            mirror->sync();  // the others are made of a mirror that shows something
          }
          sets.push_back(mirror->steps(MirroredSteps::kLookaheads[set], steps.mask_of(set)));
        }
        return mirror;
      },
      [&](Mirror& mirror) {
        for (const auto& steps : sets) {
          kept.push_back(dynamic_cast<DeviceIndex&>(mirror).weights(steps, kMirroredAlpha));
        }
        kept.push_back(dynamic_cast<DeviceIndex&>(mirror).weights(sets[0], 1.0));
      },
      [&](Mirror& mirror) {
        return image_of(dynamic_cast<DeviceIndex&>(mirror), num_episodes, sets);
      });
  history.run(operations);
}

uint32_t add_episode(Index& index, uint64_t steps) {
  uint32_t e = kNone;
  for (uint64_t i = 0; i < steps; ++i) {
    if (!has_room(index, e)) {
      index.next_page(e);
      index.attach_page(e);
    }
    index.append(e, std::vector<float>{static_cast<float>(i + 1)});
  }
  index.end_episode(e, EpisodeState::kTerminated, -1.0, 0);
  return e;
}

}  // namespace

TEST_CASE("a mirror on the device shows what the index would be, and settling makes it so") {
  for (const Evict evict : {Evict::kFifo, Evict::kLowestPriority}) {
    CAPTURE(static_cast<int>(evict));
    live({{37, 5, 0, evict, 0}, 3, 9, false}, 1200);
  }
  live({{61, 1, 0, Evict::kFifo, 0}, 5, 3, false}, 800);
  live({{70, 33, 0, Evict::kLifo, 0}, 7, 60, true}, 400);
  live({{7, 2500, 0, Evict::kFifo, 0}, 6, 4000, false}, 160);
}

TEST_CASE("a large first sync goes through the ring in many parts") {
  Index index({3000, 100, 0, Evict::kFifo, 0});
  for (int i = 0; i < 1500; ++i) {
    add_episode(index, 190);
  }
  DeviceIndex mirror(index, 0, nullptr);
  const Sets sets = {mirror.steps(0)};
  const auto tree = mirror.weights(sets[0], 1.0);
  const auto wanted = index.steps(0)->weights(1.0);
  const MirrorImage image = image_of(mirror, index.state().episodes.size(), sets);
  CHECK(image.steps[0].counts_total == index.steps().counts().total());
  CHECK(image.levels_agree);
  CHECK(std::equal(image.priorities.begin(), image.priorities.end(),
                   index.slots().priorities.begin(), index.slots().priorities.end()));
  uint64_t total = 0;
  bool agree = true;
  const auto leaves = leaves_of(tree->tree, mirror.stream(), total, agree);
  CHECK(agree);
  CHECK(total == wanted->sums.total());
  for (uint64_t slot = 0; slot < leaves.size(); ++slot) {
    REQUIRE(leaves[slot] == wanted->sums[slot]);
  }
}

TEST_CASE("arrays of the device are taken when their stream has made them, and may be reused") {
  Index index({8, 16, 0, Evict::kFifo, 0});
  Index reference({8, 16, 0, Evict::kFifo, 0});
  for (Index* each : {&index, &reference}) {
    add_episode(*each, 100);
  }
  DeviceIndex mirror(index, 0, nullptr);
  mirror.require_priorities();
  std::vector<int64_t> ids;
  for (uint32_t slot = 0; slot < 100; ++slot) {
    ids.push_back(index.id({slot / 16, slot % 16}, Unit::kStep));
  }
  const base::Stream consumer(0);
  const auto device_ids = to_device(std::span<const int64_t>(ids));
  const base::DeviceArray<float> device_priorities(ids.size(), 0);
  base::PinnedArray<float> pinned(ids.size(), 0);
  for (int round = 0; round < 10; ++round) {
    CAPTURE(round);
    std::vector<float> priorities(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      priorities[i] = static_cast<float>(i * 7 % 31 + static_cast<size_t>(round));
    }
    GEAR_CUDA_TRY(cudaStreamSynchronize(consumer));
    std::copy(priorities.begin(), priorities.end(), pinned.get());
    GEAR_CUDA_TRY(cudaMemcpyAsync(device_priorities.get(), pinned.get(), pinned.bytes(),
                                  cudaMemcpyHostToDevice, consumer));
    mirror.update(device_ids.get(), device_priorities.get(), ids.size(), true,
                  reinterpret_cast<uintptr_t>(static_cast<cudaStream_t>(consumer)));
    GEAR_CUDA_TRY(cudaMemsetAsync(device_priorities.get(), 0xff, pinned.bytes(), consumer));
    reference.update(ids, priorities);
  }
  mirror.settle();
  mirror.raise_failed_update();
  CHECK(index.slots().priorities == reference.slots().priorities);
  CHECK(index.state().max_priority == reference.state().max_priority);
  CHECK(index.state().counters.stale_updates == 0);
}

TEST_CASE("a caller's stream that is a whole ring ahead of the mirror's overwrites nothing") {
  constexpr uint64_t kSteps = 400'000;  // more than the ring has room for
  constexpr uint64_t kCall = 4000;
  Index index({kSteps / 100, 100, 0, Evict::kFifo, 0});
  add_episode(index, kSteps);
  DeviceIndex mirror(index, 0, nullptr);
  mirror.require_priorities();
  mirror.sync();
  std::vector<int64_t> ids;
  std::vector<float> priorities;
  for (uint32_t slot = 0; slot < kSteps; ++slot) {
    ids.push_back(index.id({slot / 100, slot % 100}, Unit::kStep));
    priorities.push_back(static_cast<float>(slot % 1013) + 0.5F);
  }
  const base::Stream consumer(0);
  const auto device_ids = to_device(std::span<const int64_t>(ids));
  const auto device_priorities = to_device(std::span<const float>(priorities));
  HeldStream held(mirror.stream());
  for (uint64_t first = 0; first < kSteps; first += kCall) {
    mirror.update(device_ids.get() + first, device_priorities.get() + first, kCall, true,
                  reinterpret_cast<uintptr_t>(static_cast<cudaStream_t>(consumer)));
  }
  held.let_go();
  mirror.settle();
  mirror.raise_failed_update();
  uint64_t wrong = 0;
  for (uint32_t slot = 0; slot < kSteps; ++slot) {
    wrong += index.priority({slot / 100, slot % 100}) != priorities[slot] ? 1 : 0;
  }
  CHECK(wrong == 0);
}

TEST_CASE("saturated weights and stale ids are counted as by the index") {
  Index index({8, 16, 0, Evict::kFifo, 0});
  Index reference({8, 16, 0, Evict::kFifo, 0});
  for (Index* each : {&index, &reference}) {
    add_episode(*each, 40);
  }
  DeviceIndex mirror(index, 0, nullptr);
  const auto tree = mirror.weights(mirror.steps(0), 1.0);
  const auto reference_tree = reference.steps(0)->weights(1.0);
  const uint32_t huge = 2;
  for (Index* each : {&index, &reference}) {
    uint32_t e = kNone;
    each->next_page(e);
    each->attach_page(e);
    each->append(e, std::vector<float>(huge, 1e-20F));  // beside priorities of about 1
    each->end_episode(e, EpisodeState::kTerminated, -1.0, 0);
  }
  mirror.settle();
  CHECK(index.state().counters.saturated_weights == huge);
  CHECK(reference.state().counters.saturated_weights == huge);
  std::vector<int64_t> ids;
  for (uint32_t i = 0; i < 300; ++i) {
    ids.push_back(index.id({i % 3, i % 8}, Unit::kStep) + (i % 7 == 0 ? int64_t{1} << 32 : 0));
  }
  std::vector<float> priorities(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    priorities[i] = i % 3 == 0 ? 1e-12F : 2.0F;
  }
  reference.update(ids, priorities);
  mirror.update(ids.data(), priorities.data(), ids.size(), false, 0);
  mirror.settle();
  CHECK(index.slots().priorities == reference.slots().priorities);
  CHECK(reference.state().counters.stale_updates > 0);
  CHECK(index.state().counters.stale_updates == reference.state().counters.stale_updates);
  CHECK(reference.state().counters.saturated_weights > 0);
  CHECK(index.state().counters.saturated_weights == reference.state().counters.saturated_weights);
}

TEST_CASE("weights follow the largest priority, from whatever kernel it comes") {
  constexpr uint64_t kSteps = 3000;
  Index index({300, 16, 0, Evict::kFifo, 0});
  Index reference({300, 16, 0, Evict::kFifo, 0});
  for (Index* each : {&index, &reference}) {
    add_episode(*each, kSteps);
  }
  DeviceIndex mirror(index, 0, nullptr);
  std::vector<std::shared_ptr<const DeviceWeights>> trees;
  std::vector<std::shared_ptr<const WeightTree>> wanted;
  for (const double alpha : {0.0, 0.6, 1.0}) {
    trees.push_back(mirror.weights(mirror.steps(0), alpha, alpha != 0.6));
    wanted.push_back(reference.steps(0)->weights(alpha, true));
  }
  const auto expect_equal = [&] {
    for (size_t i = 0; i < trees.size(); ++i) {
      uint64_t total = 0;
      bool agree = true;
      const auto leaves = leaves_of(trees[i]->tree, mirror.stream(), total, agree);
      CHECK(agree);
      CHECK(total == wanted[i]->sums.total());
      CHECK(from_device(trees[i]->scale, 1, mirror.stream())[0] == wanted[i]->scale);
      uint64_t wrong = 0;
      for (uint64_t slot = 0; slot < leaves.size(); ++slot) {
        wrong += leaves[slot] != wanted[i]->sums[slot] ? 1 : 0;
      }
      CHECK(wrong == 0);
      if (trees[i]->least != nullptr) {
        const DeviceTree& tree = trees[i]->tree;
        const uint64_t* root =
            trees[i]->least + (tree.levels[tree.num_levels - 1] - tree.levels[1]);
        CHECK(from_device(root, 1, mirror.stream())[0] + 1 == wanted[i]->least->least());
      }
    }
  };
  expect_equal();
  float largest = 100;
  for (const uint64_t count : {1U, 32U, 500U, 513U, 2000U}) {  // in one block, and in many
    CAPTURE(count);
    std::vector<int64_t> ids;
    std::vector<float> priorities;
    for (uint32_t i = 0; i < count; ++i) {
      const auto slot = static_cast<uint32_t>((i * 7 + count) % kSteps);
      ids.push_back(index.id({slot / 16, slot % 16}, Unit::kStep));
      priorities.push_back(i == count / 2 ? largest : i % 5 == 0 ? 0.0F : 1.0F + 0.01F * i);
    }
    largest *= 50;
    reference.update(ids, priorities);
    mirror.update(ids.data(), priorities.data(), ids.size(), false, 0);
    expect_equal();
  }
  for (const float appended : {largest, 1e-3F, 8 * largest}) {
    for (Index* each : {&index, &reference}) {
      uint32_t e = kNone;
      each->next_page(e);
      each->attach_page(e);
      each->append(e, std::vector<float>{1.0F, appended, -1.0F});  // the last by default
      each->end_episode(e, EpisodeState::kTerminated, -1.0, 0);
    }
    mirror.sync();
    expect_equal();
  }
  mirror.settle();
  CHECK(index.state().max_priority == reference.state().max_priority);
  CHECK(index.state().counters.saturated_weights == reference.state().counters.saturated_weights);
  // Of another rank: its GPU said so, or its host.
  largest *= 1000;
  GEAR_CUDA_TRY(cudaMemcpyAsync(mirror.largest_priority(), &largest, sizeof largest,
                                cudaMemcpyHostToDevice, mirror.stream()));
  reference.raise_largest(largest, 0);
  mirror.settle();
  CHECK(index.state().max_priority == largest);
  expect_equal();
  largest *= 1000;
  reference.raise_largest(largest, 0);
  index.raise_largest(largest, 0);
  mirror.sync();
  expect_equal();
}

TEST_CASE("rows of any size and place reach a region of device memory") {
  const auto region = memory::make_region(memory::Tier::kDevice, 9 << 20, {"", "", 0});
  const auto sink = make_row_sink(*region, 1 << 20);
  Index index({4, 4, 0, Evict::kFifo, 0});
  DeviceIndex mirror(index, 0, sink.get());
  std::vector<std::byte> wanted(region->bytes(), std::byte{0});
  uint64_t number = 0;
  const auto write = [&](uint64_t offset, uint64_t bytes, bool zeros) {
    std::vector<std::byte> source(bytes);
    for (std::byte& byte : source) {
      byte = static_cast<std::byte>(number++ * 31 + 7);
    }
    if (zeros) {
      source.assign(bytes, std::byte{0});
    }
    sink->write(offset, zeros ? nullptr : source.data(), bytes);
    std::copy(source.begin(), source.end(), wanted.begin() + static_cast<ptrdiff_t>(offset));
  };
  uint64_t offset = 3;
  for (uint64_t bytes = 1; bytes < 100; ++bytes, offset += bytes + bytes % 5) {
    write(offset, bytes, bytes % 11 == 0);
  }
  mirror.sync();  // flushes
  for (const uint64_t bytes : {4095, 4096, 4097, 70001, 5 << 20}) {
    write(offset, bytes, false);
    offset += bytes + 1;
  }
  write(100, 50, false);
  for (int times = 0; times < 5; ++times) {
    sink->reused(0);
    write(100, 3000, false);  // over what was written just before
  }
  sink->flush();
  sink->wait();
  std::vector<std::byte> got(region->bytes());
  region->read(0, got);
  CHECK(got == wanted);
}

TEST_CASE("rows of many flushes find room while the GPU is busy, until the ring is full") {
  constexpr uint64_t kMiB = 1 << 20;
  const auto region = memory::make_region(memory::Tier::kDevice, 2 * kMiB, {"", "", 0});
  const auto sink = make_row_sink(*region, 2 * kMiB);
  HeldStream held(sink->stream());
  std::vector<std::byte> source(kMiB);
  for (size_t i = 0; i < source.size(); ++i) {
    source[i] = static_cast<std::byte>(i * 31 + 7);
  }
  for (uint64_t row = 0; row < 100; ++row) {
    REQUIRE(sink->has_room(64 + RowSink::kCallBytes));
    sink->write(row * 64, source.data() + row * 64, 64);
    sink->flush();
  }
  uint64_t written = 0;
  for (; sink->has_room(kMiB + RowSink::kCallBytes); written += kMiB) {
    REQUIRE(written < 100 * kMiB);
    sink->write(kMiB, source.data(), kMiB);
    sink->flush();
  }
  CHECK(written >= 16 * kMiB);
  held.let_go();
  sink->wait();
  CHECK(sink->has_room(kMiB + RowSink::kCallBytes));
  std::vector<std::byte> got(2 * kMiB);
  region->read(0, got);
  CHECK(std::equal(got.begin(), got.begin() + 6400, source.begin()));
  CHECK(std::equal(got.begin() + kMiB, got.end(), source.begin()));
}

TEST_CASE("who waits for rows on their way to the GPU holds no lock") {
  store::ShardOptions options = testing::options_of(16);
  options.tier = memory::Tier::kDevice;
  options.device = 0;
  const auto shard = std::make_shared<Shard>(testing::schema(), options);
  const base::Stream& stream = shard->pages().row_sink()->stream();
  HeldStream held(stream);
  Writer writer(shard);
  testing::append(writer, 1, 0, 3);
  {
    const auto lock = shard->lock();
    shard->pages().flush();
  }
  std::atomic<bool> arrived{false};
  std::thread waiting([&] {
    shard->pages().wait();
    arrived = true;
  });
  testing::append(writer, 1, 3, 1);  // takes the lock
  CHECK(!arrived);
  held.let_go();
  waiting.join();
  CHECK(arrived);
  testing::Row row(0, 0);
  const uint64_t offset = shard->layout().offset(0, 0, 2);
  shard->region().read(offset, std::as_writable_bytes(std::span(&row, 1)));
  CHECK(row.numbers[0] == 1);
  CHECK(row.numbers[1] == 2);
}
