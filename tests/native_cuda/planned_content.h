#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/cuda/cuda.h"
#include "base/numbers/philox.h"
#include "deliver/block_pool.h"
#include "gather/cuda/address_order.h"
#include "gather/cuda/row_gather.h"
#include "gather/gather_cpu.h"
#include "plan/cuda/device_plan.h"
#include "store/writing/writer.h"

// A shard in host memory with a copy of its index and its pages on the GPU: what the kernels make
// of it is compared with what the CPU does, byte for byte, in blocks that were full of something
// else.
namespace gear::testing {

constexpr int kDevice = 0;
constexpr uint64_t kGuardBytes = 256;
constexpr int kPoison = 0xCD;

template <class Values>
base::DeviceArray<typename Values::value_type> upload(const Values& values) {
  base::DeviceArray<typename Values::value_type> array(values.size(), kDevice);
  if (!values.empty()) {
    GEAR_CUDA_TRY(cudaMemcpy(array.get(), values.data(), array.bytes(), cudaMemcpyHostToDevice));
    GEAR_CUDA_TRY(cudaDeviceSynchronize());  // the copy may still be on its way
  }
  return array;
}

template <class T>
std::vector<T> download(const T* values, uint64_t count) {
  std::vector<T> copy(count);
  GEAR_CUDA_TRY(cudaMemcpy(copy.data(), values, count * sizeof(T), cudaMemcpyDeviceToHost));
  return copy;
}

// Random numbers that do not depend on the order in which they are asked for.
inline uint64_t random_below(uint64_t range, uint64_t round, uint64_t number) {
  return base::scale_to(base::philox(round, 9, number), range);
}

// Short and long episodes, the first ones evicted in part, some with a closing step that has some
// columns only.
inline std::shared_ptr<store::Shard> make_content(std::vector<store::Column> columns,
                                                  uint64_t page_steps, uint64_t capacity) {
  store::ShardOptions options;
  options.page_steps = page_steps;
  options.capacity = capacity;
  options.owner = 5;
  auto shard = std::make_shared<store::Shard>(store::Schema(std::move(columns)), options);
  store::Writer writer(shard);
  const size_t num_columns = shard->schema().size();
  uint64_t written = 0;
  for (uint64_t episode = 0; written < capacity * 5 / 4; ++episode) {
    const uint64_t steps = 1 + random_below(episode % 5 == 0 ? 80 : 12, 1, episode);
    std::vector<std::vector<std::byte>> rows(num_columns);
    std::vector<const std::byte*> pointers;
    for (size_t c = 0; c < num_columns; ++c) {
      rows[c].resize((steps + 1) * shard->layout().step_bytes[c]);
      for (size_t i = 0; i < rows[c].size(); ++i) {
        rows[c][i] = static_cast<std::byte>(base::philox(episode, c, i / 8).lo >> (i % 8 * 8));
      }
      pointers.push_back(rows[c].data());
    }
    writer.append(pointers, steps, {});
    std::vector<const std::byte*> closing;
    for (size_t c = 0; c < num_columns && episode % 3 != 0; ++c) {
      const bool there = (episode >> (c % 4) & 1) != 0;
      closing.push_back(there ? rows[c].data() + steps * shard->layout().step_bytes[c] : nullptr);
    }
    const auto state =
        episode % 2 == 0 ? store::EpisodeState::kTerminated : store::EpisodeState::kTruncated;
    writer.end_episode(state, -1.0, closing);
    written += steps;
  }
  return shard;
}

inline std::vector<store::Anchor> stored_steps(const store::Index& index) {
  std::vector<store::Anchor> anchors;
  for (uint32_t p = 0; p < index.options().num_pages; ++p) {
    const store::Page& page = index.page(p);
    if (page.episode == store::kNone) {
      continue;
    }
    for (uint32_t row = 0; row < page.rows; ++row) {
      if (page.first_step + row < index.episode(page.episode).end) {
        anchors.push_back({p, row});
      }
    }
  }
  return anchors;
}

// The index and the pages of a shard on the GPU, as they are when it is made.
class UploadedShard {
 public:
  explicit UploadedShard(store::Shard& shard) {
    const store::IndexState& state = shard.index().state();
    std::vector<store::DeviceEpisode> episodes;
    for (const store::Episode& episode : state.episodes) {
      episodes.push_back({episode.begin, episode.end, episode.closing_columns, episode.state});
    }
    pages_ = upload(state.pages);
    episodes_ = upload(episodes);
    const std::byte* data = shard.data();
    bytes_ = upload(std::vector<std::byte>(data, data + shard.region().bytes()));
    view.pages = pages_.get();
    view.episodes = episodes_.get();
    view.num_pages = state.pages.size();
    view.page_steps = shard.layout().page_steps;
    view.owner = shard.options().owner;
  }

  const std::byte* bytes() const { return bytes_.get(); }

  store::DeviceView view{};

 private:
  base::DeviceArray<store::Page> pages_;
  base::DeviceArray<store::DeviceEpisode> episodes_;
  base::DeviceArray<std::byte> bytes_;
};

// A block on the GPU between two guards, poisoned.
class GuardedBlock {
 public:
  explicit GuardedBlock(uint64_t bytes) : memory_(bytes + 2 * kGuardBytes, kDevice) {
    GEAR_CUDA_TRY(cudaMemset(memory_.get(), kPoison, memory_.bytes()));
    GEAR_CUDA_TRY(cudaDeviceSynchronize());
  }

  std::byte* get() const { return memory_.get() + kGuardBytes; }

  // The block; the guards must be as they were.
  std::vector<std::byte> read() const {
    std::vector<std::byte> all = download(memory_.get(), memory_.size());
    for (uint64_t i = 0; i < kGuardBytes; ++i) {
      REQUIRE(all[i] == std::byte{kPoison});
      REQUIRE(all[all.size() - 1 - i] == std::byte{kPoison});
    }
    return {all.begin() + kGuardBytes, all.end() - kGuardBytes};
  }

 private:
  base::DeviceArray<std::byte> memory_;
};

// The batch that the CPU makes, in a poisoned block.
inline plan::Batch batch_on_cpu(store::Shard& shard,
                                std::shared_ptr<const plan::BatchLayout> layout,
                                const select::Selection& selection) {
  plan::Batch batch;
  batch.layout = std::move(layout);
  batch.block = deliver::host_block(batch.layout->bytes);
  std::memset(batch.block.get(), kPoison, batch.layout->bytes);
  plan::Plan plan;
  plan::make_plan(shard.index(), shard.layout(), selection, batch, plan);
  base::ThreadPool pool(1);
  gather::gather_cpu(shard.data(), shard.layout(), plan, batch, pool);
  // The device's plan leaves these to its sampler.
  std::memset(batch.at<std::byte>(batch.layout->probabilities), kPoison,
              batch.layout->batch_size * sizeof(float));
  std::memset(batch.at<std::byte>(batch.layout->weights), kPoison,
              batch.layout->batch_size * sizeof(float));
  return batch;
}

// Names the first byte that differs by its offset.
inline void expect_same_block(const plan::Batch& batch, const std::vector<std::byte>& block) {
  REQUIRE(block.size() == batch.layout->bytes);
  if (std::memcmp(block.data(), batch.block.get(), block.size()) == 0) {
    return;
  }
  uint64_t at = 0;
  while (block[at] == batch.block.get()[at]) {
    ++at;
  }
  const plan::BatchLayout& layout = *batch.layout;
  CAPTURE(at);
  for (size_t o = 0; o < layout.outputs.size(); ++o) {
    const uint64_t bytes =
        layout.batch_size * layout.outputs[o].delivered_rows * layout.row_bytes[o];
    if (at < layout.data[o] || at >= layout.data[o] + bytes) {
      continue;
    }
    MESSAGE("output ", o, ", row ", (at - layout.data[o]) / layout.row_bytes[o], ", byte ",
            (at - layout.data[o]) % layout.row_bytes[o]);
  }
  REQUIRE(static_cast<int>(block[at]) == static_cast<int>(batch.block.get()[at]));
}

// A batch of random anchors, `items` of at most `batch_size`, on both.
struct Trial {
  std::vector<plan::Output> outputs;
  uint64_t batch_size;
  uint64_t items;
  bool packed;
  bool ordered = false;
  bool from_host = false;
};

inline void expect_same_batch(store::Shard& shard, const UploadedShard& uploaded,
                              const Trial& trial, uint64_t round) {
  CAPTURE(round);
  const std::vector<store::Anchor> anchors = stored_steps(shard.index());
  select::Selection selection;
  if (round % 4 == 1) {
    selection.unit = store::Unit::kEpisode;
  }
  std::vector<uint32_t> slots;
  for (uint64_t i = 0; i < trial.items; ++i) {
    const store::Anchor anchor = anchors[random_below(anchors.size(), round, i)];
    selection.add(anchor, 1.0F);
    slots.push_back(static_cast<uint32_t>(shard.index().slot(anchor)));
  }
  plan::check_outputs(trial.outputs, shard.schema(), trial.batch_size, shard.index().num_slots());
  const auto layout = std::make_shared<plan::BatchLayout>(shard.schema(), trial.outputs,
                                                          trial.batch_size, trial.packed);
  const plan::Batch expected = batch_on_cpu(shard, layout, selection);

  const base::Stream stream(kDevice);
  plan::DevicePlan plan(layout, shard.layout(), shard.index().num_slots(), kDevice);
  gather::AddressOrder order(shard.layout(), shard.index().num_slots(), kDevice);
  uint64_t longest = 0;
  for (const auto& shared : layout->windows) {
    longest = std::max(longest, layout->batch_size * shared.window.length());
  }
  order.reserve(longest, longest);
  const GuardedBlock block(layout->bytes);
  const base::PinnedArray<plan::PlanTotals> totals(layout->windows.size(), kDevice);
  if (!slots.empty()) {
    GEAR_CUDA_TRY(cudaMemcpyAsync(plan.slots(), slots.data(), slots.size() * sizeof(uint32_t),
                                  cudaMemcpyHostToDevice, stream));
  }
  const base::PinnedArray<std::byte> pinned(trial.from_host ? shard.region().bytes() : 0, kDevice);
  const std::byte* source = uploaded.bytes();
  if (trial.from_host) {
    std::memcpy(pinned.get(), shard.data(), pinned.size());
    source = pinned.get();
  }
  const gather::RowGather gather(
      layout, shard.layout(),
      trial.ordered ? gather::RowForm::kAddressed : gather::RowForm::kDelivered);
  const uint32_t most_blocks =
      trial.from_host && !trial.ordered ? gather::kBlocksFromHost : UINT32_MAX;
  // Twice: what a launch leaves behind must serve the next one.
  for (int repeat = 0; repeat < 2; ++repeat) {
    plan.launch(uploaded.view, selection.unit, trial.items, block.get(), totals.get(), stream);
    std::byte* const target = block.get();
    std::span<const plan::RowList> rows = plan.rows();
    if (trial.ordered) {
      rows = order.launch(rows, stream);
    }
    const gather::RowGather::Part part{source, rows, nullptr, plan.rows()};
    gather.gather({&part, 1}, {&target, 1}, most_blocks, stream);
    stream.synchronize();
    expect_same_block(expected, block.read());
    for (size_t w = 0; w < layout->windows.size(); ++w) {
      uint64_t steps = 0;
      for (uint64_t i = 0; i < trial.items; ++i) {
        steps += static_cast<uint64_t>(expected.at<int32_t>(layout->windows[w].lengths)[i]);
      }
      REQUIRE(totals[w].steps == steps);
      REQUIRE(totals[w].rows == expected.rows[w]);
    }
  }
}

}  // namespace gear::testing
