#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <optional>
#include <string>

#include "base/errors.h"
#include "base/log.h"
#include "bindings/bindings.h"
#include "store/shard.h"

namespace gear::bindings {

/// Calls `write(timeout_s)` until it returns true: everything is stored. Without a rate limit that
/// is one call, without the GIL if it is about many bytes; else it is called for a slice of the
/// wait at a time, as wait_interruptibly() says. `part()` tells how much is stored.
///
/// Throws InvalidArgument when `closing` becomes true meanwhile, TimeoutError behind `timeout_s`
/// (none: never).
template <class Write, class Part>
void write_within_limit(store::Shard& shard, uint64_t bytes, std::optional<double> timeout_s,
                        const std::atomic<bool>& closing, Write write, Part part) {
  constexpr uint64_t kHoldGilBytes = 1 << 16;
  if (!shard.rate_limiter().active()) {
    std::optional<py::gil_scoped_release> release;
    if (bytes >= kHoldGilBytes) {
      release.emplace();
    }
    write(std::nullopt);
    return;
  }
  const auto waits_for = [&shard] {
    std::string counts;
    {
      const auto lock = shard.lock();
      counts = shard.rate_limiter().inserting_waits_for();
    }
    return counts +
           "; call next() of a loader, in another thread if this one only appends, or give the "
           "buffer another rate_limit";
  };
  bool all = false;
  wait_interruptibly(
      timeout_s, [&](double slice) { return (all = write(slice)) || closing; },
      [&] {
        base::log(base::Level::kWarning, base::cat("[writer] a writer has waited ", kLongWaitS,
                                                   " s for the rate limit: ", waits_for()));
      });
  if (all) {
    return;
  }
  if (closing) {
    throw base::InvalidArgument(
        base::cat("[writer] this writer was closed while it waited for the rate limit: ", part()));
  }
  PyErr_SetString(PyExc_TimeoutError,
                  base::cat("[writer] the rate limit did not let all steps in within ", *timeout_s,
                            " s (", part(), "): ", waits_for())
                      .c_str());
  throw py::error_already_set();
}

}  // namespace gear::bindings
