#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "emu/flows.h"

namespace gear::emu {
namespace {

using std::chrono::milliseconds;
using Line = std::shared_ptr<Flows::Line>;

constexpr Links kNvlink = 1;
constexpr Links kNic = 2;

Time at(int ms) { return Time(milliseconds(1000 + ms)); }
Line line() { return std::make_shared<Flows::Line>(); }

double ms_of(const Flows::Pointer& flow) {
  REQUIRE(flow->has_ended);
  return std::chrono::duration<double, std::milli>(flow->end - at(0)).count();
}

TEST_CASE("alone, an operation takes what it takes alone, from its start on") {
  Flows flows;
  const auto flow = flows.add(line(), kNic, at(5), 0.020);
  CHECK(flows.advance(at(4)).empty());
  CHECK(flows.next() == at(5));
  CHECK(flows.advance(at(24)).empty());
  CHECK(flows.next() == at(25));
  CHECK(flows.advance(at(25)).size() == 1);
  CHECK(ms_of(flow) == doctest::Approx(25));
  CHECK(flows.next() == Time::max());
}

TEST_CASE("two groups on one link have half of it each, and the rest alone") {
  Flows flows;
  const auto one = flows.add(line(), kNic, at(0), 0.020);
  const auto other = flows.add(line(), kNic, at(10), 0.020);
  flows.advance(at(100));
  // 10 ms alone, then 10 ms of work at half speed; the other has 10 left then, alone.
  CHECK(ms_of(one) == doctest::Approx(30));
  CHECK(ms_of(other) == doctest::Approx(40));
}

TEST_CASE("operations over other links do not meet") {
  Flows flows;
  const auto one = flows.add(line(), kNic, at(0), 0.020);
  const auto other = flows.add(line(), kNvlink, at(0), 0.030);
  flows.advance(at(100));
  CHECK(ms_of(one) == doctest::Approx(20));
  CHECK(ms_of(other) == doctest::Approx(30));
}

TEST_CASE("the most crowded link counts") {
  Flows flows;
  const auto both = flows.add(line(), kNic | kNvlink, at(0), 0.010);
  const auto second = flows.add(line(), kNic, at(0), 0.010);
  const auto third = flows.add(line(), kNic, at(0), 0.010);
  const auto inside = flows.add(line(), kNvlink, at(0), 0.010);
  flows.advance(at(100));
  CHECK(ms_of(both) == doctest::Approx(30));
  CHECK(ms_of(second) == doctest::Approx(30));
  CHECK(ms_of(third) == doctest::Approx(30));
  CHECK(ms_of(inside) == doctest::Approx(20));
}

TEST_CASE("the operations of one group go one after the other") {
  Flows flows;
  const Line group = line();
  const auto first = flows.add(group, kNic, at(0), 0.010);
  const auto second = flows.add(group, kNic, at(2), 0.010);
  flows.advance(at(100));
  CHECK(ms_of(first) == doctest::Approx(10));
  CHECK(ms_of(second) == doctest::Approx(20));
}

TEST_CASE("what is told late has had its part, and the others keep theirs") {
  Flows flows;
  const auto one = flows.add(line(), kNic, at(0), 0.020);
  flows.advance(at(10));
  const auto late = flows.add(line(), kNic, at(4), 0.020);
  flows.advance(at(11));
  CHECK(!late->has_ended);
  flows.advance(at(100));
  // It had 6 ms at half speed until 10, which the other did not give up: that has 10 ms left, and
  // ends at 30; then 20 - 3 - 10 = 7 are left.
  CHECK(ms_of(one) == doctest::Approx(30));
  CHECK(ms_of(late) == doctest::Approx(37));
}

TEST_CASE("what was over before it was told has ended when it would have") {
  Flows flows;
  flows.advance(at(50));
  const auto flow = flows.add(line(), kNic, at(10), 0.020);
  CHECK(flows.advance(at(50)).size() == 1);
  CHECK(ms_of(flow) == doctest::Approx(30));
}

TEST_CASE("an operation of no time ends as it starts") {
  Flows flows;
  const auto flow = flows.add(line(), 0, at(3), 0);
  CHECK(flows.advance(at(2)).empty());
  CHECK(flows.advance(at(3)).size() == 1);
  CHECK(ms_of(flow) == doctest::Approx(3));
}

TEST_CASE("four groups of many operations keep a link busy from end to end") {
  Flows flows;
  std::vector<Flows::Pointer> all;
  for (int group = 0; group < 4; ++group) {
    const Line own = line();
    for (int i = 0; i < 25; ++i) {
      all.push_back(flows.add(own, kNic, at(0), 0.001 * (1 + (group + i) % 5)));
    }
  }
  size_t ended = 0;
  for (int ms = 0; ms <= 400; ms += 3) {
    ended += flows.advance(at(ms)).size();
  }
  CHECK(ended == all.size());
  double last = 0;
  for (const auto& flow : all) {
    last = std::max(last, ms_of(flow));
  }
  CHECK(last == doctest::Approx(300));  // as long as all of them one after the other
}

}  // namespace
}  // namespace gear::emu
