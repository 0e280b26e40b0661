#include "emu/history.h"

#include <utility>

namespace gear::emu {

History& History::instance() {
  static History& own = *new History;
  return own;
}

void History::add(Operation operation) {
  if (!has_begun_) {
    return;
  }
  const std::lock_guard guard(mutex_);
  if (operations_.size() < kMost) {
    operations_.push_back(std::move(operation));
  } else {
    ++left_out_;
  }
}

void History::add(Wait wait) {
  if (!has_begun_) {
    return;
  }
  const std::lock_guard guard(mutex_);
  if (waits_.size() < kMost) {
    waits_.push_back(wait);
  } else {
    ++left_out_;
  }
}

std::vector<History::Operation> History::operations() const {
  const std::lock_guard guard(mutex_);
  return operations_;
}

std::vector<History::Wait> History::waits() const {
  const std::lock_guard guard(mutex_);
  return waits_;
}

uint64_t History::left_out() const {
  const std::lock_guard guard(mutex_);
  return left_out_;
}

}  // namespace gear::emu
