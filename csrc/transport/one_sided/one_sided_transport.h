#pragma once

#include <functional>
#include <memory>

#include "transport/failure.h"
#include "transport/one_sided/device.h"
#include "transport/transport.h"

namespace gear::transport {

/// A transport whose expose() gives memory to the device that `open` returns, and whose messages
/// go by `messages`. Collective over `messages`. `kind`: "verbs". Where it is not `required`,
/// memory that some rank's device cannot register is not exposed by any: a warning says why.
///
/// Throws TransportError on all ranks alike, naming each rank whose `open` throws and why, or whose
/// device cannot reach another's.
std::unique_ptr<Transport> make_one_sided(
    std::shared_ptr<Transport> messages, std::string_view kind,
    const std::function<std::shared_ptr<const Device>()>& open, std::shared_ptr<Failure> failure,
    bool required);

}  // namespace gear::transport
