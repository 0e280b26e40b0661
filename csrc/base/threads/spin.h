#pragma once

#include <chrono>

namespace gear::base {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Tells the processor that the thread looks at memory again and again: it leaves more to the
/// other thread of its core, and notices a change sooner.
inline void pause_cpu() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Looks at `ready` again and again for up to `limit`, in place of a sleep and a wake-up, which
/// take longer than some waits. True as soon as it holds; false after the limit.
template <class Ready>
bool spin_until(std::chrono::microseconds limit, const Ready& ready) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) {
        return true;
      }
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return ready();
}

}  // namespace gear::base
