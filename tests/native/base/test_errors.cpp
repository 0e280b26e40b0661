#include <doctest/doctest.h>

#include <cerrno>

#include "base/errors.h"
#include "expect_message.h"

using gear::testing::expect_message;

TEST_CASE("cat joins values of any type") {
  CHECK(gear::base::cat("a", 1, ' ', 2.5, "z") == "a1 2.5z");
}

TEST_CASE("every exception of the core is an Error with its message") {
  expect_message<gear::base::Error>([] { throw gear::base::OutOfMemory("[memory] full"); },
                                    "[memory] full");
  expect_message<gear::base::Error>([] { throw gear::base::CorruptData("[format] torn"); },
                                    "[format] torn");
  const gear::base::IoError error("[file] no", ENOSPC);
  CHECK(error.code() == ENOSPC);
  CHECK(gear::base::errno_text(ENOSPC) == "No space left on device");
}

TEST_CASE("GEAR_CHECK throws a logic_error with place and expression") {
  CHECK_NOTHROW([] { GEAR_CHECK(1 + 1 == 2); }());
  expect_message<std::logic_error>([] { GEAR_CHECK(1 + 1 == 3); }, "[internal] ",
                                   "test_errors.cpp:", "1 + 1 == 3");
}
