#pragma once

#include <cstdint>

namespace gear::base {

/// Remembers the process that an object was made in. A forked child has a copy of the object, but
/// none of its threads: it can neither join them nor destroy what they wait on.
class Origin {
 public:
  /// Throws OutOfMemory.
  Origin();

  /// Whether this process is a forked child of that one. One load.
  bool forked() const noexcept;

 private:
  uint64_t forks_;
};

}  // namespace gear::base
