#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "transport/verbs/verbs_library.h"

namespace gear::testing {

/// An RDMA device in this process's memory: every read is checked against what is registered and
/// connected, as a device does, and copied. `settings` are those of what is made from then on.
class FakeVerbs {
 public:
  struct Settings {
    int num_devices = 1;
    bool active = true;
    bool has_gids = true;
    uint64_t most_registered = UINT64_MAX;  ///< bytes; then ENOMEM
    uint64_t most_bytes_of_region = UINT64_MAX;
    uint32_t most_bytes_of_message = 1U << 31;
    int depth = 1024;
    int completions = 32767;
    bool answers = true;  ///< false: reads do not end until it is true
  };

  /// What has been seen.
  struct Counts {
    uint64_t reads = 0;
    uint64_t chains = 0;
    uint64_t longest_chain = 0;
    uint64_t regions = 0;    ///< there are
    uint64_t pairs = 0;      ///< there are
    uint64_t contexts = 0;   ///< there are
    int service_level = -1;  ///< of the pair that was connected last
    int traffic_class = -1;  ///< likewise
    std::string wrong;       ///< the first use that no device allows
  };

  static const transport::verbs::VerbsLibrary& library();
  /// Back to the first settings; what is there of a test before is a failure.
  static void reset();
  static Settings settings;
  static Counts counts();
  /// Of the calling thread: which of its device's addresses it is at. 0: IPv4, 1: IPv6.
  static thread_local int family;
};

}  // namespace gear::testing
