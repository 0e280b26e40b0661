#pragma once

#include <string_view>

#include "base/threads/origin.h"
#include "memory/region.h"

namespace gear::store {

/// What a forked child is told that asks its copy of a shard for what only the process that made
/// the shard can do: see Shard. Each throws InvalidArgument. `origin`: of the shard.
//
/// `call` changes something, which is the parent's.
[[noreturn]] void refuse_change(const base::Origin& origin, std::string_view call);
/// `call` reads rows, which lie on this tier, where the parent goes on writing them.
[[noreturn]] void refuse_rows(const base::Origin& origin, std::string_view call, memory::Tier tier);
/// `call` draws, and draws count for a limit of the parent's, an option of this name.
[[noreturn]] void refuse_draws(const base::Origin& origin, std::string_view call,
                               std::string_view limit);
/// Priorities are asked for, and a GPU of the parent's holds them.
[[noreturn]] void refuse_priorities(const base::Origin& origin);

}  // namespace gear::store
