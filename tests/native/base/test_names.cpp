// The names that users have for the values of an enumeration.
#include <doctest/doctest.h>

#include <cstdint>

#include "base/errors.h"
#include "base/names.h"
#include "expect_message.h"

using gear::base::InvalidArgument;
using gear::base::Names;
using gear::testing::expect_message;

namespace {

enum class Colour : uint8_t { kRed, kGreen, kBlue };

constexpr Names<Colour, 3> kColours{"[area] colour", {"red", "green", "blue"}};
constexpr Names<Colour, 3> kSome{"[area] colour", {"red", "green", "blue"}, 2};

}  // namespace

TEST_CASE("a word is read as the value that it is the name of") {
  for (const Colour colour : {Colour::kRed, Colour::kGreen, Colour::kBlue}) {
    CHECK(kColours.parse(kColours.name(colour)) == colour);
  }
  static_assert(kColours.name(Colour::kGreen) == "green");
}

TEST_CASE("another word is refused with those that are allowed") {
  for (const char* text : {"grey", "Red", "re", "red ", ""}) {
    expect_message<InvalidArgument>(
        [&] { kColours.parse(text); },
        gear::base::cat("[area] colour '", text, "': 'red', 'green' and 'blue' are allowed"));
  }
}

TEST_CASE("a word that is only told is refused, and not among those allowed") {
  CHECK(kSome.name(Colour::kBlue) == "blue");
  CHECK(kSome.parse("green") == Colour::kGreen);
  expect_message<InvalidArgument>([] { kSome.parse("blue"); },
                                  "[area] colour 'blue': 'red' and 'green' are allowed");
}
