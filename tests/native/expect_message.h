#pragma once

#include <doctest/doctest.h>

#include <string>
#include <string_view>

namespace gear::testing {

/// Checks that `action` throws an `Exception` whose message contains every one of `parts`.
template <class Exception, class Action, class... Parts>
void expect_message(const Action& action, const Parts&... parts) {
  try {
    action();
  } catch (const Exception& error) {
    const std::string message = error.what();
    INFO(message);
    const auto contains = [&](std::string_view part) {
      INFO(std::string(part));
      CHECK(message.find(part) != std::string::npos);
    };
    (contains(parts), ...);
    return;
  }
  FAIL("no exception was thrown");
}

}  // namespace gear::testing
