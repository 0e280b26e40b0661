#pragma once

#include <string>

namespace gear::memory {

/// "ranks." and 16 hex digits: a name for memory that the ranks of one group map. Nobody else ever
/// learns it, and its owner takes it away when all have mapped the memory (Region::hide_name).
/// Calls remove_abandoned() first.
std::string made_up_name();

/// Removes such memory of processes that have ended, of this user and GEAR_SHM_PREFIX: of ranks
/// that were killed before the others had mapped it. Logged as kInfo. What cannot be read, belongs
/// to another user or is locked is left alone; waits for nobody.
void remove_abandoned() noexcept;

}  // namespace gear::memory
