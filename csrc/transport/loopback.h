#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/failure.h"
#include "transport/transport.h"

namespace gear::transport {

/// "loopback": the ranks are threads of this process, which copy bytes from one another. The
/// transport of rank r is at [r]; each may go to a thread of its own, and outlive the others. A
/// rank whose transport is destroyed has left: others that wait for it throw TransportError at
/// once.
///
/// `failures`: of every rank's group; empty: of these transports and their duplicates alone.
///
/// Throws InvalidArgument for no or too many ranks, and a time-out that is not above 0.
std::vector<std::unique_ptr<Transport>> make_loopback(
    uint32_t size, double timeout_s, const std::vector<std::shared_ptr<Failure>>& failures = {});

}  // namespace gear::transport
