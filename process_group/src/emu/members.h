#pragma once

#include <span>
#include <vector>

namespace gear::emu {

/// Which members of a group are real processes, and whose copies the others are: the j-th emulated
/// one is a copy of the real one number j modulo how many those are. A member is a rank of the
/// group.
class Members {
 public:
  /// `real`: those that are, ascending, one at least; `own`: this process, one of them.
  Members(int size, std::vector<int> real, int own);

  int size() const noexcept { return static_cast<int>(mirrors_.size()); }
  int own() const noexcept { return real_[static_cast<size_t>(own_index_)]; }
  std::span<const int> real() const noexcept { return real_; }
  int num_real() const noexcept { return static_cast<int>(real_.size()); }
  bool is_real(int member) const { return real_[static_cast<size_t>(mirror(member))] == member; }

  /// An index is the number of a real member among them.
  int own_index() const noexcept { return own_index_; }
  /// Of the real one that `member` is a copy of, or is.
  int mirror(int member) const { return mirrors_[static_cast<size_t>(member)]; }
  /// How many members are copies of a real one, itself counted.
  int weight(int index) const { return weights_[static_cast<size_t>(index)]; }

 private:
  std::vector<int> real_;
  std::vector<int> mirrors_;  // by member
  std::vector<int> weights_;  // by index
  int own_index_;
};

}  // namespace gear::emu
