#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/numbers/philox.h"
#include "index_view.h"
#include "ranks.h"
#include "select/group/group_sampler.h"
#include "transport/loopback.h"
#include "transport/typed.h"

/// Content of many ranks, and the same in one buffer.
namespace gear::testing {

constexpr uint64_t kRankPageSteps = 4;

struct EpisodeContent {
  uint32_t rank;
  std::vector<float> priorities;
  bool ends = true;
};

// Which step of which episode of which rank.
using Step = std::tuple<uint32_t, uint64_t, uint64_t>;

inline uint64_t random_below(uint64_t seed, uint64_t n, uint64_t range) {
  return base::scale_to(base::philox(seed, 9, n), range);
}

// The shards of `num_ranks` ranks, and all in one: rank after rank, or episode by episode in turn.
class GroupContent {
 public:
  enum class Single : uint8_t { kRankByRank, kInTurn };

  using Share = std::vector<EpisodeContent>;

  GroupContent(uint32_t num_ranks, uint64_t seed, Single single, uint32_t max_times_sampled = 0)
      : GroupContent(made_up(num_ranks, seed), single, max_times_sampled) {}

  // By rank; an episode's rank is the one whose share it is in.
  explicit GroupContent(std::vector<Share> shares, Single single = Single::kRankByRank,
                        uint32_t max_times_sampled = 0)
      : shares_(std::move(shares)) {
    for (const auto& share : shares_) {
      ranks.push_back(make_index(share, max_times_sampled));
    }
    std::vector<EpisodeContent> all;
    if (single == Single::kRankByRank) {
      for (const auto& share : shares_) {
        all.insert(all.end(), share.begin(), share.end());
      }
    } else {
      for (size_t k = 0; k < shares_[0].size(); ++k) {
        for (const auto& share : shares_) {
          if (k < share.size()) {
            all.push_back(share[k]);
          }
        }
      }
    }
    std::vector<uint64_t> next(shares_.size(), 1);
    for (const EpisodeContent& episode : all) {
      names_.emplace_back(episode.rank, next[episode.rank]++);
    }
    whole = make_index(all, max_times_sampled);
    for (const auto& rank : ranks) {  // as the batch before has told them
      rank->raise_largest(whole->state().max_priority, whole->state().max_weight);
    }
  }

  uint32_t num_ranks() const { return static_cast<uint32_t>(ranks.size()); }

  Step step_of_rank(uint32_t rank, store::Anchor anchor) const {
    const store::Page& page = ranks[rank]->page(anchor.page);
    return {rank, ranks[rank]->episode(page.episode).uid, page.first_step + anchor.row};
  }

  Step step_of_whole(store::Anchor anchor) const {
    const store::Page& page = whole->page(anchor.page);
    const auto [rank, uid] = names_[whole->episode(page.episode).uid - 1];
    return {rank, uid, page.first_step + anchor.row};
  }

  std::vector<std::unique_ptr<store::Index>> ranks;
  std::unique_ptr<store::Index> whole;

 private:
  // The first rank has most, the last of several none, and no number of episodes is the same.
  static std::vector<Share> made_up(uint32_t num_ranks, uint64_t seed) {
    std::vector<Share> shares(num_ranks);
    for (uint32_t rank = 0; rank < num_ranks; ++rank) {
      uint64_t episodes = rank == 0 ? 12 * num_ranks : 1 + random_below(seed, rank, 5);
      if (num_ranks > 1 && rank + 1 == num_ranks) {
        episodes = 0;
      }
      for (uint64_t k = 0; k < episodes; ++k) {
        EpisodeContent episode{rank, {}, k + 1 < episodes};  // the last one is open
        const uint64_t steps = 1 + random_below(seed, 100 * rank + k, 11);
        for (uint64_t i = 0; i < steps; ++i) {  // with equal ones among them
          episode.priorities.push_back(
              static_cast<float>(random_below(seed + 1, 10000 * rank + 100 * k + i, 9)) / 2);
        }
        shares[rank].push_back(episode);
      }
    }
    return shares;
  }

  static std::unique_ptr<store::Index> make_index(const std::vector<EpisodeContent>& episodes,
                                                  uint32_t max_times_sampled) {
    uint64_t pages = 4;
    for (const EpisodeContent& episode : episodes) {
      pages += (episode.priorities.size() + kRankPageSteps - 1) / kRankPageSteps;
    }
    auto index = std::make_unique<store::Index>(
        store::IndexOptions{pages, kRankPageSteps, 0, store::Evict::kFifo, max_times_sampled});
    for (const EpisodeContent& episode : episodes) {
      uint32_t e = store::kNone;
      for (const float priority : episode.priorities) {
        if (!has_room(*index, e)) {
          index->next_page(e);
          index->attach_page(e);
        }
        index->append(e, {&priority, 1});
      }
      if (episode.ends) {
        index->end_episode(e, store::EpisodeState::kTerminated, -1.0, 0);
      }
    }
    return index;
  }

  std::vector<Share> shares_;
  std::vector<std::pair<uint32_t, uint64_t>> names_;  // by uid in the whole: rank and uid there
};

// One rank's part of a batch of so many items.
inline void select_with_others(transport::Transport& control, select::GroupSampler& sampler,
                               store::Index& index, uint64_t count, bool numbered,
                               select::GroupDraw& draw) {
  std::vector<std::byte> own(sampler.offer_bytes());
  std::vector<std::byte> offers(own.size() * control.size());
  sampler.offer(index, count, own);
  control.allgather(own, offers);
  const auto gather = [&](std::span<const uint64_t> mine, std::span<const uint64_t> counts,
                          std::span<uint64_t> all) {
    transport::gather(control, mine, counts, all);
  };
  sampler.select(index, {count, offers, numbered, gather}, draw);
}

// The samplers of all ranks, in one process: each selects in a thread of its own.
class GroupOfSamplers {
 public:
  GroupOfSamplers(GroupContent& content, const select::SamplerOptions& options)
      : content_(content), transports_(transport::make_loopback(content.num_ranks(), 60)) {
    for (uint32_t rank = 0; rank < content.num_ranks(); ++rank) {
      samplers.push_back(std::make_unique<select::GroupSampler>(options, *content.ranks[rank], rank,
                                                                content.num_ranks()));
    }
  }

  struct Batch {
    std::vector<uint16_t> owners;
    std::vector<store::Anchor> anchors;  // in the owner's index
    std::vector<Step> steps;
    std::vector<float> probabilities;
    double beta = 0;
  };

  Batch select(uint64_t count) {
    const std::vector<select::GroupDraw> draws = select_on_all(count, true);
    Batch batch;
    batch.beta = draws[0].beta;
    batch.owners.resize(draws[0].items, UINT16_MAX);
    for (uint16_t rank = 0; rank < draws.size(); ++rank) {
      for (const uint32_t draw : draws[rank].own_draws) {
        REQUIRE(draw < batch.owners.size());
        REQUIRE(batch.owners[draw] == UINT16_MAX);
        batch.owners[draw] = rank;
      }
    }
    std::vector<size_t> next(samplers.size(), 0);
    for (size_t draw = 0; draw < batch.owners.size(); ++draw) {
      const uint16_t owner = batch.owners[draw];
      REQUIRE(owner < samplers.size());
      const size_t i = next[owner]++;
      REQUIRE(i < draws[owner].own.size());
      REQUIRE(draws[owner].own_draws[i] == draw);
      batch.anchors.push_back(draws[owner].own.anchors[i]);
      batch.steps.push_back(content_.step_of_rank(owner, batch.anchors.back()));
      batch.probabilities.push_back(draws[owner].own.probabilities[i]);
    }
    return batch;
  }

  // By rank. Fails unless they agree on how many draws fell on whom, or throw the same.
  std::vector<select::GroupDraw> select_on_all(uint64_t count, bool numbered) {
    std::vector<select::GroupDraw> draws(samplers.size());
    const std::vector<std::string> errors =
        errors_of(transports_, [&](transport::Transport& control) {
          const uint32_t rank = control.rank();
          select_with_others(control, *samplers[rank], *content_.ranks[rank], count, numbered,
                             draws[rank]);
        });
    for (const std::string& error : errors) {
      REQUIRE(error == errors[0]);  // on every rank alike
    }
    if (!errors[0].empty()) {
      throw base::InvalidArgument(errors[0]);
    }
    uint64_t items = 0;
    for (uint32_t rank = 0; rank < samplers.size(); ++rank) {
      REQUIRE(draws[rank].items == draws[0].items);
      REQUIRE(draws[rank].counts == draws[0].counts);
      if (draws[0].items > 0) {
        REQUIRE(draws[rank].own.size() == draws[0].counts[rank]);
      }
      if (numbered) {
        REQUIRE(draws[rank].own_draws.size() == draws[rank].own.size());
      }
      items += draws[rank].own.size();
    }
    REQUIRE(items == draws[0].items);
    return draws;
  }

  std::vector<std::unique_ptr<select::GroupSampler>> samplers;

 private:
  GroupContent& content_;
  std::vector<std::unique_ptr<transport::Transport>> transports_;
};

}  // namespace gear::testing
