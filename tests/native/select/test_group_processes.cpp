// Ranks that are processes, up to 8, against one index that holds what all of them hold.
#include <doctest/doctest.h>

#include <bit>
#include <memory>
#include <string>
#include <vector>

#include "forked_ranks.h"
#include "group_content.h"
#include "select/sampler.h"
#include "transport/shared/shared_memory.h"

using namespace gear::select;
using namespace gear::testing;
using gear::store::Unit;

namespace {

constexpr uint64_t kBatches[] = {128, 40, 3000, 128};

struct LawCase {
  Policy policy;
  Unit unit;
  std::unique_ptr<GroupContent> content;

  SamplerOptions options() const {
    SamplerOptions options;
    options.policy = policy;
    options.unit = unit;
    options.seed = 5;
    return options;
  }
};

std::vector<LawCase> laws(uint32_t size) {
  std::vector<LawCase> all;
  for (const Policy policy : {Policy::kUniform, Policy::kWeighted, Policy::kSequential,
                              Policy::kFifo, Policy::kLifo, Policy::kTopK}) {
    const bool by_age = policy == Policy::kFifo || policy == Policy::kLifo;
    for (const Unit unit : {Unit::kStep, Unit::kEpisode}) {
      all.push_back({policy, unit,
                     std::make_unique<GroupContent>(size, 70 + size,
                                                    by_age ? GroupContent::Single::kInTurn
                                                           : GroupContent::Single::kRankByRank)});
    }
  }
  return all;
}

std::string letters(const Step& step, float probability) {
  const auto [rank, episode, number] = step;
  return gear::base::cat(rank, " ", episode, " ", number, " ", std::bit_cast<uint32_t>(probability),
                         "\n");
}

// What one rank of the group drew: the number of each draw, and what it is.
std::string drawn_by_rank(std::vector<LawCase>& all, uint32_t rank,
                          gear::transport::Transport& control) {
  std::string told;
  uint64_t number = 0;  // of the first draw of a batch
  for (LawCase& law : all) {
    gear::store::Index& index = *law.content->ranks[rank];
    const auto sampler = std::make_unique<GroupSampler>(law.options(), index, rank, control.size());
    for (const uint64_t count : kBatches) {
      GroupDraw draw;
      select_with_others(control, *sampler, index, count, true, draw);
      for (size_t i = 0; i < draw.own.size(); ++i) {
        told += gear::base::cat(number + draw.own_draws[i], " ",
                                letters(law.content->step_of_rank(rank, draw.own.anchors[i]),
                                        draw.own.probabilities[i]));
      }
      number += draw.items;
    }
  }
  return told;
}

// The draws of one buffer that holds everything, in their order.
std::vector<std::string> drawn_by_one(std::vector<LawCase>& all) {
  std::vector<std::string> draws;
  for (LawCase& law : all) {
    const auto sampler = std::make_unique<Sampler>(law.options(), *law.content->whole);
    for (const uint64_t count : kBatches) {
      Selection chosen;
      sampler->select(*law.content->whole, count, chosen);
      for (size_t i = 0; i < chosen.size(); ++i) {
        draws.push_back(
            letters(law.content->step_of_whole(chosen.anchors[i]), chosen.probabilities[i]));
      }
    }
  }
  return draws;
}

}  // namespace

TEST_CASE("up to 8 processes draw what one buffer with the content of all draws") {
  const std::string name = shared_name_of("group-processes");
  for (const uint32_t size : {1U, 2U, 3U, 4U, 8U}) {
    CAPTURE(size);
    std::vector<LawCase> all = laws(size);
    const auto children = start_ranks(size, [&](uint32_t rank) {
      const auto control = gear::transport::make_shared_memory(name, rank, size, 200);
      return drawn_by_rank(all, rank, *control);
    });
    const std::vector<std::string> expected = drawn_by_one(all);
    std::vector<std::string> drawn(expected.size());
    for (const Child& child : children) {
      const std::string words = child.words();
      for (size_t at = 0; at < words.size();) {
        const size_t end = words.find('\n', at) + 1;
        size_t digits = 0;
        const uint64_t number = std::stoull(words.substr(at, end - at), &digits);
        REQUIRE(number < drawn.size());
        CHECK(drawn[number].empty());
        drawn[number] = words.substr(at + digits + 1, end - at - digits - 1);
        at = end;
      }
    }
    CHECK(drawn == expected);
  }
}
