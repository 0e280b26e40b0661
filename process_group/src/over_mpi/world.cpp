#include "over_mpi/world.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <memory>
#include <vector>

#include "base/errors.h"
#include "mpi/runtime.h"
#include "mpi/waiting.h"

namespace gear::process_group {
namespace {

using mpi::check;

/// A collective call under way, and what it reads and writes.
template <class Contents>
struct Open {
  MPI_Request request = MPI_REQUEST_NULL;
  Contents contents{};
};

/// The contents of a call that has ended: of `open`, which an earlier wait has left, else of the
/// one that `begin` begins.
template <class Contents, class Begin>
Contents finished(std::unique_ptr<Open<Contents>>& open, const Begin& begin, const char* what,
                  double timeout_s, const std::string& late) {
  if (!open) {
    auto begun = std::make_unique<Open<Contents>>();
    begin(*begun);
    open = std::move(begun);
  }
  mpi::await(open->request, what, timeout_s, late);
  return std::move(std::exchange(open, nullptr)->contents);
}

}  // namespace

std::pair<int, int> world() {
  mpi::require_runtime();
  int rank = 0;
  int size = 0;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  return {rank, size};
}

uint64_t host_number() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) {
    name[0] = '\0';
  }
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return std::hash<std::string>{}(base::cat(name.data(), "/", boot));
}

int local_rank(double timeout_s) {
  const auto [rank, size] = world();
  using Hosts = std::vector<uint64_t>;
  static auto& open = *new std::unique_ptr<Open<Hosts>>;  // never destroyed: MPI may write there
  const Hosts hosts = finished<Hosts>(
      open,
      [rank = rank, size = size](Open<Hosts>& call) {
        call.contents.resize(static_cast<size_t>(size));
        call.contents[static_cast<size_t>(rank)] = host_number();
        check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, call.contents.data(), 1,
                             MPI_UINT64_T, MPI_COMM_WORLD, &call.request),
              "MPI_Iallgather");
      },
      "MPI_Iallgather", timeout_s,
      base::cat("[mpi] not all ", size,
                " ranks that MPI has started asked for their local rank "
                "within ",
                timeout_s, " s: look at their output, or give a longer timeout"));
  const auto own = hosts.begin() + rank;
  return static_cast<int>(std::count(hosts.begin(), own, *own));
}

std::string from_rank_0(const std::string& text, double timeout_s) {
  const auto [rank, size] = world();
  if (text.size() > kMostSaid) {
    throw base::InvalidArgument(
        base::cat("[mpi] rank 0 says ", text.size(), " bytes to all: ", kMostSaid, " are allowed"));
  }
  using Said = std::array<char, kMostSaid + 1>;          // at its end a zero
  static auto& open = *new std::unique_ptr<Open<Said>>;  // never destroyed: MPI may write there
  const Said said = finished<Said>(
      open,
      [&](Open<Said>& call) {
        std::ranges::copy(text, call.contents.begin());
        check(MPI_Ibcast(call.contents.data(), static_cast<int>(call.contents.size()), MPI_CHAR, 0,
                         MPI_COMM_WORLD, &call.request),
              "MPI_Ibcast");
      },
      "MPI_Ibcast", timeout_s,
      base::cat("[mpi] what rank 0 tells all ", size, " ranks has not come to rank ", rank,
                " within ", timeout_s,
                " s: rank 0, or one that passes it on, did not make the "
                "same call; look at their output, or give a longer timeout"));
  return said.data();
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  check(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  return {text, static_cast<size_t>(length)};
}

}  // namespace gear::process_group
