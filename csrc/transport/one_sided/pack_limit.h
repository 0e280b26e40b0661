#pragma once

#include <cstdint>

#include "transport/transport.h"

namespace gear::transport {

/// Below how many bytes a run of rows comes sooner if its owner copies it behind the others, and
/// all are read at once, than if it is read alone: GEAR_PACK_BELOW, else measured here against rank
/// `owner`, in rows of 64 B to 64 KiB, each size 4 times the one before: half-way, in ratio,
/// between the last size that gains and the next. 0 where none does, and where `transport` exposes
/// no memory.
///
/// The same on all ranks, for the seconds of all together. Collective. Throws
/// InvalidArgument, on all ranks alike, where GEAR_PACK_BELOW is no number of bytes or not the same
/// on every rank.
uint64_t agree_on_pack_below(Transport& transport, uint32_t owner);

}  // namespace gear::transport
