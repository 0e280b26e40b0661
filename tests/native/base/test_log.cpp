#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "expect_message.h"
#include "scoped_variable.h"

using namespace gear::base;
using gear::testing::ScopedVariable;

TEST_CASE("messages up to the threshold reach the sink, others and later ones do not") {
  std::vector<std::string> seen;
  const auto sink = [&](Level, std::string_view message) { seen.emplace_back(message); };
  set_log_sink(sink, Level::kInfo);
  log(Level::kWarning, "a");
  log(Level::kInfo, "b");
  log(Level::kDebug, "c");
  set_log_sink(sink, Level::kOff);
  log(Level::kWarning, "d");
  set_log_sink(nullptr);
  log(Level::kWarning, "e");
  CHECK(seen == std::vector<std::string>{"a", "b"});
}

TEST_CASE("what a sink throws is dropped, and a sink may log or change the sink") {
  set_log_sink([](Level, std::string_view) { throw std::runtime_error("broken sink"); });
  log(Level::kWarning, "a");
  int calls = 0;
  set_log_sink([&](Level, std::string_view) {
    ++calls;
    set_log_sink(nullptr);
    log(Level::kWarning, "dropped");
  });
  log(Level::kWarning, "b");
  CHECK(calls == 1);
}

TEST_CASE("threads may log while the sink changes") {
  std::atomic<int> count{0};
  const auto sink = [&](Level, std::string_view) { count.fetch_add(1); };
  set_log_sink(sink);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([] {
      for (int k = 0; k < 200; ++k) {
        log(Level::kWarning, "x");
      }
    });
  }
  for (int k = 0; k < 100; ++k) {
    set_log_sink(sink);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  set_log_sink(nullptr);
  CHECK(count.load() == 600);
}

TEST_CASE("GEAR_LOG gives the threshold") {
  {
    const ScopedVariable unset("GEAR_LOG", "");
    CHECK(log_level_from_environment() == Level::kWarning);
  }
  {
    const ScopedVariable set("GEAR_LOG", "debug");
    CHECK(log_level_from_environment() == Level::kDebug);
  }
  const ScopedVariable set("GEAR_LOG", "verbose");
  gear::testing::expect_message<gear::base::InvalidArgument>(
      [] { log_level_from_environment(); }, "GEAR_LOG='verbose'", "off, warning, info or debug");
}
