#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "base/philox.h"
#include "collect/gather_cpu.h"

using gear::base::ThreadPool;
using gear::collect::gather_cpu;
using gear::collect::Plan;

namespace {

constexpr std::byte kGuard{0xa5};

std::vector<std::byte> random_bytes(uint64_t count) {
  std::vector<std::byte> bytes(count);
  for (uint64_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(gear::base::philox(5, 0, i).lo);
  }
  return bytes;
}

}  // namespace

TEST_CASE("gather: every length at every alignment moves its bytes and no other") {
  ThreadPool pool(1);
  const std::vector<std::byte> source = random_bytes(512);
  std::vector<std::byte> target(512);
  for (uint64_t bytes = 0; bytes <= 300; ++bytes) {
    for (uint64_t align = 0; align < 64; ++align) {
      // Source and target take every alignment, not always the same.
      const uint64_t from = align;
      const uint64_t to = 64 + (align * 7 + bytes) % 64;
      std::memset(target.data(), static_cast<int>(kGuard), target.size());
      std::vector<std::byte> wanted = target;
      std::memcpy(wanted.data() + to, source.data() + from, bytes);
      Plan plan;
      plan.reset(1);
      plan.copy(from, to, bytes);
      gather_cpu(source.data(), target.data(), plan, pool);
      CAPTURE(bytes);
      CAPTURE(align);
      REQUIRE(target == wanted);
    }
  }
}

TEST_CASE("gather: runs of zeros erase their bytes and no other") {
  ThreadPool pool(1);
  for (uint64_t bytes = 0; bytes <= 300; ++bytes) {
    std::vector<std::byte> target(512, kGuard);
    Plan plan;
    plan.reset(1);
    plan.zero(64 + bytes % 64, bytes);
    gather_cpu(nullptr, target.data(), plan, pool);
    for (uint64_t i = 0; i < target.size(); ++i) {
      const bool inside = i >= 64 + bytes % 64 && i < 64 + bytes % 64 + bytes;
      REQUIRE(target[i] == (inside ? std::byte{0} : kGuard));
    }
  }
}

TEST_CASE("gather: a plan counts what it copies and forgets when it is reset") {
  Plan plan;
  plan.reset(3);
  plan.copy(0, 0, 10);
  plan.zero(10, 5);
  plan.copy(20, 15, 7);
  CHECK(plan.runs().size() == 3);
  CHECK(plan.copied_bytes() == 17);
  plan.reset(1);
  CHECK(plan.runs().empty());
  CHECK(plan.copied_bytes() == 0);
}

TEST_CASE("gather: plans for the thread pool equal plans for one thread") {
  const std::vector<std::byte> source = random_bytes(1 << 16);
  constexpr uint64_t kBytes = 5 << 20;
  Plan plan;
  plan.reset(kBytes);
  uint64_t target = 1;  // a byte of guard between the runs
  for (uint64_t i = 0; target + 2000 < kBytes; ++i) {
    const gear::base::Draw128 draw = gear::base::philox(6, 0, i);
    const uint64_t bytes = draw.lo % (i % 3 == 0 ? 2000 : 200);
    if (draw.hi % 10 == 0) {
      plan.zero(target, bytes);
    } else {
      plan.copy((draw.hi >> 8) % (source.size() - bytes), target, bytes);
    }
    target += bytes + 1;
  }
  REQUIRE(plan.copied_bytes() > 4 << 20);
  std::vector<std::byte> alone(kBytes, kGuard);
  std::vector<std::byte> together(kBytes, kGuard);
  ThreadPool one(1);
  ThreadPool four(4);
  gather_cpu(source.data(), alone.data(), plan, one);
  gather_cpu(source.data(), together.data(), plan, four);
  CHECK(alone == together);
  CHECK(std::memcmp(alone.data(), &kGuard, 1) == 0);

  // One run of many megabytes, and many of none.
  plan.reset(1000);
  plan.copy(0, 3, source.size());
  for (int i = 1; i < 1000; ++i) plan.zero(0, 0);
  std::memset(together.data(), static_cast<int>(kGuard), together.size());
  gather_cpu(source.data(), together.data(), plan, four);
  CHECK(std::memcmp(together.data() + 3, source.data(), source.size()) == 0);
  CHECK(together[2] == kGuard);
  CHECK(together[3 + source.size()] == kGuard);
}
