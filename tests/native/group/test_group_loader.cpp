// What ranks agree on before a loader of all of them is made.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "described_rows.h"
#include "group/group_loader.h"
#include "memory/shared/shared_region.h"
#include "ranks.h"
#include "transport/loopback.h"

using namespace gear;
using namespace gear::testing;

namespace {

std::shared_ptr<group::Peers> peers_of(transport::Transport& control) {
  store::ShardOptions options = options_of(16);
  options.owner = control.rank();
  return std::make_shared<group::Peers>(std::make_shared<store::Shard>(schema(), options),
                                        std::shared_ptr<transport::Transport>(control.duplicate()),
                                        std::vector<uint32_t>(control.size(), 0), false);
}

deliver::LoaderOptions options(uint64_t batch_size) {
  deliver::LoaderOptions made;
  made.outputs = {{"row", 0, 0, 1, plan::Pad::kBoth, false}};
  made.batch_size = batch_size;
  return made;
}

std::string refusal(const std::shared_ptr<group::Peers>& peers,
                    const deliver::LoaderOptions& given) {
  try {
    group::make_pipeline(peers, {peers->shard(), given}, {});
  } catch (const base::InvalidArgument& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("group loader: what is refused on one rank is told to all, and all may make another") {
  auto ranks = transport::make_loopback(3, 200);
  std::vector<std::string> said(3);
  for (const std::string& error : errors_of(ranks, [&](transport::Transport& control) {
         const auto peers = peers_of(control);
         if (control.rank() == 1) {
           peers->shard().set_rate_limiter(store::RateLimiter(1.0, 0, 1.0));  // of its own
         }
         said[control.rank()] = refusal(peers, options(4));
         expect(refusal(peers, options(1)).empty(), "another loader is refused");
       })) {
    CHECK(error == "");
  }
  const std::string words = "[buffer] batch_size 4 under a rate limit";
  CHECK(said[0].starts_with("on rank 1: " + words));
  CHECK(said[1].starts_with(words));
  CHECK(said[2] == said[0]);
}

TEST_CASE("group loader: a rank that finds no memory for its board is named by all") {
  auto ranks = transport::make_loopback(3, 200);
  std::vector<std::string> said(3);
  for (const std::string& error : errors_of(ranks, [&](transport::Transport& control) {
         const auto peers = peers_of(control);
         std::unique_ptr<memory::Region> taken;
         if (control.rank() == 1) {
           taken = memory::SharedRegion::create(peers->shared_name(1, 0), 64, "0000000000000000");
         }
         said[control.rank()] = refusal(peers, options(1));
         expect(refusal(peers, options(1)).empty(), "another loader is refused");
       })) {
    CHECK(error == "");
  }
  CHECK(said[1].find("-l0-r1") != std::string::npos);
  CHECK(said[0] == "on rank 1: " + said[1]);
  CHECK(said[2] == said[0]);
}
