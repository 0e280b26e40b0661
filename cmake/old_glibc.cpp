// What libstdc++ and the core call of glibc 2.29 to 2.36, made of what 2.28 has.
// cmake/old_glibc.cmake links it into the extension, where nothing outside sees it.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

constexpr long kNanosecondsPerSecond = 1'000'000'000;

// The same moment by another clock, as far as that can be told now.
timespec on_clock(clockid_t to, clockid_t from, const timespec& moment) {
  timespec now_from{};
  timespec now_to{};
  clock_gettime(from, &now_from);
  clock_gettime(to, &now_to);
  timespec found{now_to.tv_sec + moment.tv_sec - now_from.tv_sec,
                 now_to.tv_nsec + moment.tv_nsec - now_from.tv_nsec};
  while (found.tv_nsec < 0) {
    found.tv_nsec += kNanosecondsPerSecond;
    --found.tv_sec;
  }
  while (found.tv_nsec >= kNanosecondsPerSecond) {
    found.tv_nsec -= kNanosecondsPerSecond;
    ++found.tv_sec;
  }
  if (found.tv_sec < 0) {
    return {0, 0};  // long ago
  }
  return found;
}

}  // namespace

extern "C" {

// libstdc++ then counts references by atomic instructions always.
char __libc_single_threaded = 0;

uint32_t arc4random() {
  uint32_t value = 0;
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
    if (errno != EINTR) {
      std::abort();
    }
  }
  return value;
}

int getcpu(unsigned* cpu, unsigned* node) {
  return static_cast<int>(syscall(SYS_getcpu, cpu, node, nullptr));
}

pid_t gettid() { return static_cast<pid_t>(syscall(SYS_gettid)); }

// That of the glibc that runs, if it has one; else by the clock of the day, as libstdc++ itself
// does there: a clock that is set back meanwhile lengthens the wait.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  static const auto own = reinterpret_cast<decltype(&pthread_cond_clockwait)>(
      dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
  if (own != nullptr && own != &pthread_cond_clockwait) {
    return own(condition, mutex, clock, until);
  }
  const timespec deadline = on_clock(CLOCK_REALTIME, clock, *until);
  return pthread_cond_timedwait(condition, mutex, &deadline);
}
}
