#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "described_rows.h"
#include "group/global_draw.h"
#include "ranks.h"
#include "transport/one_sided/forwarding.h"

/// A rank that draws with others, whose exchanges can be watched.
namespace gear::testing {

inline constexpr uint64_t kBatchSize = 16;
inline constexpr uint64_t kPages = 12;
inline constexpr uint64_t kPageSteps = 4;  // of options_of()

/// Runs `during`, with what all gave, in every exchange of offers, or in those of counts.
class Watched final : public transport::Forwarding {
 public:
  explicit Watched(std::unique_ptr<transport::Transport> inner)
      : Forwarding(*inner), owned_(std::move(inner)) {}

  void allgather(transport::ConstBytes mine, transport::Bytes all) override {
    inner_.allgather(mine, all);
    if (during && (mine.size() == sizeof(uint64_t)) == counts) {
      during(all);
    }
  }

  std::function<void(transport::ConstBytes)> during;
  bool counts = false;

 private:
  std::unique_ptr<transport::Transport> owned_;
};

struct Law {
  select::Policy policy;
  store::Unit unit = store::Unit::kStep;
  uint32_t max_times_sampled = 0;
};

struct RankSizes {
  uint64_t batch = kBatchSize;
  uint64_t pages = kPages;
  uint64_t more_episodes = 0;  // of 30 steps
};

/// One rank of a group: its shard, with episodes in it, an open one among them, and its draws.
class Rank {
 public:
  Rank(transport::Transport& control, const Law& law, const RankSizes& sizes = {},
       group::Locality locality = group::Locality::kFirst)
      : control_(control.duplicate()) {
    store::ShardOptions options = options_of(sizes.pages * kPageSteps);
    options.owner = control.rank();
    options.max_times_sampled = law.max_times_sampled;
    shard = std::make_shared<store::Shard>(schema(), options);
    open = std::make_unique<store::Writer>(shard);
    other = std::make_unique<store::Writer>(shard);
    {
      store::Writer first(shard);
      for (uint64_t e = 0; e < 4 + control.rank(); ++e) {
        add_episode(first, next_episode++, 3 + e);
      }
      for (uint64_t e = 0; e < sizes.more_episodes; ++e) {
        add_episode(first, next_episode++, 30);
      }
    }
    peers = std::make_shared<group::Peers>(
        shard, std::shared_ptr<transport::Transport>(control.duplicate()),
        std::vector<uint32_t>(control.size(), 0), false);
    sampler.policy = law.policy;
    sampler.unit = law.unit;
    sampler.seed = 11;
    deliver::LoaderOptions loader;
    loader.outputs = {{"row", 0, 0, 1, plan::Pad::kBoth, false}};
    loader.batch_size = sizes.batch;
    loader.sampler = sampler;
    layout =
        std::make_shared<plan::BatchLayout>(shard->schema(), loader.outputs, sizes.batch, false);
    const std::vector<uint8_t> by_pointer(control.size(), 1);
    draws =
        std::make_unique<group::GlobalDraw>(*peers, loader, locality, layout, by_pointer, control_);
  }

  // One batch: what goes to every rank, byte by byte. The pages are given back.
  std::vector<group::Parcel> draw() {
    std::vector<group::Parcel> parcels = draw_ahead();
    taken.deliver();
    return parcels;
  }

  // The same, and it counts when `taken` is delivered.
  std::vector<group::Parcel> draw_ahead() {
    group::DrawnBatch drawn;
    expect(draws->draw({true, false}, drawn, taken) == group::GlobalDraw::Round::kDrawn,
           "nothing was drawn");
    drawn.read.end();
    return std::move(drawn.parcels);
  }

  void during(std::function<void(transport::ConstBytes)> change, bool counts = false) {
    control_.during = std::move(change);
    control_.counts = counts;
  }

  std::shared_ptr<store::Shard> shard;
  std::unique_ptr<store::Writer> open;
  std::unique_ptr<store::Writer> other;
  std::shared_ptr<group::Peers> peers;
  std::shared_ptr<const plan::BatchLayout> layout;
  std::unique_ptr<group::GlobalDraw> draws;
  deliver::TakenBatch taken;
  select::SamplerOptions sampler;
  uint64_t next_episode = 1;

 private:
  Watched control_;
};

}  // namespace gear::testing
