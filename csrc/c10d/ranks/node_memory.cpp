#include "c10d/ranks/node_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <random>
#include <string>
#include <system_error>

#include "base/errors.h"
#include "transport/mpi/runtime.h"

namespace gear::c10d {
namespace {

using transport::mpi::check;

constexpr uint64_t kRoomBytes = 32 << 20;  // of a rank
constexpr uint64_t kPageBytes = 4096;

// Where the first rank's memory is found, and what is in it.
struct Address {
  int64_t process;
  int64_t descriptor;  // -1: there is none
  uint64_t secret;
};

bool all_say(MPI_Comm ranks, bool yes) {
  int least = yes ? 1 : 0;
  check(MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_INT, MPI_MIN, ranks), "MPI_Allreduce");
  return least != 0;
}

bool is_one_node(MPI_Comm ranks, Place place) {
  MPI_Comm node = MPI_COMM_NULL;
  check(MPI_Comm_split_type(ranks, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
        "MPI_Comm_split_type");
  int size = 0;
  check(MPI_Comm_size(node, &size), "MPI_Comm_size");
  check(MPI_Comm_free(&node), "MPI_Comm_free");
  return all_say(ranks, size == place.size);
}

// These three leave in errno why not.

// Reserved: a page that the system lacks later would end the process.
int create(uint64_t bytes) {
  const int descriptor = ::memfd_create("gear_mpi", MFD_CLOEXEC);
  if (descriptor < 0) {
    return -1;
  }
  if (const int error = ::posix_fallocate(descriptor, 0, static_cast<off_t>(bytes))) {
    ::close(descriptor);
    errno = error;
    return -1;
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
                                             uint64_t piece_bytes) {
  if (!all_say(ranks, wanted && place.size > 1) || !is_one_node(ranks, place)) {
    return nullptr;
  }
  const auto size = static_cast<uint64_t>(place.size);
  piece_bytes = std::min(piece_bytes, kRoomBytes / (kSlots * size)) / 64 * 64;
  const uint64_t head_bytes =
      (sizeof(Head) + size * sizeof(Line) + kPageBytes - 1) / kPageBytes * kPageBytes;
  const uint64_t bytes = head_bytes + size * size * kSlots * piece_bytes;
  Address address{::getpid(), -1, 0};
  int descriptor = -1;
  std::byte* data = nullptr;
  if (place.rank == 0) {
    descriptor = create(bytes);
    data = descriptor < 0 ? nullptr : map(descriptor, bytes);
    if (data != nullptr) {
      address.descriptor = descriptor;
      address.secret = std::random_device{}() | uint64_t{std::random_device{}()} << 32U;
      reinterpret_cast<Head*>(data)->secret = address.secret;
    }
  }
  int error = errno;
  check(MPI_Bcast(&address, sizeof address, MPI_BYTE, 0, ranks), "MPI_Bcast");
  if (place.rank != 0 && address.descriptor >= 0) {
    descriptor = open(address);
    data = descriptor < 0 ? nullptr : map(descriptor, bytes);
    error = errno;
  }
  const bool have_all = all_say(ranks, data != nullptr);
  if (descriptor >= 0) {
    ::close(descriptor);
  }
  if (data == nullptr && (place.rank == 0 || address.descriptor >= 0)) {
    const std::string words =
        base::cat("gear_mpi: rank ", place.rank, " cannot have ", bytes,
                  " bytes of memory that the ranks of its node share (",
                  std::generic_category().message(error),
                  "): all_reduce of GPU tensors goes by messages, which takes longer\n");
    std::fputs(words.c_str(), stderr);
  }
  if (!have_all) {
    if (data != nullptr) {
      ::munmap(data, bytes);
    }
    return nullptr;
  }
  return std::shared_ptr<NodeMemory>(new NodeMemory(place, data, bytes, piece_bytes));
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

}  // namespace gear::c10d
