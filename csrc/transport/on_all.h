#pragma once

#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include "transport/transport.h"

namespace gear::transport {

/// A step of each rank's own, which all take or none. A rank throws what its step threw; where it
/// failed on others only, one of the same class, with "on rank 1: " before the words of the first
/// of them. So no rank waits for one that has left with its error. What the host program raised,
/// Ctrl-C, passes at once. Collective.
void on_all(Transport& control, const std::function<void()>& step);

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

/// Where all ranks throw alike, with what each of them says:
/// what failed on any rank, the same words on all: of each for which `failed` is not empty. Empty:
/// nothing. `kind`: "verbs". Collective over `messages`.
std::string failures(Transport& messages, std::string_view kind, std::string_view failed);

/// Nobody goes on alone: throws TransportError on all ranks where there are failures().
void agree(Transport& messages, std::string_view kind, std::string_view failed);

}  // namespace gear::transport
