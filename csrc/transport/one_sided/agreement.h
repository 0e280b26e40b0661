#pragma once

#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include "transport/transport.h"

namespace gear::transport {

/// What `attempt` throws, in words; empty: nothing. An exception of the host program passes.
template <class Attempt>
std::string failure_of(const Attempt& attempt) {
  try {
    attempt();
  } catch (const std::runtime_error& error) {  // GEAR's own are such
    return error.what();
  } catch (const std::logic_error& error) {
    return error.what();
  } catch (const std::bad_alloc&) {
    return "no memory left";
  }
  return {};
}

/// What failed on any rank, the same words on all: of each for which `failed` is not empty. Empty:
/// nothing. `kind`: "verbs". Collective over `messages`.
std::string failures(Transport& messages, std::string_view kind, std::string_view failed);

/// Nobody goes on alone: throws TransportError on all ranks where there are failures().
void agree(Transport& messages, std::string_view kind, std::string_view failed);

}  // namespace gear::transport
