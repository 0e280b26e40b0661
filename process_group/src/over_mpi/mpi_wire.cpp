#include "over_mpi/mpi_wire.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <thread>

#include "base/errors.h"
#include "base/threads/signals_blocked.h"
#include "mpi/arrival.h"
#include "mpi/runtime.h"
#include "mpi/waiting.h"
#include "ranks/group.h"

namespace gear::process_group {
namespace {

using mpi::check;

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

// There is nothing to ask any more, and MPI may still read or write its memory.
constexpr Wire::Request kFailed{~uint64_t{0}};

Wire::Request request_of(MPI_Request request) {
  return request == MPI_REQUEST_NULL ? Wire::Request::kNone : Wire::Request{packed(request)};
}

MPI_Request mpi_of(Wire::Request request) {
  return request == Wire::Request::kNone || request == kFailed
             ? MPI_REQUEST_NULL
             : unpacked<MPI_Request>(static_cast<uint64_t>(request));
}

// What MPI has freed is not given to it again.
void take_back(std::span<Wire::Request> open, std::span<const MPI_Request> from) noexcept {
  for (size_t i = 0; i < open.size(); ++i) {
    if (from[i] == MPI_REQUEST_NULL && open[i] != kFailed) {
      open[i] = Wire::Request::kNone;
    }
  }
}

bool have_ended(std::span<MPI_Request> open) noexcept {
  int all = 0;
  const mpi::Turn turn;
  return MPI_Testall(static_cast<int>(open.size()), open.data(), &all, MPI_STATUSES_IGNORE) ==
             MPI_SUCCESS &&
         all != 0;
}

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
    mpi::wait_until([&] { return made->is_there.load(); }, timeout_s, late);
  } catch (...) {
    maker.detach();
    mpi::never_finalise();
    throw;
  }
  maker.join();
  check(made->code, "MPI_Comm_create_group");
  check(MPI_Group_free(&made->members), "MPI_Group_free");
  return made->communicator;
}

}  // namespace

MpiWire::MpiWire(const std::vector<int>& world_ranks, const std::string& name, double timeout_s) {
  mpi::require_runtime();
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
  messages_ = mpi::duplicate_of(calls_, timeout_s, late);
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
  if (abandoned_ || !mpi::is_running()) {
    return;
  }
  MPI_Comm_free(&messages_);
  MPI_Comm_free(&calls_);
}

Wire::Request MpiWire::send(const Address& to, const std::byte* from, uint64_t bytes) {
  const mpi::Counted counted(bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(from, counted.count, counted.type, to.peer, to.tag, communicator(to.line),
                  &request),
        "MPI_Isend");
  return request_of(request);
}

std::optional<Wire::Arrival> MpiWire::look(const Address& from) {
  const auto come = mpi::look_for(communicator(from.line),
                                  from.peer == kAnyone ? MPI_ANY_SOURCE : from.peer, from.tag);
  if (!come) {
    return std::nullopt;
  }
  return Arrival{come->source, come->bytes, packed(come->message)};
}

Wire::Request MpiWire::take(const Arrival& come, std::byte* to) {
  return request_of(
      mpi::receive({unpacked<MPI_Message>(come.handle), come.source, come.bytes}, to));
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
    if (!settle({&request, 1}, true)) {
      static_cast<void>(room.release());  // MPI may still write there
    }
  } catch (const base::TransportError&) {
    // The caller has a better one.
  }
}

bool MpiWire::test(std::span<Request> open) {
  requests_.resize(open.size());
  std::ranges::transform(open, requests_.begin(), mpi_of);
  try {
    const bool any = !test_.ended(requests_).empty();
    take_back(open, requests_);
    return any;
  } catch (...) {  // others may have ended beside those that have failed
    for (const int place : test_.failed()) {
      open[static_cast<size_t>(place)] = kFailed;
    }
    take_back(open, requests_);
    throw;
  }
}

bool MpiWire::settle(std::span<Request> open, bool waits) noexcept {
  std::vector<MPI_Request> requests(open.size());
  std::ranges::transform(open, requests.begin(), mpi_of);
  const bool all = waits ? mpi::settled(requests) : have_ended(requests);
  take_back(open, requests);
  return all && std::ranges::find(open, kFailed) == open.end();
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
  mpi::never_finalise();
}

}  // namespace gear::process_group
