#include "transport/failure.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "memory/shared/made_up_name.h"
#include "transport/collective.h"

namespace gear::transport {

Failure::Hearing::Hearing(std::shared_ptr<Failure> failure, Listener& listener)
    : failure_(std::move(failure)), listener_(&listener) {
  const std::lock_guard guard(failure_->mutex_);
  failure_->listeners_.push_back(listener_);
  if (failure_->told_) {
    listener_->hear(failure_->text_);
  }
}

Failure::Hearing::~Hearing() {
  const std::lock_guard guard(failure_->mutex_);
  std::erase(failure_->listeners_, listener_);
}

void Failure::tell(std::string_view text) noexcept {
  {
    const std::lock_guard guard(mutex_);
    if (told_) {
      return;
    }
    try {
      text_ = text;
    } catch (const std::bad_alloc&) {  // then without words
      text_ = "[transport]";
    }
    told_.store(true, std::memory_order_release);
    for (Listener* listener : listeners_) {
      listener->hear(text_);
    }
  }
  memory::remove_abandoned();
}

void Failure::finish_telling() noexcept {
  const std::lock_guard guard(mutex_);
  for (Listener* listener : listeners_) {
    listener->finish();
  }
}

std::string Failure::text() const {
  const std::lock_guard guard(mutex_);
  return text_;
}

void Failure::check() const {
  if (told_.load(std::memory_order_acquire)) {
    throw base::TransportError(text());
  }
}

void Failure::set_doing(std::string what) {
  const std::lock_guard guard(mutex_);
  doing_ = std::move(what);
}

void Failure::tell_interrupted(uint32_t rank, std::string_view call) noexcept {
  try {
    std::string doing;
    {
      const std::lock_guard guard(mutex_);
      doing = doing_;
    }
    const std::string_view in = doing.empty() ? call : doing;
    try {
      throw;
    } catch (const std::bad_alloc&) {
      tell(no_memory_text(rank, in));
    } catch (...) {
      tell(interrupted_text(rank, in));
    }
  } catch (const std::bad_alloc&) {
    tell(call);
  }
}

std::shared_ptr<Failure> or_own(std::shared_ptr<Failure> given) {
  return given ? std::move(given) : std::make_shared<Failure>();
}

}  // namespace gear::transport
