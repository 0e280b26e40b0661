#include "transport/transport.h"

#include "transport/one_sided/remote_memory.h"

namespace gear::transport {

void Transport::look() {}

std::unique_ptr<RemoteMemory> Transport::expose(Bytes) { return nullptr; }

}  // namespace gear::transport
