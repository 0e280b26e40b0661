#include "emu_torch/held_message.h"

#include "emu/timing.h"

namespace gear::emu {

Flows::Pointer HeldMessage::held() {
  const std::lock_guard guard(held_mutex_);
  if (!flow_) {
    flow_ = hold_();
  }
  return flow_;
}

void HeldMessage::settle() {
  const std::lock_guard guard(held_mutex_);
  if (recordFunctionEndCallback_) {
    recordFunctionEndCallback_();
    recordFunctionEndCallback_ = nullptr;
  }
}

bool HeldMessage::isCompleted() {
  if (!under_->isCompleted() || !Holds::instance().has_ended(held())) {
    return false;
  }
  settle();
  return true;
}

int HeldMessage::sourceRank() const {
  const int index = under_->sourceRank();
  return index < 0 ? index : real_[static_cast<size_t>(index)];
}

bool HeldMessage::wait(std::chrono::milliseconds timeout) {
  const Time begin = Holds::instance().now();
  under_->wait(timeout);
  Holds::instance().wait(held(), Time::max());
  settle();
  Timing::waited("send", begin, Holds::instance().now(), 0);
  return true;
}

}  // namespace gear::emu
