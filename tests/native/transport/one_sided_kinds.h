#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "transport/fabric.h"
#include "transport/opened_ranks.h"
#if GEAR_VERBS
#include "transport/verbs/verbs_ranks.h"
#endif

namespace gear::testing {

/// Whether these tests are of a device, whose machine has little time for them, and not of a fake.
inline bool on_a_device() {
#if GEAR_VERBS
  return verbs_are_real();
#else
  return false;
#endif
}

/// A transport that reads rows one-sided.
struct OneSidedKind {
  struct Options {
    uint64_t chunk_bytes = uint64_t{1} << 30;
    uint32_t queue_pairs = 4;  ///< where it has them
  };

  const char* name;
  Ranks (*make)(uint32_t size, double timeout_s, const Options& options);
  std::vector<uint32_t> queue_pairs;  ///< worth a try
  bool by_kernel;                     ///< bytes go through it
  uint64_t rounds;                    ///< of random tests
};

/// TSan sees no order between a read of memory by the kernel and what its reader causes later.
inline bool seen_by_sanitizer(const OneSidedKind& kind) {
#ifdef __SANITIZE_THREAD__
  return !kind.by_kernel;
#else
  static_cast<void>(kind);
  return true;
#endif
}

inline const std::vector<OneSidedKind> kOneSidedKinds = [] {
  std::vector<OneSidedKind> kinds;
#if GEAR_VERBS
  kinds.push_back({"verbs",
                   [](uint32_t size, double timeout_s, const OneSidedKind::Options& options) {
                     return make_verbs_ranks(size, timeout_s,
                                             {options.chunk_bytes, options.queue_pairs, nullptr});
                   },
                   {1, 3},
                   false,
                   on_a_device() ? 8U / num_machines : 40U});
#endif
#if GEAR_FABRIC          // of this machine's libfabric: over tcp, where it has no better network
  if (!on_a_device()) {  // over soft-RoCE without KVM it takes minutes
    kinds.push_back(
        {"fabric",
         [](uint32_t size, double timeout_s, const OneSidedKind::Options& options) {
           return open_ranks(size, timeout_s, [&](std::shared_ptr<transport::Transport> messages) {
             return transport::make_fabric(std::move(messages), {options.chunk_bytes, nullptr});
           });
         },
         {1},
         true,
         4});
  }
#endif
  return kinds;
}();

}  // namespace gear::testing
