#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "base/errors.h"
#include "child_process.h"
#include "expect_message.h"
#include "memory/peer_region.h"
#include "memory/shared/shared_region.h"

using namespace gear::memory;
using gear::testing::expect_message;
using gear::testing::in_child;

namespace {

constexpr std::string_view kHash = "0123456789abcdef";

std::string name_of(const char* subject) {
  return gear::base::cat("peer-", subject, "-", ::getpid());
}

}  // namespace

TEST_CASE("another process maps a named region by its address") {
  const auto region = SharedRegion::create(name_of("named"), 8192, kHash);
  std::memset(region->data(), 7, 8192);
  const RegionAddress address = address_of(*region, kHash);
  CHECK(mappable(address));
  CHECK(address.bytes == 8192);
  CHECK(address.owner == this_process());
  CHECK(in_child([&] {
          const auto peer = open_peer_region(address, -1);
          const bool same =
              peer->bytes() == 8192 && std::memcmp(peer->data(), region->data(), 8192) == 0;
          region->data()[5] = std::byte{42};
          return same && peer->data()[5] == std::byte{42} && peer->tier() == Tier::kShared ? 0 : 1;
        }) == 0);
}

TEST_CASE(
    "a stray write into a peer's region ends the process that makes it, and changes nothing") {
  const auto region = SharedRegion::create(name_of("stray"), 8192, kHash);
  const RegionAddress address = address_of(*region, kHash);
  CHECK(in_child([&] {
          std::signal(SIGSEGV, [](int) { ::_exit(77); });  // a sanitizer's own would report it
          open_peer_region(address, -1)->data()[5] = std::byte{42};
          return 0;
        }) == 77);
  CHECK(region->data()[5] == std::byte{});
}

TEST_CASE("a mapping outlives its owner, and closes without a word") {
  auto region = SharedRegion::create(name_of("outlived"), 4096, kHash);
  region->data()[9] = std::byte{3};
  const auto peer = open_peer_region(address_of(*region, kHash), -1);
  region.reset();
  CHECK(peer->data()[9] == std::byte{3});
}

TEST_CASE("memory without a name cannot be mapped") {
  const auto region = make_region(Tier::kHost, 4096);
  const RegionAddress address = address_of(*region, kHash);
  CHECK(!mappable(address));
  expect_message<gear::base::InvalidArgument>(
      [&] { open_peer_region(address, -1); }, "[memory]", "tier 'host'",
      gear::base::cat("process ", ::getpid()), "give it a name");
}

TEST_CASE("an address of another schema or size is refused") {
  const auto region = SharedRegion::create(name_of("other"), 4096, kHash);
  RegionAddress address = address_of(*region, kHash);
  address.bytes = 8192;
  expect_message<gear::base::InvalidArgument>([&] { open_peer_region(address, -1); }, "4096 bytes",
                                              "8192");
  address = address_of(*region, "fedcba9876543210");
  expect_message<gear::base::InvalidArgument>([&] { open_peer_region(address, -1); }, "schema");
}
