#include "store/read_tickets.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/threads/blocking.h"
#include "base/threads/interrupt.h"

namespace gear::store {

void ReadTickets::begin(uint64_t ticket) {
  const std::lock_guard guard(mutex_);
  open_.push_back(ticket);
}

void ReadTickets::renew() { std::construct_at(&done_); }

void ReadTickets::give_back(uint64_t ticket) {
  open_.erase(std::find(open_.begin(), open_.end(), ticket));
}

void ReadTickets::end(uint64_t ticket) {
  {
    const std::lock_guard guard(mutex_);
    give_back(ticket);
  }
  done_.notify_all();
}

void ReadTickets::end_when(uint64_t ticket, std::shared_ptr<const ReadEnd> end) {
  std::vector<Ending> gone;  // what they free may wait for a GPU
  {
    const std::lock_guard guard(mutex_);
    poll_ended(gone);
    ending_.emplace_back(ticket, std::move(end));
  }
  done_.notify_all();
}

void ReadTickets::poll_ended(std::vector<Ending>& gone) {
  std::erase_if(ending_, [&](Ending& read) {
    if (!read.second->done()) {
      return false;
    }
    give_back(read.first);
    gone.push_back(std::move(read));
    return true;
  });
}

bool ReadTickets::passed(uint64_t clock) {
  std::vector<Ending> gone;
  const std::lock_guard guard(mutex_);
  if (!back(clock)) {
    poll_ended(gone);
  }
  return back(clock);
}

void ReadTickets::wait_passed(uint64_t clock) {
  constexpr std::chrono::microseconds kPoll{50};  // of reads that end on a device
  const base::Blocking waiting;
  const auto began = std::chrono::steady_clock::now();
  auto next_look = began + base::kInterruptEvery;
  std::vector<Ending> gone;
  std::unique_lock guard(mutex_);
  while (!back(clock)) {
    if (ending_.empty()) {
      done_.wait_for(guard, base::kInterruptEvery);
    } else {
      for (const auto& read : ending_) {
        read.second->hurry();
      }
      done_.wait_for(guard, kPoll);
      poll_ended(gone);
    }
    const auto now = std::chrono::steady_clock::now();
    if (now >= next_look) {
      const auto ending = ending_;
      guard.unlock();
      base::check_interrupt();
      for (const auto& read : ending) {
        read.second->waited(now - began);
      }
      guard.lock();
      next_look = now + base::kInterruptEvery;
    }
  }
}

}  // namespace gear::store
