#include <doctest/doctest.h>

#include "base/environment.h"
#include "base/errors.h"
#include "expect_message.h"
#include "scoped_variable.h"

using namespace gear::base;
using gear::testing::expect_message;
using gear::testing::ScopedVariable;

TEST_CASE("every row of the environment table is complete") {
  CHECK(!environment_table().empty());
  for (const EnvVar& var : environment_table()) {
    CHECK(var.name.starts_with("GEAR_"));
    CHECK(!var.default_value.empty());
    CHECK(!var.meaning.empty());
  }
}

TEST_CASE("what is measured once is kept where the operator, or else the system, says") {
  const ScopedVariable home("HOME", "/home/ada");
  const ScopedVariable caches("XDG_CACHE_HOME", "");
  const ScopedVariable own("GEAR_CACHE", "");
  CHECK(cache_folder() == "/home/ada/.cache/gear");
  const ScopedVariable elsewhere("XDG_CACHE_HOME", "/scratch/caches");
  CHECK(cache_folder() == "/scratch/caches/gear");
  const ScopedVariable here("GEAR_CACHE", "/tmp/gear");
  CHECK(cache_folder() == "/tmp/gear");
}

TEST_CASE("an unset or empty variable has no value") {
  const ScopedVariable empty("GEAR_NUM_THREADS", "");
  CHECK(!env_string("GEAR_NUM_THREADS"));
  CHECK(!env_int("GEAR_NUM_THREADS"));
}

TEST_CASE("env_int accepts integers inside the range") {
  const ScopedVariable set("GEAR_NUM_THREADS", "12");
  CHECK(env_int("GEAR_NUM_THREADS") == 12);
  CHECK(env_int("GEAR_NUM_THREADS", 12, 12) == 12);
  CHECK(env_string("GEAR_NUM_THREADS") == "12");
}

TEST_CASE("env_int refuses everything else, naming variable, value and range") {
  for (const char* value : {"four", "4x", " 4", "4.0", "0", "65", "-3", "99999999999999999999"}) {
    const ScopedVariable set("GEAR_NUM_THREADS", value);
    expect_message<gear::base::InvalidArgument>([] { env_int("GEAR_NUM_THREADS", 1, 64); },
                                                gear::base::cat("GEAR_NUM_THREADS='", value, "'"),
                                                "from 1 to 64");
  }
}

TEST_CASE("reading a variable that is not in the table is a defect") {
  CHECK_THROWS_AS(env_string("GEAR_SECRET"), std::logic_error);
}
