#pragma once

#include <string>

namespace gear::memory {

/// "ranks." and 16 hex digits: a name for memory of a program that gave none. The ranks of a group
/// tell it each other, and its owner takes it away when all have mapped the memory
/// (Region::hide_name); a process alone keeps it. Calls remove_abandoned() first.
std::string made_up_name();

/// Removes such memory of processes that have ended, of this user and GEAR_SHM_PREFIX: of those
/// that were killed before they took the name away. Logged as kInfo. What cannot be read, belongs
/// to another user or is locked is left alone; waits for nobody.
void remove_abandoned() noexcept;

}  // namespace gear::memory
