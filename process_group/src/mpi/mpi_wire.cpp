#include "mpi/mpi_wire.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <thread>

#include "base/errors.h"
#include "base/threads/signals_blocked.h"
#include "ranks/group.h"
#include "transport/mpi/runtime.h"
#include "transport/mpi/waiting.h"

namespace gear::process_group {
namespace {

using transport::mpi::check;

constexpr uint64_t kBlockBytes = 1 << 20;
constexpr uint64_t kMostBytes = std::numeric_limits<int>::max();  // that MPI counts
constexpr std::chrono::milliseconds kSettleFor{250};

// MPI's handles are pointers or numbers.
template <class Handle>
uint64_t packed(Handle handle) {
  static_assert(sizeof handle <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &handle, sizeof handle);
  return bits;
}

template <class Handle>
Handle unpacked(uint64_t bits) {
  Handle handle;
  std::memcpy(&handle, &bits, sizeof handle);
  return handle;
}

Wire::Request request_of(MPI_Request request) {
  return request == MPI_REQUEST_NULL ? Wire::Request::kNone : Wire::Request{packed(request)};
}

MPI_Request mpi_of(Wire::Request request) {
  return request == Wire::Request::kNone ? MPI_REQUEST_NULL
                                         : unpacked<MPI_Request>(static_cast<uint64_t>(request));
}

// Bytes as MPI counts them: one by one, or, of more than it counts, blocks and what is left.
class Counted {
 public:
  explicit Counted(uint64_t bytes) {
    if (bytes <= kMostBytes) {
      count = static_cast<int>(bytes);
      return;
    }
    MPI_Datatype block = MPI_DATATYPE_NULL;
    check(MPI_Type_contiguous(static_cast<int>(kBlockBytes), MPI_BYTE, &block),
          "MPI_Type_contiguous");
    const std::array<int, 2> counts{static_cast<int>(bytes / kBlockBytes),
                                    static_cast<int>(bytes % kBlockBytes)};
    const std::array<MPI_Aint, 2> places{0, static_cast<MPI_Aint>(bytes - bytes % kBlockBytes)};
    const std::array<MPI_Datatype, 2> types{block, MPI_BYTE};
    check(MPI_Type_create_struct(2, counts.data(), places.data(), types.data(), &type),
          "MPI_Type_create_struct");
    check(MPI_Type_commit(&type), "MPI_Type_commit");
    check(MPI_Type_free(&block), "MPI_Type_free");
    count = 1;
  }
  ~Counted() {
    if (type != MPI_BYTE) {
      MPI_Type_free(&type);  // when the message has ended
    }
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  int count = 0;
  MPI_Datatype type = MPI_BYTE;
};

int highest_tag_of(MPI_Comm communicator) {
  int* value = nullptr;
  int found = 0;
  check(MPI_Comm_get_attr(communicator, MPI_TAG_UB, static_cast<void*>(&value), &found),
        "MPI_Comm_get_attr");
  return found != 0 ? *value : 32767;
}

// MPI has no form of this call that one can look at now and then, so a thread makes it. Where ranks
// do not come it is left to itself.
MPI_Comm create(const std::vector<int>& world_ranks, int tag, double timeout_s,
                const std::string& late) {
  struct Made {
    MPI_Group members = MPI_GROUP_NULL;
    MPI_Comm communicator = MPI_COMM_NULL;
    int code = MPI_SUCCESS;
    std::atomic<bool> is_there{false};
  };
  const auto made = std::make_shared<Made>();
  MPI_Group world = MPI_GROUP_NULL;
  check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check(MPI_Group_incl(world, static_cast<int>(world_ranks.size()), world_ranks.data(),
                       &made->members),
        "MPI_Group_incl");
  check(MPI_Group_free(&world), "MPI_Group_free");
  std::thread maker;
  {
    const base::SignalsBlocked signals;
    maker = std::thread([made, tag] {
      made->code = MPI_Comm_create_group(MPI_COMM_WORLD, made->members, tag, &made->communicator);
      made->is_there = true;
    });
  }
  try {
    transport::mpi::wait_until([&] { return made->is_there.load(); }, timeout_s, late);
  } catch (...) {
    maker.detach();
    transport::mpi::never_finalise();
    throw;
  }
  maker.join();
  check(made->code, "MPI_Comm_create_group");
  check(MPI_Group_free(&made->members), "MPI_Group_free");
  return made->communicator;
}

}  // namespace

MpiWire::MpiWire(const std::vector<int>& world_ranks, const std::string& name, double timeout_s) {
  transport::mpi::require_runtime();
  int level = MPI_THREAD_SINGLE;
  check(MPI_Query_thread(&level), "MPI_Query_thread");
  if (level < MPI_THREAD_MULTIPLE) {
    throw base::TransportError(
        "[mpi] MPI was initialised without MPI_THREAD_MULTIPLE, which gear_mpi needs: initialise "
        "it "
        "with that (mpi4py does), or leave it to gear_mpi");
  }
  const auto late =
      base::cat("[mpi] not all ", world_ranks.size(), " ranks of the group came to make it within ",
                timeout_s, " s: look at their output, or give a longer timeout");
  const auto tag = static_cast<int>(std::hash<std::string>{}(name) % 30000);
  calls_ = create(world_ranks, tag, timeout_s, late);
  check(MPI_Comm_set_errhandler(calls_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  messages_ = transport::mpi::duplicate_of(calls_, timeout_s, late);
  check(MPI_Comm_set_errhandler(messages_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(calls_, &place_.rank), "MPI_Comm_rank");
  check(MPI_Comm_size(calls_, &place_.size), "MPI_Comm_size");
  highest_tag_ = highest_tag_of(messages_);
  if (highest_tag_ < Group::highest_tag()) {
    throw base::TransportError(base::cat("[mpi] this MPI has tags up to ", highest_tag_,
                                         ", and gear_mpi needs ", Group::highest_tag()));
  }
}

MpiWire::~MpiWire() {
  if (abandoned_ || !transport::mpi::is_running()) {
    return;
  }
  MPI_Comm_free(&messages_);
  MPI_Comm_free(&calls_);
}

Wire::Request MpiWire::send(const Address& to, const std::byte* from, uint64_t bytes) {
  const Counted counted(bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(from, counted.count, counted.type, to.peer, to.tag, communicator(to.line),
                  &request),
        "MPI_Isend");
  return request_of(request);
}

std::optional<Wire::Arrival> MpiWire::look(const Address& from) {
  int there = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  check(MPI_Improbe(from.peer == kAnyone ? MPI_ANY_SOURCE : from.peer, from.tag,
                    communicator(from.line), &there, &message, &status),
        "MPI_Improbe");
  if (there == 0) {
    return std::nullopt;
  }
  MPI_Count bytes = 0;
  check(MPI_Get_elements_x(&status, MPI_BYTE, &bytes), "MPI_Get_elements_x");
  return Arrival{status.MPI_SOURCE, static_cast<uint64_t>(bytes), packed(message)};
}

Wire::Request MpiWire::take(const Arrival& come, std::byte* to) {
  const Counted counted(come.bytes);
  auto message = unpacked<MPI_Message>(come.handle);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Imrecv(to, counted.count, counted.type, &message, &request), "MPI_Imrecv");
  return request_of(request);
}

void MpiWire::read(const Arrival& come, std::byte* to) {
  auto message = unpacked<MPI_Message>(come.handle);
  check(MPI_Mrecv(to, static_cast<int>(come.bytes), MPI_BYTE, &message, MPI_STATUS_IGNORE),
        "MPI_Mrecv");
}

void MpiWire::drop(const Arrival& come) noexcept {
  std::unique_ptr<std::byte[]> room(new (std::nothrow) std::byte[come.bytes]);
  if (!room) {
    return;
  }
  try {
    Request request = take(come, room.get());
    if (!settle({&request, 1})) {
      static_cast<void>(room.release());  // MPI may still write there
    }
  } catch (const base::TransportError&) {
    // The caller has a better one.
  }
}

bool MpiWire::test(std::span<Request> open) {
  requests_.resize(open.size());
  ended_.resize(open.size());
  statuses_.resize(open.size());
  std::ranges::transform(open, requests_.begin(), mpi_of);
  int count = 0;
  const int code = MPI_Testsome(static_cast<int>(open.size()), requests_.data(), &count,
                                ended_.data(), statuses_.data());
  for (int i = 0; code == MPI_ERR_IN_STATUS && i < count; ++i) {
    check(statuses_[static_cast<size_t>(i)].MPI_ERROR, "moving bytes by MPI");
  }
  check(code, "MPI_Testsome");
  count = std::max(count, 0);  // MPI_UNDEFINED: none was open
  for (int i = 0; i < count; ++i) {
    open[static_cast<size_t>(ended_[static_cast<size_t>(i)])] = Request::kNone;
  }
  return count > 0;
}

bool MpiWire::settle(std::span<Request> open) noexcept {
  std::vector<MPI_Request> requests(open.size());
  std::ranges::transform(open, requests.begin(), mpi_of);
  const auto until = std::chrono::steady_clock::now() + kSettleFor;
  for (int ended = 0;;) {
    if (MPI_Testall(static_cast<int>(requests.size()), requests.data(), &ended,
                    MPI_STATUSES_IGNORE) != MPI_SUCCESS) {
      return false;
    }
    if (ended != 0) {
      std::ranges::fill(open, Request::kNone);
      return true;
    }
    if (std::chrono::steady_clock::now() >= until) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

// The copy stays for ever: MPI may read it as long as the process lives.
void MpiWire::tell(const Address& to, const void* bytes, size_t size) noexcept {
  auto* const kept = new (std::nothrow) std::byte[size];
  if (kept == nullptr) {
    return;
  }
  std::memcpy(kept, bytes, size);
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Isend(kept, static_cast<int>(size), MPI_BYTE, to.peer, to.tag, communicator(to.line),
                &request) == MPI_SUCCESS) {
    MPI_Request_free(&request);
  }
}

void MpiWire::abandon() noexcept {
  abandoned_ = true;
  transport::mpi::never_finalise();
}

}  // namespace gear::process_group
