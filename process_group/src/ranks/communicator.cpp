#include "ranks/communicator.h"

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "base/errors.h"
#include "base/threads/signals_blocked.h"
#include "transport/mpi/runtime.h"
#include "transport/mpi/waiting.h"

namespace gear::process_group {
namespace {

using transport::mpi::check;

constexpr uint64_t kNumbers = 1 << 15;  // calls of one group that are told apart by their tag
constexpr int kKinds = 16;
constexpr int kFirstTag = 16;

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

std::string_view kind_name(Kind kind) {
  constexpr std::string_view kNames[] = {
      "broadcast",      "all_reduce", "reduce",  "all_gather",        "gather", "scatter",
      "reduce_scatter", "all_to_all", "barrier", "monitored_barrier", "send",   "recv"};
  return kNames[static_cast<size_t>(kind)];
}

Communicator::Communicator(const std::vector<int>& world_ranks, const std::string& name,
                           double timeout_s)
    : world_ranks_(world_ranks) {
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
  collectives_ = create(world_ranks, tag, timeout_s, late);
  check(MPI_Comm_set_errhandler(collectives_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  messages_ = transport::mpi::duplicate_of(collectives_, timeout_s, late);
  check(MPI_Comm_set_errhandler(messages_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(collectives_, &place_.rank), "MPI_Comm_rank");
  check(MPI_Comm_size(collectives_, &place_.size), "MPI_Comm_size");
  highest_tag_ = highest_tag_of(messages_);
  if (highest_tag_ < comparison_tag_of(kNumbers - 1)) {
    throw base::TransportError(base::cat("[mpi] this MPI has tags up to ", highest_tag_,
                                         ", and gear_mpi needs ", comparison_tag_of(kNumbers - 1)));
  }
}

Communicator::~Communicator() {
  if (!failure_.empty() || !transport::mpi::is_running()) {
    return;
  }
  MPI_Comm_free(&messages_);
  MPI_Comm_free(&collectives_);
}

std::string Communicator::shown(int rank) const {
  const int in_world = world_ranks_[static_cast<size_t>(rank)];
  return in_world == rank ? std::to_string(rank)
                          : base::cat(rank, " (", in_world, " of the world)");
}

uint64_t Communicator::take_number(Kind kind) {
  kinds_[next_number_ % kKindsKept] = kind;
  return next_number_++;
}

std::optional<Kind> Communicator::kind_of(uint64_t number) const {
  if (number >= next_number_ || next_number_ - number > kKindsKept) {
    return std::nullopt;
  }
  return kinds_[number % kKindsKept];
}

int Communicator::tag_of(uint64_t number, Kind kind) {
  return kFirstTag + static_cast<int>(number % kNumbers) * kKinds + static_cast<int>(kind);
}

int Communicator::comparison_tag_of(uint64_t number) {
  return tag_of(number, static_cast<Kind>(kKinds - 1));
}

void Communicator::fail(const std::string& words) noexcept {
  if (failure_.empty()) {
    failure_ = words;
    transport::mpi::never_finalise();
  }
}

}  // namespace gear::process_group
