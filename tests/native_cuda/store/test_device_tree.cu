#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "base/numbers/philox.h"
#include "device_memory.h"
#include "store/drawable/sum_tree.h"
#include "store/mirror/cuda/device_search.cuh"
#include "store/mirror/cuda/device_tree.h"

using namespace gear;
using namespace gear::store;
using gear::tests::from_device;
using gear::tests::to_device;

namespace {

constexpr unsigned kBlock = 128;

template <class Sum, bool kMany>
__global__ void __launch_bounds__(kMostSearchThreads)
    find_all(const __grid_constant__ DeviceTree tree, const uint64_t* targets, uint64_t count,
             TreeHit* hits) {
  search<Sum, kMany>(
      tree, count, [&](uint64_t item, uint64_t) { return targets[item]; },
      [&](uint64_t item, const TreeHit& hit) { hits[item] = hit; });
}

__global__ void set_all(const __grid_constant__ DeviceTree tree, const uint64_t* weights) {
  const uint64_t leaf = (uint64_t{blockIdx.x} * kBlock + threadIdx.x) / kWarpSize;
  if (leaf < tree.counts[0]) {
    warp_set(tree, leaf, weights[leaf]);
  }
}

// Leaves [first, first + count), 32 a warp.
__global__ void set_run(const __grid_constant__ DeviceTree tree, uint64_t first, uint64_t count,
                        const uint64_t* weights) {
  const uint64_t base = (uint64_t{blockIdx.x} * kBlock + threadIdx.x) / kWarpSize * kWarpSize;
  if (base >= count) {
    return;
  }
  const uint64_t i = base + static_cast<unsigned>(lane_id());
  uint64_t gained = 0;
  if (i < count) {
    gained = weights[i] - tree.levels[0][first + i];
    tree.levels[0][first + i] = weights[i];
  }
  warp_add_run(tree, first + base, gained);
}

__global__ void set_scattered(const __grid_constant__ DeviceTree tree, const uint64_t* leaves,
                              const uint64_t* weights, uint64_t count, bool by_block) {
  const uint64_t i = uint64_t{blockIdx.x} * kBlock + threadIdx.x;
  uint64_t gained = 0;
  const uint64_t leaf = i < count ? leaves[i] : 0;
  if (i < count) {
    gained = weights[i] - tree.levels[0][leaf];
    tree.levels[0][leaf] = weights[i];
  }
  if (by_block) {
    block_add_scattered(tree, leaf, gained);
  } else {
    warp_add_scattered(tree, leaf, gained);
  }
}

unsigned blocks_of_warps(uint64_t warps) {
  return static_cast<unsigned>((warps * kWarpSize + kBlock - 1) / kBlock);
}

uint64_t random(uint64_t number, uint64_t range) {
  return base::scale_to(base::philox(5, 9, number), range);
}

void expect_levels(const DeviceTree& tree, const SumTree& wanted, cudaStream_t stream) {
  auto below = from_device(tree.levels[0], tree.counts[0], stream);
  for (uint64_t leaf = 0; leaf < below.size(); ++leaf) {
    REQUIRE(below[leaf] == wanted[leaf]);
  }
  for (int level = 1; level < tree.num_levels; ++level) {
    std::vector<uint64_t> sums(tree.counts[level], 0);
    for (uint64_t i = 0; i < below.size(); ++i) {
      sums[i / DeviceTree::kFanout] += below[i];
    }
    below = from_device(tree.levels[level], tree.counts[level], stream);
    REQUIRE(below == sums);
  }
  REQUIRE(below == std::vector<uint64_t>{wanted.total()});
}

template <class Sum>
void expect_finds(const DeviceTree& tree, const SumTree& wanted, cudaStream_t stream) {
  // A warp a target; blocks of 256 threads; of 1024, with a second round.
  for (const uint64_t count : {uint64_t{300}, kManyTargets + 5, uint64_t{140'000}}) {
    CAPTURE(count);
    std::vector<uint64_t> targets = {0, wanted.total() - 1};
    while (targets.size() < count) {
      targets.push_back(random(targets.size(), wanted.total()));
    }
    std::vector<SumTree::Hit> expected(count);
    wanted.find(targets, expected);
    const auto on_device = to_device(std::span<const uint64_t>(targets));
    const base::DeviceArray<TreeHit> hits(count, 0);
    launch_search<Sum>(find_all<Sum, false>, find_all<Sum, true>, tree, count, stream, tree,
                       on_device.get(), count, hits.get());
    const auto found = from_device(hits.get(), count, stream);
    uint64_t wrong = 0;
    for (size_t i = 0; i < count; ++i) {
      wrong += found[i].leaf != expected[i].leaf || found[i].remainder != expected[i].remainder ||
               found[i].weight != wanted[expected[i].leaf] || found[i].total != wanted.total();
    }
    REQUIRE(wrong == 0);
  }
}

}  // namespace

TEST_CASE("a tree on the device equals the one of the host, leaf, level and hit") {
  const base::Stream stream(0);
  for (const uint64_t leaves : {1, 2, 31, 32, 33, 1000, 1025, 2049, 70001, 131'100}) {
    CAPTURE(leaves);
    SumTree wanted(leaves);
    const TreeMemory memory(leaves, stream, 0);
    const DeviceTree& tree = memory.tree();
    std::vector<uint64_t> weights(leaves);
    for (uint64_t i = 0; i < leaves; ++i) {
      weights[i] = i % 3 == 0 ? 0 : random(i, uint64_t{1} << 40);
    }
    weights[leaves / 2] = 7;
    for (uint64_t i = 0; i < leaves; ++i) {
      wanted.set(i, weights[i]);
    }
    {
      const auto there = to_device(std::span<const uint64_t>(weights));
      set_all<<<blocks_of_warps(leaves), kBlock, 0, stream>>>(tree, there.get());
      GEAR_CUDA_TRY(cudaGetLastError());
      expect_levels(tree, wanted, stream);
      expect_finds<uint64_t>(tree, wanted, stream);
    }

    const uint64_t first = leaves / 7;
    const uint64_t count = leaves - first - leaves / 9;
    for (uint64_t i = 0; i < count; ++i) {
      weights[i] = random(i + 7777, uint64_t{1} << 40);
    }
    weights.resize(count);
    wanted.set_run(first, weights);
    {
      const auto there = to_device(std::span<const uint64_t>(weights));
      set_run<<<blocks_of_warps((count + kWarpSize - 1) / kWarpSize), kBlock, 0, stream>>>(
          tree, first, count, there.get());
      GEAR_CUDA_TRY(cudaGetLastError());
      expect_levels(tree, wanted, stream);
      expect_finds<uint64_t>(tree, wanted, stream);
    }

    std::vector<uint64_t> places;
    std::vector<uint64_t> values;
    for (uint64_t leaf = 0; leaf < leaves; leaf += 1 + leaf % 5) {
      places.push_back(leaf);
      values.push_back(random(leaf + 99999, 1000));
      wanted.set(leaf, values.back());
    }
    for (const bool by_block : {false, true}) {
      for (size_t i = 0; i < places.size(); ++i) {
        values[i] += by_block ? 3 : 0;
        wanted.set(places[i], values[i]);
      }
      const auto there = to_device(std::span<const uint64_t>(places));
      const auto set = to_device(std::span<const uint64_t>(values));
      set_scattered<<<static_cast<unsigned>((places.size() + kBlock - 1) / kBlock), kBlock, 0,
                      stream>>>(tree, there.get(), set.get(), places.size(), by_block);
      GEAR_CUDA_TRY(cudaGetLastError());
      expect_levels(tree, wanted, stream);
    }
    memory.sum_levels(stream);
    expect_levels(tree, wanted, stream);
  }
}

TEST_CASE("a tree whose total fits 32 bits is searched with sums of 32 bits") {
  const base::Stream stream(0);
  // Tops of one level and of another, and totals of nearly 2^32.
  for (const uint64_t leaves : {1, 2, 63, 65, 4096, 16384, 16385, 600'000}) {
    CAPTURE(leaves);
    std::vector<uint64_t> weights(leaves);
    const uint64_t most = UINT32_MAX / leaves;
    for (uint64_t i = 0; i < leaves; ++i) {
      weights[i] = i % 5 == 0 ? 0 : i % 5 == 1 ? most : random(i, most);
    }
    weights[leaves - 1] = most;
    SumTree wanted(leaves);
    wanted.set_run(0, weights);
    const TreeMemory memory(leaves, stream, 0);
    const auto there = to_device(std::span<const uint64_t>(weights));
    set_all<<<blocks_of_warps(leaves), kBlock, 0, stream>>>(memory.tree(), there.get());
    GEAR_CUDA_TRY(cudaGetLastError());
    expect_finds<uint32_t>(memory.tree(), wanted, stream);

    // All in one leaf.
    std::fill(weights.begin(), weights.end(), 0);
    weights[leaves / 2] = UINT32_MAX;
    wanted.set_run(0, weights);
    const auto one = to_device(std::span<const uint64_t>(weights));
    set_all<<<blocks_of_warps(leaves), kBlock, 0, stream>>>(memory.tree(), one.get());
    GEAR_CUDA_TRY(cudaGetLastError());
    expect_finds<uint32_t>(memory.tree(), wanted, stream);
  }
}
