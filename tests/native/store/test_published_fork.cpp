// What is published is the parent's: a forked child has copies of all but that memory.
#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "child_process.h"
#include "memory/shared/shared_region.h"
#include "store/publish/published_index.h"
#include "store/shard.h"
#include "store/writing/writer.h"

using namespace gear::store;
using gear::memory::SharedRegion;
using gear::testing::in_child;

namespace {

constexpr std::array<uint64_t, 4> kRows{1, 2, 3, 4};

void append(Writer& writer) {
  const std::byte* columns[] = {reinterpret_cast<const std::byte*>(kRows.data())};
  writer.append(columns, kRows.size(), {});
}

template <class Call>
bool is_refused(const Call& call) {
  try {
    call();
  } catch (const gear::base::InvalidArgument& error) {
    return std::string(error.what()).find("forked") != std::string::npos;
  }
  return false;
}

std::vector<std::byte> bytes_of(const gear::memory::Region& region) {
  return {region.data(), region.data() + region.bytes()};
}

}  // namespace

TEST_CASE("a forked child writes nothing into a shard that its parent publishes") {
  const std::string name = gear::base::cat("test-published-", ::getpid());
  ShardOptions options;
  options.page_steps = kRows.size();
  options.capacity = 8 * kRows.size();
  options.tier = gear::memory::Tier::kShared;
  options.name = name;
  const auto shard = std::make_shared<Shard>(Schema({{"n", {}, gear::base::DType::kU64}}), options);
  const std::shared_ptr<SharedRegion> memory =
      SharedRegion::create(name + "-index", PublishedLayout(8).bytes, "0000000000000000");
  shard->publish_index(memory);
  Writer open(shard);
  append(open);
  Writer fresh(shard);
  const std::vector<std::byte> index = bytes_of(*memory);
  const std::vector<std::byte> rows = bytes_of(shard->region());
  CHECK(in_child([&] {
          int refused = 0;
          refused += is_refused([&] { append(open); });
          refused += is_refused([&] { append(fresh); });
          refused += is_refused([&] { open.end_episode(EpisodeState::kTerminated, -1.0, {}); });
          return refused;
        }) == 3);
  CHECK(bytes_of(*memory) == index);
  CHECK(bytes_of(shard->region()) == rows);

  append(fresh);
  CHECK(bytes_of(*memory) != index);
}
