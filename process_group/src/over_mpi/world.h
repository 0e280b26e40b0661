#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace gear::process_group {

// This process among those that MPI has started. Each of these initialises MPI, and throws
// TransportError where that has been finalised.

/// (rank, size).
std::pair<int, int> world();

// Collective over all ranks. MPI takes back no collective call: one that has not ended in time goes
// on, and the next call of the same function takes it up. One thread at a time. They throw
// TransportError after timeout_s.

/// This process among those on its host.
int local_rank(double timeout_s);

/// What rank 0 says, on all ranks: kMostSaid bytes at most.
constexpr size_t kMostSaid = 1000;
std::string from_rank_0(const std::string& text, double timeout_s);

/// What the library says of itself.
std::string mpi_version();

/// Of this host: its name and its boot.
uint64_t host_number();

}  // namespace gear::process_group
