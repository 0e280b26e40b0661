#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace gear::base {

/// How much is reported. A message passes when its level is <= the threshold of the sink.
enum class Level : uint8_t {
  kOff,      ///< as a threshold: nothing passes; not a level of a message
  kWarning,  ///< the operator should know: something was reclaimed, or is slower than it could be
  kInfo,     ///< one line per large object made or ended
  kDebug,    ///< choices made inside
};

/// Receives messages "[area] text". Called on the thread that logs, possibly on several at once,
/// with no lock of the core held, so it may block (for Python's GIL, say). What it throws is
/// dropped.
using LogSink = std::function<void(Level, std::string_view message)>;

/// Where messages go from this call on; an empty sink (the state at start) drops them: the core
/// itself never prints. A message in flight on another thread may still reach the former sink.
void set_log_sink(LogSink sink, Level threshold = Level::kWarning);

/// The threshold that the operator asks for in GEAR_LOG, kWarning if unset. Throws InvalidArgument
/// for anything but off, warning, info, debug.
Level log_level_from_environment();

/// Hands the message to the sink. Never throws: destructors may log. Without a lock of the core:
/// the sink may be Python, which may call the core again.
void log(Level level, const std::string& message) noexcept;

}  // namespace gear::base
