#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "schedule/place.h"
#include "schedule/schedule.h"

namespace gear::process_group {

/// The schedules of the collective operations. Pure arithmetic: all ranks that give the same sizes
/// get schedules that fit together, and a sum has the same bits at every run and, where all ranks
/// get it, on every rank.

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

/// What this rank sends to each rank, and where what it receives of each goes: all_gather. Blocks
/// of no bytes need no message.
Schedule exchange(Place place, const std::vector<Block>& to, const std::vector<Block>& from);

/// The same where each rank gives lengths that no other rank knows: gather, scatter and all_to_all.
/// What comes is looked at even if it should have no bytes, and a rank ends when all ranks have
/// what they expect. Where there is no block, there is no message.
Schedule exchange_of_any(Place place, const std::vector<std::optional<Block>>& to,
                         const std::vector<std::optional<Block>>& from);

/// What all ranks give, each in as many parts as `own`, of lengths that no other rank knows: they
/// tell these first. `gathered` has it at the end, by part, then by rank, as long as the schedule
/// lives.
using Gathered = std::vector<std::vector<Block>>;
Schedule all_gather_of_any(Place place, std::vector<Block> own, std::shared_ptr<Gathered> gathered);

/// Rank 0 hears of all, then tells all: it is the one that can say who is missing.
Schedule monitored_barrier(Place place);

}  // namespace gear::process_group
