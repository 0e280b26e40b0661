#include "transport/shared/shared_wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

#include "base/threads/spin.h"

namespace gear::transport {
namespace {

using Clock = std::chrono::steady_clock;

// A rank that is about to arrive does so within these; a wake-up costs 50 us and more.
constexpr std::chrono::microseconds kSpin{3};  // longer hurts ranks that share a CPU
constexpr std::chrono::microseconds kYieldCrowded{60};
// With a CPU each: a turn of ranks whose GPUs draw takes 50 to 150, and one that has slept comes so
// late that the others sleep too.
constexpr std::chrono::microseconds kYield{300};

// Shared between processes: not FUTEX_PRIVATE_FLAG.
void futex(std::atomic<uint32_t>& word, int operation, uint32_t value,
           const timespec* limit) noexcept {
  static_assert(sizeof(word) == sizeof(uint32_t));
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, limit, nullptr, 0);
}

}  // namespace

void publish(Member& member, uint32_t round) noexcept {
  member.round.store(round, std::memory_order_seq_cst);
  if (member.sleepers.load(std::memory_order_seq_cst) != 0) {
    futex(member.round, FUTEX_WAKE, INT_MAX, nullptr);
  }
}

bool spin_for(const Member& member, uint32_t round, bool crowded) noexcept {
  const auto started = Clock::now();
  if (!crowded && base::spin_until(kSpin, [&] { return has_published(member, round); })) {
    return true;
  }
  do {
    if (has_published(member, round)) {
      return true;
    }
    ::sched_yield();
  } while (Clock::now() - started < (crowded ? kYieldCrowded : kYield));
  return has_published(member, round);
}

void sleep_for(Member& member, uint32_t round, std::chrono::microseconds limit) noexcept {
  member.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t seen = member.round.load(std::memory_order_seq_cst);
  if (static_cast<int32_t>(seen - round) < 0) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
    timespec time{};
    time.tv_sec = seconds.count();
    time.tv_nsec = std::chrono::nanoseconds(limit - seconds).count();
    futex(member.round, FUTEX_WAIT, seen, &time);
  }
  member.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace gear::transport
