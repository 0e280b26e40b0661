// What a group refuses in a sentence: more ranks, or draws, than its numbers can name.
#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "base/errors.h"
#include "described_rows.h"
#include "expect_message.h"
#include "group/global_draw.h"
#include "transport/loopback.h"

using namespace gear::group;
using namespace gear::testing;

namespace {

std::shared_ptr<gear::store::Shard> small_shard() {
  return std::make_shared<gear::store::Shard>(schema(), options_of(64));
}

}  // namespace

TEST_CASE("a buffer over more ranks than an id can name is refused") {
  constexpr uint32_t kMost = 4096;
  auto ranks = gear::transport::make_loopback(kMost + 1, 1);
  const std::shared_ptr<gear::transport::Transport> control = std::move(ranks[0]);
  expect_message<gear::base::InvalidArgument>(
      [&] { Peers(small_shard(), control, std::vector<uint32_t>(kMost + 1, 0), false); },
      "[group] a buffer over 4097 ranks: at most 4096");
  const auto shard = small_shard();
  expect_message<gear::base::InvalidArgument>(
      [&] { gear::select::make_group_sampler({}, shard->index(), 0, kMost + 1); },
      "[select] draws over 4097 ranks: 4096 at most");
}

TEST_CASE("a batch of more draws than 32 bits can number is refused") {
  auto ranks = gear::transport::make_loopback(1, 1);
  const std::shared_ptr<gear::transport::Transport> control = std::move(ranks[0]);
  Peers peers(small_shard(), control, {0}, false);
  gear::deliver::CollectorOptions options;
  options.outputs = windows();
  const auto layout =
      std::make_shared<gear::plan::BatchLayout>(peers.shard().schema(), options.outputs, 8, false);
  const auto make = [&](uint64_t batch_size) {
    options.batch_size = batch_size;
    GlobalDraw(peers, options, Locality::kFirst, layout, {1}, *control);
  };
  make(UINT32_MAX);
  expect_message<gear::base::InvalidArgument>([&] { make(uint64_t{1} << 32); },
                                              "[collect] batch_size 4294967296 on each of 1 ranks",
                                              "lower batch_size to 4294967295");
  expect_message<gear::base::InvalidArgument>([&] { make(uint64_t{1} << 63); },
                                              "[collect] batch_size");
}
