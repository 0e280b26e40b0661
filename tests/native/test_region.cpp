// The contract of Region, held against every tier: a further tier is one more line of kTiers.

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>

#include "base/errors.h"
#include "expect_message.h"
#include "memory/region.h"

using namespace gear::memory;
using gear::testing::expect_message;

namespace {

constexpr std::array<Tier, 2> kTiers = {Tier::kHost, Tier::kShared};

RegionOptions options_for(Tier tier) {
  if (tier == Tier::kShared) {
    return {gear::cat("test-contract-", ::getpid()), "0123456789abcdef"};
  }
  return {};
}

template <class Check>
void for_each_tier(const Check& check) {
  for (const Tier tier : kTiers) {
    CAPTURE(std::string(tier_name(tier)));
    check(tier, options_for(tier));
  }
}

}  // namespace

TEST_CASE("region contract: bytes are zero, writable to the last, and aligned") {
  for_each_tier([](Tier tier, const RegionOptions& options) {
    for (const uint64_t bytes : {uint64_t{1}, uint64_t{4096}, uint64_t{4097}, uint64_t{9} << 20}) {
      const std::unique_ptr<Region> region = make_region(tier, bytes, options);
      CHECK(region->bytes() == bytes);
      CHECK(region->tier() == tier);
      CHECK(region->name() == options.name);
      CHECK(reinterpret_cast<uintptr_t>(region->data()) % 4096 == 0);
      std::byte any{0};
      for (uint64_t i = 0; i < bytes; ++i) {
        any |= region->data()[i];
      }
      CHECK(any == std::byte{0});
      std::memset(region->data(), 0xA5, bytes);
      CHECK(region->data()[bytes - 1] == std::byte{0xA5});
    }
  });
}

TEST_CASE("region contract: memory is given back, so the next region starts from zero") {
  for_each_tier([](Tier tier, const RegionOptions& options) {
    for (int round = 0; round < 3; ++round) {
      const std::unique_ptr<Region> region = make_region(tier, 100, options);
      CHECK(region->data()[99] == std::byte{0});
      region->data()[99] = std::byte{1};
    }
  });
}

TEST_CASE("region contract: nothing and too much are refused in words") {
  for_each_tier([](Tier tier, const RegionOptions& options) {
    expect_message<gear::InvalidArgument>([&] { make_region(tier, 0, options); }, "0 bytes");
    for (const uint64_t bytes : {uint64_t{1} << 60, ~uint64_t{0}}) {
      expect_message<gear::OutOfMemory>(
          [&] { make_region(tier, bytes, options); }, "[memory]", gear::cat("(", bytes, " bytes)"),
          gear::cat("tier '", tier_name(tier), "'"), "available", "lower the capacity");
    }
  });
}

TEST_CASE("large host regions lie on huge-page boundaries") {
  for (const uint64_t mebibytes : {4, 5, 64}) {
    const auto region = make_region(Tier::kHost, mebibytes << 20);
    CHECK(reinterpret_cast<uintptr_t>(region->data()) % (2 << 20) == 0);
  }
}

TEST_CASE("a name fits the shared tier alone") {
  expect_message<gear::InvalidArgument>([] { make_region(Tier::kHost, 1, {"x", ""}); }, "name='x'",
                                        "tier='host'", "tier='shared'");
  expect_message<gear::InvalidArgument>(
      [] { make_region(Tier::kShared, 1, {"", "0123456789abcdef"}); }, "name", "1 to 128");
}

TEST_CASE("tiers have names") {
  CHECK(tier_name(Tier::kHost) == "host");
  for (const Tier tier : kTiers) {
    CHECK(parse_tier(tier_name(tier)) == tier);
  }
  expect_message<gear::InvalidArgument>([] { parse_tier("tape"); }, "'tape'", "host, shared");
}
