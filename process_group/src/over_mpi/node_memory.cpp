#include "over_mpi/node_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "mpi/runtime.h"
#include "mpi/waiting.h"
#include "over_mpi/world.h"

namespace gear::process_group {
namespace {

using mpi::check;

constexpr uint64_t kRoomBytes = 32 << 20;  // of a rank
constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kReserveStep = 32 << 20;

// Where the first rank's memory is found, and what is in it.
struct Address {
  int64_t process;
  int64_t descriptor;  // -1: there is none
  uint64_t secret;
};

// The collective calls by which ranks agree.
struct Agreement {
  MPI_Comm ranks;
  double timeout_s;

  // Of each number the least one that a rank gives.
  template <size_t kNumbers>
  std::array<uint64_t, kNumbers> least(const std::array<uint64_t, kNumbers>& own) const {
    auto numbers = std::make_unique<std::array<uint64_t, kNumbers>>(own);
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallreduce(MPI_IN_PLACE, numbers->data(), static_cast<int>(kNumbers), MPI_UINT64_T,
                         MPI_MIN, ranks, &request),
          "MPI_Iallreduce");
    return ended(std::move(numbers), request, "MPI_Iallreduce");
  }

  bool all_say(bool yes) const { return least<1>({yes ? 1U : 0U})[0] != 0; }

  Address of_rank_0(const Address& own) const {
    auto address = std::make_unique<Address>(own);
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibcast(address.get(), sizeof *address, MPI_BYTE, 0, ranks, &request), "MPI_Ibcast");
    return ended(std::move(address), request, "MPI_Ibcast");
  }

 private:
  template <class Contents>
  Contents ended(std::unique_ptr<Contents> contents, MPI_Request request, const char* what) const {
    try {
      mpi::await(
          request, what, timeout_s,
          base::cat("[mpi] not all ranks of a group agreed on the memory of their node within ",
                    timeout_s, " s: look at their output, or give a longer timeout"));
    } catch (...) {
      static_cast<void>(contents.release());  // MPI may still read and write it
      throw;
    }
    return *contents;
  }
};

// A descriptor of the memory, and where it is mapped.
struct Mapping {
  explicit Mapping(uint64_t of_bytes) : bytes(of_bytes) {}
  ~Mapping() {
    if (descriptor >= 0) {
      ::close(descriptor);
    }
    if (data != nullptr) {
      ::munmap(data, bytes);
    }
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  uint64_t bytes;
  int descriptor = -1;
  std::byte* data = nullptr;
};

// These three leave in errno why not.

// Reserved: a page that the system lacks later would end the process. A signal makes a call give
// back what it had reserved: small ones always get on.
int create(uint64_t bytes) {
  const int descriptor = ::memfd_create("gear_mpi", MFD_CLOEXEC);
  if (descriptor < 0) {
    return -1;
  }
  for (uint64_t begin = 0; begin < bytes;) {
    const uint64_t step = std::min(kReserveStep, bytes - begin);
    const int error =
        ::posix_fallocate(descriptor, static_cast<off_t>(begin), static_cast<off_t>(step));
    if (error != 0 && error != EINTR) {
      ::close(descriptor);
      errno = error;
      return -1;
    }
    begin += error == 0 ? step : 0;
  }
  return descriptor;
}

// In another pid namespace the path is of nothing, or of another process's file.
int open(const Address& address) {
  const auto path = base::cat("/proc/", address.process, "/fd/", address.descriptor);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (descriptor < 0) {
    return -1;
  }
  uint64_t secret = 0;
  if (::pread(descriptor, &secret, sizeof secret, 0) != sizeof secret || secret != address.secret) {
    ::close(descriptor);
    errno = ESRCH;
    return -1;
  }
  return descriptor;
}

std::byte* map(int descriptor, uint64_t bytes) {
  void* const found = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return found == MAP_FAILED ? nullptr : static_cast<std::byte*>(found);
}

}  // namespace

struct alignas(64) NodeMemory::Line {
  // By Progress: steps done. Written by its rank with release, after what the step has written;
  // read by all with acquire, before they read that or write over it.
  std::array<std::atomic<uint64_t>, 3> done;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

struct alignas(64) NodeMemory::Head {
  uint64_t secret;
};

std::shared_ptr<NodeMemory> NodeMemory::make(MPI_Comm ranks, Place place, bool wanted,
                                             uint64_t piece_bytes, double timeout_s) {
  const Agreement agreement{ranks, timeout_s};
  const uint64_t host = host_number();
  // The least of all complements is that of the greatest.
  const auto least = agreement.least<3>({wanted && place.size > 1 ? 1U : 0U, host, ~host});
  if (least[0] == 0 || least[1] != ~least[2]) {
    return nullptr;
  }
  const auto size = static_cast<uint64_t>(place.size);
  piece_bytes = std::min(piece_bytes, kRoomBytes / (kSlots * size)) / 64 * 64;
  const uint64_t head_bytes =
      (sizeof(Head) + size * sizeof(Line) + kPageBytes - 1) / kPageBytes * kPageBytes;
  const uint64_t bytes = head_bytes + size * size * kSlots * piece_bytes;
  Address address{::getpid(), -1, 0};
  Mapping mapping(bytes);
  if (place.rank == 0) {
    mapping.descriptor = create(bytes);
    mapping.data = mapping.descriptor < 0 ? nullptr : map(mapping.descriptor, bytes);
    if (mapping.data != nullptr) {
      address.descriptor = mapping.descriptor;
      address.secret = std::random_device{}() | uint64_t{std::random_device{}()} << 32U;
      reinterpret_cast<Head*>(mapping.data)->secret = address.secret;
    }
  }
  int error = errno;
  address = agreement.of_rank_0(address);
  if (place.rank != 0 && address.descriptor >= 0) {
    mapping.descriptor = open(address);
    mapping.data = mapping.descriptor < 0 ? nullptr : map(mapping.descriptor, bytes);
    error = errno;
  }
  const bool have_all = agreement.all_say(mapping.data != nullptr);
  if (mapping.data == nullptr && (place.rank == 0 || address.descriptor >= 0)) {
    const std::string words =
        base::cat("gear_mpi: rank ", place.rank, " cannot have ", bytes,
                  " bytes of memory that the ranks of its node share (",
                  std::generic_category().message(error),
                  "): all_reduce of GPU tensors goes by messages, which takes longer\n");
    std::fputs(words.c_str(), stderr);
  }
  if (!have_all) {
    return nullptr;
  }
  return std::shared_ptr<NodeMemory>(
      new NodeMemory(place, std::exchange(mapping.data, nullptr), bytes, piece_bytes));
}

NodeMemory::NodeMemory(Place place, std::byte* data, uint64_t bytes, uint64_t piece_bytes)
    : place_(place), data_(data), bytes_(bytes), piece_bytes_(piece_bytes) {}

NodeMemory::~NodeMemory() { ::munmap(data_, bytes_); }

// The memory came zeroed, which is what a Line begins with.
NodeMemory::Line& NodeMemory::line(int rank) const noexcept {
  return reinterpret_cast<Line*>(data_ + sizeof(Head))[rank];
}

std::byte* NodeMemory::piece(int of_rank, int for_rank, uint64_t step) const noexcept {
  const auto size = static_cast<uint64_t>(place_.size);
  const uint64_t slot = static_cast<uint64_t>(of_rank) * kSlots + step % kSlots;
  const uint64_t before = slot * size + static_cast<uint64_t>(for_rank);
  return data_ + bytes_ - (size * size * kSlots - before) * piece_bytes_;
}

uint64_t NodeMemory::take_steps(uint64_t count) noexcept {
  const uint64_t first = next_step_;
  next_step_ += count;
  return first;
}

bool NodeMemory::is_next(Progress progress, uint64_t step) const noexcept {
  return line(place_.rank).done[static_cast<size_t>(progress)].load(std::memory_order_relaxed) ==
         step;
}

void NodeMemory::advance(Progress progress) noexcept {
  line(place_.rank).done[static_cast<size_t>(progress)].fetch_add(1, std::memory_order_release);
}

bool NodeMemory::have_counted(Progress progress, uint64_t count) const noexcept {
  for (int rank = 0; rank < place_.size; ++rank) {
    if (line(rank).done[static_cast<size_t>(progress)].load(std::memory_order_acquire) < count) {
      return false;
    }
  }
  return true;
}

bool NodeMemory::have_done(Progress progress, uint64_t step) const noexcept {
  return have_counted(progress, step + 1);
}

bool NodeMemory::have_left(Progress progress, uint64_t step) const noexcept {
  return step < kSlots || have_counted(progress, step + 1 - kSlots);
}

std::vector<int> NodeMemory::missing(Progress progress, uint64_t step) const {
  std::vector<int> found;
  for (int rank = 0; rank < place_.size; ++rank) {
    if (line(rank).done[static_cast<size_t>(progress)].load(std::memory_order_acquire) <= step) {
      found.push_back(rank);
    }
  }
  return found;
}

}  // namespace gear::process_group
