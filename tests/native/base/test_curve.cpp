#include <doctest/doctest.h>

#include "base/numbers/curve.h"

namespace gear::base {
namespace {

constexpr int kGiven = 1;

TEST_CASE("a curve is read as gear.emu.Curve is") {
  const Curve curve({100, 200, 400}, {1.0, 2.0, 6.0}, {Curve::kMeasured, Curve::kMeasured, kGiven});
  const auto check = [&](uint64_t bytes, double seconds, int basis) {
    const Curve::Reading reading = curve.at(bytes);
    CHECK(reading.seconds == doctest::Approx(seconds));
    CHECK(reading.basis == basis);
  };
  check(0, 1.0, Curve::kMeasured);  // as the first below it
  check(100, 1.0, Curve::kMeasured);
  check(150, 1.5, Curve::kInterpolated);
  check(300, 4.0, kGiven);  // the less sure of both
  check(400, 6.0, kGiven);
  check(600, 10.0, Curve::kExtrapolated);  // as steep as before
}

TEST_CASE("one point beyond which all is proportional, and no curve") {
  const Curve curve({100}, {1.0}, {Curve::kMeasured});
  CHECK(curve.at(300).seconds == doctest::Approx(3.0));
  CHECK(curve.at(300).basis == Curve::kExtrapolated);
  CHECK(Curve().at(7).seconds == 0);
  CHECK(Curve().at(7).basis == -1);
}

}  // namespace
}  // namespace gear::base
