#include "mpi/requests.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "mpi/runtime.h"

namespace gear::mpi {
namespace {

constexpr std::chrono::milliseconds kSettleFor{250};

}  // namespace

std::span<const int> Requests::ended(std::span<MPI_Request> open) {
  failed_.clear();
  if (open.empty()) {
    return {};
  }
  ended_.resize(open.size());
  statuses_.resize(open.size());
  int count = 0;
  int code = MPI_SUCCESS;
  {
    const Turn turn;
    code = MPI_Testsome(static_cast<int>(open.size()), open.data(), &count, ended_.data(),
                        statuses_.data());
  }
  int first = MPI_SUCCESS;
  for (size_t i = 0; code == MPI_ERR_IN_STATUS && i < static_cast<size_t>(count); ++i) {
    const int error = statuses_[i].MPI_ERROR;
    // MPI_ERR_PENDING: it has neither failed nor ended.
    if (error != MPI_SUCCESS && error != MPI_ERR_PENDING) {
      failed_.push_back(ended_[i]);
      first = first == MPI_SUCCESS ? error : first;
    }
  }
  check(first, "moving bytes by MPI");
  check(code, "MPI_Testsome");
  return std::span(ended_).first(static_cast<size_t>(std::max(count, 0)));  // undefined: none open
}

bool settled(std::span<MPI_Request> open) noexcept {
  const auto until = std::chrono::steady_clock::now() + kSettleFor;
  for (;;) {
    int all = 0;
    {
      const Turn turn;
      if (MPI_Testall(static_cast<int>(open.size()), open.data(), &all, MPI_STATUSES_IGNORE) !=
          MPI_SUCCESS) {
        return false;
      }
    }
    if (all != 0) {
      return true;
    }
    if (std::chrono::steady_clock::now() >= until) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace gear::mpi
