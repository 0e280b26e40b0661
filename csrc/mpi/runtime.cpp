#include "mpi/runtime.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/errors.h"

namespace gear::mpi {
namespace {

// The name of MPI_COMM_SELF in a process that must not finalise MPI: an attribute would need a key,
// which a library has no way to learn from another.
constexpr const char* kNotFinalised = "MPI_COMM_SELF, not finalised";

std::mutex g_start;
std::mutex g_turn;
std::atomic<bool> g_one_at_a_time{false};
std::atomic<pid_t> g_finalise{0};  // the process that is to; a forked child has no part in it

const char* level_name(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    default:
      return "MPI_THREAD_MULTIPLE";
  }
}

bool is_to_finalise() {
  char name[MPI_MAX_OBJECT_NAME + 1] = "";
  int length = 0;
  const Turn turn;
  return MPI_Comm_get_name(MPI_COMM_SELF, name, &length) != MPI_SUCCESS ||
         std::strcmp(name, kNotFinalised) != 0;
}

void finalise() {
  if (g_finalise == ::getpid() && is_running() && is_to_finalise()) {
    MPI_Finalize();
  }
}

void initialise() {
  int level = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
  // MPICH looks there, and not at a message's communicator, when one of many fails.
  for (const MPI_Comm of_none : {MPI_COMM_WORLD, MPI_COMM_SELF}) {
    check(MPI_Comm_set_errhandler(of_none, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  g_finalise = ::getpid();
  if (std::atexit(finalise) != 0) {
    throw base::OutOfMemory(
        "[transport] MPI cannot be finalised at exit: the system has no room left");
  }
}

}  // namespace

bool is_running() {
  int initialised = 0;
  int finalised = 0;
  return MPI_Initialized(&initialised) == MPI_SUCCESS && initialised != 0 &&
         MPI_Finalized(&finalised) == MPI_SUCCESS && finalised == 0;
}

void require_runtime() {
  const std::lock_guard lock(g_start);
  int finalised = 0;
  check(MPI_Finalized(&finalised), "MPI_Finalized");
  if (finalised != 0) {
    throw base::TransportError(
        "[transport] MPI has been finalised in this process: make transports before that");
  }
  if (!is_running()) {
    initialise();
  }
  int level = MPI_THREAD_SINGLE;
  check(MPI_Query_thread(&level), "MPI_Query_thread");
  if (level < MPI_THREAD_SERIALIZED) {
    throw base::TransportError(
        base::cat("[transport] MPI was initialised with ", level_name(level),
                  ": initialise it with MPI_THREAD_MULTIPLE (mpi4py does), since GEAR "
                  "calls it from threads of its own"));
  }
  g_one_at_a_time = level == MPI_THREAD_SERIALIZED;
}

Turn::Turn() {
  if (g_one_at_a_time) {
    lock_ = std::unique_lock(g_turn);
  }
}

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) {
    return;
  }
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) {
    length = 0;
  }
  throw base::TransportError(base::cat("[transport] ", what, " failed: ",
                                       length == 0
                                           ? base::cat("MPI error ", code)
                                           : std::string(text, static_cast<size_t>(length))));
}

void never_finalise() noexcept {
  g_finalise = 0;
  if (is_running()) {
    const Turn turn;
    MPI_Comm_set_name(MPI_COMM_SELF, kNotFinalised);
  }
}

}  // namespace gear::mpi
