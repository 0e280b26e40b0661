#include "base/log.h"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "base/environment.h"
#include "base/errors.h"

namespace gear::base {
namespace {

struct State {
  std::mutex mutex;
  std::shared_ptr<const LogSink> sink;
  std::atomic<Level> threshold{Level::kOff};
};

// Never destroyed: static destructors and leaked threads may log.
State& state() {
  static State* const instance = std::make_unique<State>().release();
  return *instance;
}

constexpr std::array<std::string_view, 4> kNames = {"off", "warning", "info", "debug"};

}  // namespace

void set_log_sink(LogSink sink, Level threshold) {
  std::shared_ptr<const LogSink> shared;
  if (sink) {
    shared = std::make_shared<const LogSink>(std::move(sink));
  } else {
    threshold = Level::kOff;
  }
  // Swapped: `shared` outlives the lock, so the former sink is destroyed without it.
  const std::lock_guard lock(state().mutex);
  state().sink.swap(shared);
  state().threshold.store(threshold, std::memory_order_relaxed);
}

Level log_level_from_environment() {
  const std::optional<std::string> text = env_string("GEAR_LOG");
  if (!text) {
    return Level::kWarning;
  }
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == *text) {
      return static_cast<Level>(i);
    }
  }
  throw InvalidArgument(
      cat("[environment] GEAR_LOG='", *text, "' is not accepted: set off, warning, info or debug"));
}

void log(Level level, const std::string& message) noexcept {
  if (level > state().threshold.load(std::memory_order_relaxed)) {
    return;
  }
  try {
    std::shared_ptr<const LogSink> sink;
    {
      const std::lock_guard lock(state().mutex);
      sink = state().sink;
    }
    if (sink) {
      (*sink)(level, message);
    }
  } catch (...) {
    // A sink that fails must not fail the operation that reports to it.
  }
}

}  // namespace gear::base
