#include "transport/mpi.h"

#include <dlfcn.h>

#include <memory>
#include <mutex>
#include <utility>

#include "base/errors.h"
#include "base/threads/interrupt.h"
#include "transport/collective.h"
#include "transport/messages/messages.h"

namespace gear::transport {
namespace {

constexpr uint64_t kToken = 0;  // no other launch reaches a communicator

// Beside the file that this code is in: gear/_core.*.so, or a program.
std::string library_path() {
  Dl_info info{};
  std::string path;
  if (::dladdr(reinterpret_cast<void*>(&mpi_built_with), &info) != 0 && info.dli_fname != nullptr) {
    path = info.dli_fname;
  }
  const size_t slash = path.rfind('/');
  return (slash == std::string::npos ? "./" : path.substr(0, slash + 1)) + "libgear_mpi.so";
}

MpiEntry find_entry() {
  const std::string path = library_path();
  // Global: parts that MPI itself opens later look for its symbols.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  void* entry = library == nullptr ? nullptr : ::dlsym(library, kMpiEntry);
  if (entry == nullptr) {
    const char* why = ::dlerror();
    throw base::TransportError(
        base::cat("[transport] the library of the transport mpi cannot be loaded: ",
                  why == nullptr ? path.c_str() : why,
                  ": load the MPI that GEAR was "
                  "built with (",
                  mpi_built_with(), "), or install GEAR again"));
  }
  return reinterpret_cast<MpiEntry>(entry);
}

}  // namespace

std::string mpi_built_with() { return GEAR_MPI_TEXT; }

std::unique_ptr<Transport> make_mpi(const MpiOptions& options) {
  check_membership(0, 1, options.timeout_s);
  if (options.message_bytes < messages::kMostWords || options.message_bytes > uint64_t{1} << 30) {
    throw base::InvalidArgument(base::cat("[transport] messages of ", options.message_bytes,
                                          " bytes: ", messages::kMostWords,
                                          " to 2^30 are allowed"));
  }
  if (mpi_built_with().empty()) {
    throw base::InvalidArgument(
        "[transport] this build of GEAR has no transport mpi: build it with an mpicxx on PATH and "
        "GEAR_WITH_MPI=ON, or choose another transport");
  }
  static std::mutex mutex;
  static MpiEntry entry = nullptr;
  {
    const std::lock_guard lock(mutex);
    if (entry == nullptr) {
      entry = find_entry();
    }
  }
  MpiOptions passed = options;
  passed.failure = or_own(options.failure);
  passed.interrupt_check = base::interrupt_check.load();
  MpiPlace place;
  entry(passed, GEAR_VERSION, place);
  auto mail = std::make_shared<messages::Mail>(std::move(place.frames), kToken);
  mail->know(place.rank, place.size);
  return std::make_unique<messages::Messages>(std::move(mail), place.rank, place.size,
                                              passed.timeout_s, passed.failure);
}

}  // namespace gear::transport
