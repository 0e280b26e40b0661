// Run by run.sh without the right to lock memory, and without a device.
#include <string>
#include <vector>

#include "base/errors.h"
#include "rank_process.h"
#include "transport/loopback.h"
#include "transport/one_sided/remote_memory.h"
#include "transport/verbs.h"

using namespace gear::transport;

namespace {

std::string error_of_opening(bool expose) {
  try {
    std::vector<std::unique_ptr<Transport>> ranks = make_loopback(1, 5);
    const auto transport = make_verbs(std::move(ranks[0]), {});
    std::vector<std::byte> memory(16 << 20);
    if (expose) {
      static_cast<void>(transport->expose(memory));
    }
  } catch (const gear::base::TransportError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("rdma limits: less memory may be locked than a rank has" * doctest::skip()) {
  CHECK(error_of_opening(true) ==
        "[transport] verbs: rank 0: rxe0 registers 0 of 16777216 bytes, and then fails (Cannot "
        "allocate memory): this process may lock 1048576 bytes of memory; raise the limit (ulimit "
        "-l, LimitMEMLOCK of slurmd), or use less memory");
}

TEST_CASE("rdma limits: there is no device" * doctest::skip()) {
  const std::string said = error_of_opening(false);
  INFO(said);
  CHECK(said.starts_with("[transport] verbs: rank 0: no RDMA device was found"));
}
