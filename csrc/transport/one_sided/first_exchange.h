#pragma once

#include <cstdint>
#include <span>

#include "transport/transport.h"

namespace gear::transport {

/// How many bytes a second of other ranks' rows come by `transport`: of the slowest rank, the same
/// number on all. Rank r gets rows of 1 KiB and of 64 KiB of rank sources[r], half a MiB of each,
/// all ranks at a time: packed by their owner into a message, or read one-sided, with an exchange
/// behind it. The median of three times, after one that does not count.
///
/// sources: the same on all ranks, sources[r] != r. Collective; some milliseconds over a fast
/// network. `patience_s`: longest wait for one read, less than the time-out of the messages, which
/// are of use after a read has failed.
///
/// Throws TransportError: where rows are read, on all ranks alike, and naming each on which it
/// failed; of messages, as the transport does. Rows that differ from their owner's are a failure.
double first_exchange(Transport& transport, std::span<const uint32_t> sources, double patience_s);

}  // namespace gear::transport
