// The draws of one rank, which is alone, are those that it has among others that hold the same.
#include "group/lone_draw.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/errors.h"
#include "described_rows.h"
#include "group_content.h"
#include "transport/loopback.h"

using namespace gear;
using namespace gear::testing;

namespace {

constexpr uint32_t kRanks = 6;
constexpr uint64_t kBatch = 40;
constexpr int kBatches = 5;

std::shared_ptr<store::Shard> filled(uint32_t rank) {
  store::ShardOptions options = options_of(400);
  options.owner = rank;
  auto shard = std::make_shared<store::Shard>(schema(), options);
  store::Writer writer(shard);
  for (uint64_t e = 0; e < 7; ++e) {
    add_episode(writer, e, 30);
  }
  return shard;
}

}  // namespace

TEST_CASE("lone draw: as many fall on a rank as among others that hold the same") {
  for (const select::Policy policy : {select::Policy::kUniform, select::Policy::kWeighted}) {
    select::SamplerOptions options;
    options.policy = policy;
    options.seed = 5;
    std::vector<uint64_t> among_others;
    Ranks ranks = transport::make_loopback(kRanks, 60);
    for (const std::string& error : errors_of(ranks, [&](transport::Transport& control) {
           const auto shard = filled(control.rank());
           select::GroupSampler sampler(options, shard->index(), control.rank(), kRanks);
           select::GroupDraw draw;
           for (int i = 0; i < kBatches; ++i) {
             select_with_others(control, sampler, shard->index(), kBatch * kRanks, false, draw);
             if (control.rank() == 0) {
               among_others.push_back(draw.counts[0]);
             }
           }
         })) {
      CHECK(error == "");
    }
    for (const group::Locality locality : {group::Locality::kFirst, group::Locality::kOff}) {
      group::LoneDraw lone(filled(0), options, kBatch, locality, {0, 0, 0, 1, 1, 1});
      std::vector<uint64_t> alone;
      for (int i = 0; i < kBatches; ++i) {
        alone.push_back(lone.draw());
        REQUIRE(lone.counts().size() == kRanks);
        CHECK(lone.counts()[0] == alone.back());
        CHECK(std::accumulate(lone.counts().begin(), lone.counts().end(), uint64_t{0}) ==
              kBatch * kRanks);
      }
      CHECK(alone == among_others);
    }
  }
}

TEST_CASE("lone draw: one rank has all, and there may be too many") {
  group::LoneDraw alone(filled(0), {}, kBatch, group::Locality::kOff, {0});
  CHECK(alone.draw() == kBatch);
  CHECK_THROWS_WITH_AS(
      group::LoneDraw(filled(0), {}, uint64_t{1} << 31, group::Locality::kFirst, {0, 0}),
      doctest::Contains("all together draw 4294967295 items at most"), base::InvalidArgument);
}
