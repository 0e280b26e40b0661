#pragma once

namespace gear::base {

/// Loads a byte, so that its cache line is on its way when it is needed. For bursts of more lines
/// than a core fetches at once (24 on Zen 4): a prefetch hint beyond those is dropped, a load waits
/// for its turn.
[[gnu::always_inline]] inline void touch(const void* place) {
  static_cast<void>(*static_cast<const volatile unsigned char*>(place));
}

}  // namespace gear::base
