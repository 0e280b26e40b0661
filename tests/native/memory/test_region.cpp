// The contract of Region, held against every tier: a further tier is one more entry of kKinds.

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/gpu/devices.h"
#include "expect_message.h"
#include "memory/region.h"
#include "memory/shared/shared_region.h"
#include "memory/tiers.h"

using namespace gear::memory;
using gear::testing::expect_message;

namespace {

struct Kind {
  Tier tier;
  bool named;
};

constexpr std::array<Kind, 5> kKinds = {{{Tier::kHost, false},
                                         {Tier::kShared, true},
                                         {Tier::kPinned, false},
                                         {Tier::kPinned, true},
                                         {Tier::kDevice, false}}};

RegionOptions options_for(const Kind& kind) {
  if (kind.named) {
    return {gear::base::cat("test-contract-", ::getpid()), "0123456789abcdef"};
  }
  return {};
}

// Those that this machine has.
template <class Check>
void for_each_kind(const Check& check) {
  for (const Kind& kind : kKinds) {
    if ((kind.tier == Tier::kPinned || kind.tier == Tier::kDevice) &&
        gear::base::device_count() == 0) {
      continue;
    }
    CAPTURE(std::string(kTiers.name(kind.tier)));
    CAPTURE(kind.named);
    check(kind.tier, options_for(kind));
  }
}

std::vector<std::byte> read_all(const Region& region) {
  std::vector<std::byte> bytes(region.bytes());
  region.read(0, bytes);
  return bytes;
}

}  // namespace

TEST_CASE("region contract: bytes are zero, writable to the last, and aligned") {
  for_each_kind([](Tier tier, const RegionOptions& options) {
    for (const uint64_t bytes : {uint64_t{1}, uint64_t{4096}, uint64_t{4097}, uint64_t{9} << 20}) {
      const std::unique_ptr<Region> region = make_region(tier, bytes, options);
      CHECK(region->bytes() == bytes);
      CHECK(region->tier() == tier);
      CHECK(region->name() == options.name);
      const uint64_t alignment = tier == Tier::kDevice ? 256 : 4096;
      CHECK(reinterpret_cast<uintptr_t>(region->data()) % alignment == 0);
      CHECK(read_all(*region) == std::vector<std::byte>(bytes));
      const std::vector<std::byte> pattern(bytes, std::byte{0xA5});
      region->write(0, pattern);
      CHECK(read_all(*region) == pattern);
      if (region->host_accessible()) {
        CHECK(region->data()[bytes - 1] == std::byte{0xA5});
      }
    }
  });
}

TEST_CASE("region contract: reads and writes hit the range that they name, and no other") {
  for_each_kind([](Tier tier, const RegionOptions& options) {
    const std::unique_ptr<Region> region = make_region(tier, 1000, options);
    std::vector<std::byte> expected(1000);
    for (const uint64_t offset : {uint64_t{0}, uint64_t{13}, uint64_t{997}}) {
      const std::array<std::byte, 3> three = {std::byte{1}, std::byte{2}, std::byte{3}};
      region->write(offset, three);
      std::ranges::copy(three, expected.begin() + static_cast<std::ptrdiff_t>(offset));
    }
    region->write(1000, {});
    CHECK(read_all(*region) == expected);
    std::array<std::byte, 2> two{};
    region->read(998, two);
    CHECK(two == std::array<std::byte, 2>{std::byte{2}, std::byte{3}});
    CHECK_THROWS_AS(region->read(999, two), std::logic_error);
    CHECK_THROWS_AS(region->write(~uint64_t{0}, two), std::logic_error);
  });
}

TEST_CASE("region contract: kernels reach what the tier says they do") {
  for_each_kind([](Tier tier, const RegionOptions& options) {
    const std::unique_ptr<Region> region = make_region(tier, 100, options);
    CHECK(region->host_accessible() == (tier != Tier::kDevice));
    CHECK((region->device_data() != nullptr) == (tier == Tier::kPinned || tier == Tier::kDevice));
    CHECK((region->device() >= 0) == (tier == Tier::kDevice));
  });
}

TEST_CASE("region contract: memory is given back, so the next region starts from zero") {
  for_each_kind([](Tier tier, const RegionOptions& options) {
    for (int round = 0; round < 3; ++round) {
      const std::unique_ptr<Region> region = make_region(tier, 100, options);
      const std::array<std::byte, 1> one = {std::byte{1}};
      CHECK(read_all(*region)[99] == std::byte{0});
      region->write(99, one);
    }
  });
}

TEST_CASE("region contract: nothing and too much are refused in words") {
  for_each_kind([](Tier tier, const RegionOptions& options) {
    expect_message<gear::base::InvalidArgument>([&] { make_region(tier, 0, options); }, "0 bytes");
    for (const uint64_t bytes : {uint64_t{1} << 60, ~uint64_t{0}}) {
      expect_message<gear::base::OutOfMemory>(
          [&] { make_region(tier, bytes, options); }, "[memory]",
          gear::base::cat("(", bytes, " bytes)"), gear::base::cat("tier '", kTiers.name(tier), "'"),
          tier == Tier::kDevice ? "free" : "available", "lower the capacity");
    }
  });
}

TEST_CASE("large host regions lie on huge-page boundaries") {
  for (const uint64_t mebibytes : {4, 5, 64}) {
    const auto region = make_region(Tier::kHost, mebibytes << 20);
    CHECK(reinterpret_cast<uintptr_t>(region->data()) % (2 << 20) == 0);
  }
}

TEST_CASE("a name fits the shared and the pinned tier alone") {
  expect_message<gear::base::InvalidArgument>([] { make_region(Tier::kHost, 1, {"x", ""}); },
                                              "name='x'", "tier='host'", "tier='shared'");
  expect_message<gear::base::InvalidArgument>(
      [] { make_region(Tier::kShared, 1, {"", "0123456789abcdef"}); }, "name", "1 to 128");
}

TEST_CASE("tiers have names") {
  for (const Kind& kind : kKinds) {
    CHECK(kTiers.parse(kTiers.name(kind.tier)) == kind.tier);
    CHECK(parse_tier_choice(kTiers.name(kind.tier)).tier == kind.tier);
  }
  CHECK(kTiers.name(Tier::kHost) == "host");
  expect_message<gear::base::InvalidArgument>([] { kTiers.parse("tape"); }, "'tape'",
                                              "'host', 'shared', 'pinned' and 'device'");
}

TEST_CASE("a tier of users may name a GPU") {
  CHECK(parse_tier_choice("device").device == -1);
  CHECK(parse_tier_choice("device:3").tier == Tier::kDevice);
  CHECK(parse_tier_choice("device:3").device == 3);
  for (const char* text : {"device:", "device:x", "device:-1", "device:1 ", "device:99999999999"}) {
    expect_message<gear::base::InvalidArgument>([&] { parse_tier_choice(text); }, text,
                                                "'device:0'");
  }
  expect_message<gear::base::InvalidArgument>([] { parse_tier_choice("host:1"); }, "'host:1'",
                                              "are allowed");
}

TEST_CASE("where there is no GPU the tiers that need one say so") {
  if (gear::base::device_count() > 0) {
    return;
  }
  for (const Tier tier : {Tier::kPinned, Tier::kDevice}) {
#if defined(GEAR_CUDA)
    expect_message<gear::base::CudaError>([&] { make_region(tier, 4096); }, "[cuda]",
                                          "cudaGetDeviceCount", "tier='host'");
#else
    expect_message<gear::base::InvalidArgument>(
        [&] { make_region(tier, 4096); }, "[memory]", gear::base::cat("'", kTiers.name(tier), "'"),
        "without CUDA", "GEAR_WITH_CUDA=OFF", "tier='host'");
#endif
  }
}

TEST_CASE("a shared region that is there can be page-locked") {
  if (gear::base::device_count() == 0) {
    return;
  }
  const std::string name = gear::base::cat("test-pin-", ::getpid());
  const auto owner = make_region(Tier::kShared, 5000, {name, "0123456789abcdef"});
  const auto pinned = pin_region(SharedRegion::attach(name, "0123456789abcdef"));
  CHECK(pinned->tier() == Tier::kPinned);
  CHECK(pinned->name() == name);
  CHECK(pinned->bytes() == 5000);
  owner->data()[4999] = std::byte{7};
  CHECK(read_all(*pinned)[4999] == std::byte{7});
  expect_message<gear::base::InvalidArgument>([] { pin_region(make_region(Tier::kPinned, 1)); },
                                              "'pinned'", "'host' or 'shared'");
}

TEST_CASE("a GPU that is not there is refused with those that are") {
  if (gear::base::device_count() == 0) {
    return;
  }
  expect_message<gear::base::CudaError>([] { make_region(Tier::kDevice, 1, {"", "", 99}); },
                                        "cudaSetDevice", "99", "GPU 0 (");
}
