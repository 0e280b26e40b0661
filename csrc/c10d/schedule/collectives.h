#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "c10d/schedule/schedule.h"

namespace gear::c10d {

/// The schedules of the collective operations. Pure arithmetic: all ranks that give the same sizes
/// get schedules that fit together, and a sum has the same bits at every run and, where all ranks
/// get it, on every rank.

struct Place {
  int rank;
  int size;
};

/// Below so many bytes, ranks exchange whole arrays in log2(size) rounds; above it each rank
/// reduces a part and sends that to all, which moves 2 (size - 1) / size of the bytes.
constexpr uint64_t kSmallBytes = 16 << 10;

Schedule all_reduce(Place place, Arithmetic arithmetic, std::byte* data, uint64_t count);

/// In place on `root`; others keep what they have.
Schedule reduce(Place place, Arithmetic arithmetic, std::byte* data, uint64_t count, int root);

/// `inputs` by rank, each of as many elements as the output of that rank.
Schedule reduce_scatter(Place place, Arithmetic arithmetic, const std::vector<Block>& inputs,
                        Block output);

Schedule broadcast(Place place, Block data, int root);

/// What this rank sends to each rank, and where what it receives of each goes: all_gather, gather,
/// scatter and all_to_all. Blocks of no bytes need no message.
Schedule exchange(Place place, const std::vector<Block>& to, const std::vector<Block>& from);

Schedule barrier(Place place);

/// Rank 0 hears of all, then tells all: it is the one that can say who is missing.
Schedule monitored_barrier(Place place);

}  // namespace gear::c10d
