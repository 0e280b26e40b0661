#pragma once

#include <string>
#include <string_view>

#include "base/errors.h"
#include "transport/transport.h"

namespace gear::transport {

/// What `attempt` throws, in words; empty: nothing.
template <class Attempt>
std::string failure_of(const Attempt& attempt) {
  try {
    attempt();
  } catch (const base::Error& error) {
    return error.what();
  }
  return {};
}

/// Nobody goes on alone: throws TransportError on all ranks, with the words of each for which
/// `failed` is not empty. `kind`: "verbs". Collective over `messages`.
void agree(Transport& messages, std::string_view kind, std::string_view failed);

}  // namespace gear::transport
