#pragma once

#include <cstddef>
#include <cstdint>

namespace gear::process_group {

/// Memory of the host that stands for memory of a GPU while an operation runs. It is filled and
/// emptied piece by piece, beside the messages. The engine's lock is held around all calls.
class Staging {
 public:
  Staging() = default;
  virtual ~Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Whether these bytes are those of the GPU by now; so are those that stand for none.
  virtual bool has_come(const std::byte* bytes, uint64_t length) = 0;
  virtual bool have_all_come() = 0;
  /// These bytes are not written again, and go to the GPU if they stand for some of it.
  virtual void leave(const std::byte* bytes, uint64_t length) = 0;
};

}  // namespace gear::process_group
