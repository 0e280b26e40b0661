#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "memory/region.h"
#include "transport/failure.h"
#include "transport/transport.h"

namespace gear::transport {

/// "shared_memory": the ranks are processes of one node and one user, or threads. Collective: rank
/// 0 makes a memory::SharedRegion of this name, which no other group uses at that time, the others
/// map it, and its name is gone from /dev/shm when this returns: nothing is left behind however the
/// ranks end. A region takes 128 KiB a rank; entries of any size pass through it.
///
/// A rank whose process has ended, or which has left, is named by the others at once, not after
/// timeout_s. A short wait spins, a long one sleeps.
///
/// Throws InvalidArgument for a name or membership that cannot be, OutOfMemory where /dev/shm is
/// too small, TransportError naming the ranks that do not come within timeout_s.
/// `failure`: of the rank's group; null: of this transport and its duplicates alone.
/// `known_as`: what words of errors call the ranks, which are part of a larger group; empty: by
/// their numbers here.
std::unique_ptr<Transport> make_shared_memory(std::string_view name, uint32_t rank, uint32_t size,
                                              double timeout_s,
                                              std::shared_ptr<Failure> failure = nullptr,
                                              std::vector<uint32_t> known_as = {});

/// Rank 0's region, for a group that hears first whether there is one; rank 0 then goes on with it
/// as below, the others with its name as above. Throws OutOfMemory where /dev/shm is too small.
std::shared_ptr<memory::Region> make_shared_memory_region(std::string_view name, uint32_t size);

/// The same for ranks that have a region in common already, of shared_memory_bytes(size) zeros.
std::unique_ptr<Transport> make_shared_memory(std::shared_ptr<memory::Region> region, uint32_t rank,
                                              uint32_t size, double timeout_s,
                                              std::shared_ptr<Failure> failure = nullptr,
                                              std::vector<uint32_t> known_as = {});
uint64_t shared_memory_bytes(uint32_t size);

}  // namespace gear::transport
