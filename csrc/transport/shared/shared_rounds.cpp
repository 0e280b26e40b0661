#include "transport/shared/shared_rounds.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <thread>

#include "base/errors.h"
#include "base/threads/interrupt.h"
#include "memory/shared/process_identity.h"
#include "transport/collective.h"
#include "transport/shared/shared_wait.h"

namespace gear::transport {
namespace {

using std::chrono::microseconds;

// How long a rank sleeps before it looks whether the others live, first and when it has waited for
// long: reading /proc takes some 20 us, twice a look, and all that wait do it.
constexpr microseconds kFirstLook{10'000};
constexpr microseconds kLookEvery = base::kInterruptEvery;
constexpr microseconds kLobbyPoll{200};

std::array<uint64_t, 16> own_cpus() {
  std::array<uint64_t, 16> words{};
  cpu_set_t mask;
  if (::sched_getaffinity(0, sizeof mask, &mask) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &mask)) {
        words[static_cast<size_t>(cpu) / 64] |= uint64_t{1} << (cpu % 64);
      }
    }
  }
  return words;
}

}  // namespace

SharedRounds::SharedRounds(std::shared_ptr<memory::Region> region, uint32_t rank, uint32_t size,
                           double timeout_s, std::shared_ptr<Failure> failure,
                           std::vector<uint32_t> known_as)
    : region_(std::move(region)),
      layout_(size),
      rank_(rank),
      size_(size),
      timeout_s_(timeout_s),
      pid_(::getpid()),
      failure_(std::move(failure)),
      known_as_(std::move(known_as)),
      hearing_(failure_, *this) {
  join();
  begin(Call::kStart);
  publish();
  for (uint32_t r = 0; r < size; ++r) {
    await(r);
  }
  crowded_ = find_crowded();
}

void SharedRounds::join() {
  if (rank_ == 0) {
    lobby().size = size_;
    lobby().ready.store(1, std::memory_order_release);
  }
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s_);
  while (lobby().ready.load(std::memory_order_acquire) == 0) {
    if (Clock::now() >= deadline) {
      throw base::TransportError(
          late_text(std::array<uint32_t, 1>{known(0)}, call_name(Call::kStart), timeout_s_));
    }
    failure_->check();
    check_interrupt();
    std::this_thread::sleep_for(kLobbyPoll);
  }
  if (lobby().size != size_ || region_->bytes() < layout_.bytes()) {
    throw base::InvalidArgument(base::cat("[transport] rank ", known(rank_), " joins a group of ",
                                          size_, " ranks, rank 0 opened it for ", lobby().size,
                                          ": give all ranks the same size"));
  }
  Member& own = member(rank_);
  auto state = static_cast<uint32_t>(MemberState::kAbsent);
  if (!own.state.compare_exchange_strong(state, static_cast<uint32_t>(MemberState::kTaken))) {
    throw base::InvalidArgument(
        base::cat("[transport] two processes join as rank ", known(rank_), " of ", size_,
                  ": give each a rank of its own, and each group a name of its own"));
  }
  own.process = memory::this_process();
  own.cpus = own_cpus();
  own.state.store(static_cast<uint32_t>(MemberState::kJoined), std::memory_order_release);
}

SharedRounds::~SharedRounds() {
  if (pid_ == ::getpid()) {
    member(rank_).state.store(static_cast<uint32_t>(MemberState::kLeft), std::memory_order_release);
  }
}

void SharedRounds::set_timeout_s(double timeout_s) {
  check_timeout(timeout_s);
  timeout_s_ = timeout_s;
}

Outbox& SharedRounds::begin(Call call) {
  throw_if_failed();
  call_ = call;
  deadline_.reset();
  ++round_;
  Outbox& own = layout_.outbox(region_->data(), rank_, round_);
  own.call = call;
  return own;
}

void SharedRounds::publish() { transport::publish(member(rank_), round_); }

Outbox& SharedRounds::await_round(uint32_t rank, uint32_t round) {
  waits_for_ = rank;
  Member& other = member(rank);
  Outbox& outbox = layout_.outbox(region_->data(), rank, round);
  if (has_published(other, round) || spin_for(other, round, crowded_)) {
    return outbox;
  }
  if (!deadline_) {
    deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(timeout_s_));
  }
  auto next_look = Clock::now() + base::kInterruptEvery;
  microseconds sleeps = kFirstLook;
  while (!has_published(other, round)) {
    const auto left = std::chrono::duration_cast<microseconds>(*deadline_ - Clock::now());
    sleep_for(other, round, std::clamp(left, microseconds(0), sleeps));
    sleeps = std::min(2 * sleeps, kLookEvery);
    if (has_published(other, round)) {
      break;
    }
    throw_if_failed();
    look_for(rank, round);
    const auto now = Clock::now();
    if (now >= next_look) {
      check_interrupt();
      next_look = now + base::kInterruptEvery;
    }
    if (now >= *deadline_) {
      std::vector<uint32_t> missing = awaited();
      if (!has_published(other, round)) {
        std::ranges::transform(missing, missing.begin(), [&](uint32_t r) { return known(r); });
        fail(late_text(missing, call_name(call_), timeout_s_));
      }
    }
  }
  return outbox;
}

std::vector<uint32_t> SharedRounds::awaited() const {
  std::vector<uint32_t> ranks;
  for (uint32_t r = 0; r < size_; ++r) {
    if (!has_published(member(r), round_)) {
      ranks.push_back(r);
    }
  }
  if (ranks.empty()) {
    ranks.push_back(waits_for_);
  }
  return ranks;
}

void SharedRounds::throw_if_failed() const {
  if (lobby().failed.load(std::memory_order_acquire) ==
      static_cast<uint32_t>(FailureState::kFailed)) {
    failure_->tell(lobby().failure.data());
    throw base::TransportError(lobby().failure.data());
  }
  failure_->check();
}

void SharedRounds::check_interrupt() const {
  try {
    base::check_interrupt();
  } catch (...) {
    failure_->tell_interrupted(known(rank_), call_name(call_));
    throw;
  }
}

void SharedRounds::fail(const std::string& text) {
  hear(text);
  throw_if_failed();  // with the words of another rank, where those came first
  failure_->tell(text);
  throw base::TransportError(text);
}

// Those that wait look for it every few milliseconds.
void SharedRounds::hear(const std::string& text) noexcept {
  auto state = static_cast<uint32_t>(FailureState::kNone);
  if (lobby().failed.compare_exchange_strong(state, static_cast<uint32_t>(FailureState::kWriting),
                                             std::memory_order_acquire)) {
    const size_t length = std::min(text.size(), lobby().failure.size() - 1);
    std::copy_n(text.data(), length, lobby().failure.data());
    lobby().failed.store(static_cast<uint32_t>(FailureState::kFailed), std::memory_order_release);
  }
}

// At the awaited rank and, in turn, at one other: that may be the dead one, hidden behind a slow
// one.
void SharedRounds::look_for(uint32_t awaited, uint32_t round) {
  look_at(awaited, awaited, round);
  looked_at_ = (looked_at_ + 1) % size_;
  look_at(looked_at_, awaited, round);
}

void SharedRounds::look_at(uint32_t rank, uint32_t awaited, uint32_t round) {
  const Member& other = member(rank);
  const auto state = static_cast<MemberState>(other.state.load(std::memory_order_acquire));
  const bool left = state == MemberState::kLeft;
  const bool ended =
      state == MemberState::kJoined && memory::liveness(other.process) == memory::Liveness::kEnded;
  // Nobody gets through a round before all have published it. So whoever has gone while the awaited
  // rank, looked at last, is not there yet, went in the middle of this call.
  if ((!left && !ended) || has_published(member(awaited), round)) {
    return;
  }
  const std::string who = base::cat("rank ", known(rank), " (pid ", other.process.pid, ")");
  fail(left ? left_text(who, call_name(call_)) : ended_text(who, known(rank_), call_name(call_)));
}

bool SharedRounds::find_crowded() const {
  std::array<uint64_t, 16> all{};
  for (uint32_t r = 0; r < size_; ++r) {
    for (size_t word = 0; word < all.size(); ++word) {
      all[word] |= member(r).cpus[word];
    }
  }
  int cpus = 0;
  for (const uint64_t word : all) {
    cpus += std::popcount(word);
  }
  return cpus < static_cast<int>(size_);
}

}  // namespace gear::transport
