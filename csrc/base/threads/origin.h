#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace gear::base {

/// Remembers the process that an object was made in. A forked child has a copy of the object, but
/// none of its threads: it can neither join them nor destroy what they wait on.
class Origin {
 public:
  /// Throws OutOfMemory.
  Origin();

  /// Whether this process is a forked child of that one. One load.
  bool forked() const noexcept;

  /// "was made by process 12, and this is process 34, forked from it": the middle of a refusal.
  std::string text() const;

 private:
  uint64_t forks_;
  int64_t pid_;
};

/// As std::make_shared; but a forked child never destroys its copy, which it leaves as it is until
/// the child ends: the copy's destructor may wait for threads, or undo what is the parent's (memory
/// locked for a GPU, registered for a network card).
template <class T, class... Arguments>
std::shared_ptr<T> make_shared_here(Arguments&&... arguments) {
  auto made = std::make_unique<T>(std::forward<Arguments>(arguments)...);
  return std::shared_ptr<T>(made.release(), [origin = Origin()](T* of_this_process) {
    if (!origin.forked()) {
      std::default_delete<T>()(of_this_process);
    }
  });
}

}  // namespace gear::base
