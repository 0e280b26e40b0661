#include "mpi/waiting.h"

#include <sched.h>

#include <chrono>
#include <memory>
#include <thread>

#include "base/errors.h"
#include "base/threads/interrupt.h"
#include "mpi/runtime.h"

namespace gear::mpi {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kBusyTurns = 16;      // a few microseconds
constexpr uint32_t kYieldTurns = 5'000;  // some milliseconds
constexpr std::chrono::microseconds kShortSleep{50};

}  // namespace

void Backoff::pause() noexcept {
  if (turn_ >= kYieldTurns) {
    std::this_thread::sleep_for(kShortSleep);
  } else if (++turn_ >= kBusyTurns) {
    ::sched_yield();
  }
}

void wait_until(const std::function<bool()>& has_ended, double timeout_s, const std::string& late,
                const std::function<void()>& look) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
  auto next_look = Clock::now() + base::kInterruptEvery;
  for (Backoff backoff; !has_ended(); backoff.pause()) {
    const auto now = Clock::now();
    if (now >= next_look) {
      if (look) {
        look();
      }
      base::check_interrupt();
      next_look = now + base::kInterruptEvery;
    }
    if (now >= deadline) {
      throw base::TransportError(late);
    }
  }
}

void await(MPI_Request& request, const char* what, double timeout_s, const std::string& late,
           const std::function<void()>& look) {
  try {
    wait_until(
        [&] {
          int done = 0;
          const Turn turn;
          check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
          return done != 0;
        },
        timeout_s, late, look);
  } catch (...) {
    never_finalise();
    throw;
  }
}

MPI_Comm duplicate_of(MPI_Comm original, double timeout_s, const std::string& late,
                      const std::function<void()>& look) {
  auto made = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  try {
    {
      const Turn turn;
      check(MPI_Comm_idup(original, made.get(), &request), "MPI_Comm_idup");
    }
    await(request, "MPI_Comm_idup", timeout_s, late, look);
  } catch (...) {
    static_cast<void>(made.release());  // MPI writes there when the others come after all
    throw;
  }
  return *made;
}

}  // namespace gear::mpi
