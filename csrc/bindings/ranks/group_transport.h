#pragma once

#include <cstdint>
#include <memory>

#include "bindings/bindings.h"
#include "transport/transport.h"

namespace gear::bindings {

/// "group": a Transport over what a framework of the program already has. `channel` is a Python
/// object with
///
///     allgather(mine: memoryview, all: memoryview) -> None
///     exchange_bytes(to: list[memoryview], sizes: list[int] | None) -> list[buffer]
///     duplicate() -> channel
///
/// which keep none of the views, and which end within timeout_s. exchange_bytes is as
/// Transport::exchange; the own entry of what it returns is ignored. The GIL is taken for the calls
/// alone. gear.TransportError keeps its class and its text on the way, other exceptions become it.
/// Called with the GIL held; the transport itself may be used and destroyed without it.
std::unique_ptr<transport::Transport> make_group_transport(py::object channel, uint32_t rank,
                                                           uint32_t size, double timeout_s);

}  // namespace gear::bindings
