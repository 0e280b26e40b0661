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

/// What failed on any rank, the same words on all: of each for which `failed` is not empty. Empty:
/// nothing. `kind`: "verbs". Collective over `messages`.
std::string failures(Transport& messages, std::string_view kind, std::string_view failed);

/// Nobody goes on alone: throws TransportError on all ranks where there are failures().
void agree(Transport& messages, std::string_view kind, std::string_view failed);

}  // namespace gear::transport
