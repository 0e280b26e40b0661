// Run by in_vm.sh with the right to lock 1 MiB of memory, and without a device.
#include <string>
#include <vector>

#include "base/errors.h"
#include "rank_process.h"
#include "transport/loopback.h"
#include "transport/one_sided/remote_memory.h"
#include "transport/verbs.h"

using namespace gear::transport;

namespace {

std::unique_ptr<Transport> alone(uint64_t piece_bytes) {
  return make_verbs(std::move(make_loopback(1, 5)[0]), {piece_bytes, 1, nullptr});
}

template <class What>
std::string error_of(const What& what) {
  try {
    what();
  } catch (const gear::base::TransportError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("rdma limits: less memory may be locked than a rank has" * doctest::skip()) {
  const auto transport = alone(16 << 20);
  std::vector<std::byte> memory(16 << 20);
  CHECK(error_of([&] { static_cast<void>(transport->expose(memory)); }) ==
        "[transport] verbs: rank 0: rxe0 registers 0 of 16777216 bytes, and then fails (Cannot "
        "allocate memory): this process may lock 1048576 bytes of memory; raise the limit (ulimit "
        "-l, LimitMEMLOCK of slurmd), or use less memory");
}

TEST_CASE("rdma limits: memory of an earlier buffer uses up what may be locked" * doctest::skip()) {
  const auto transport = alone(256 << 10);
  std::vector<std::byte> first(576 << 10);
  std::vector<std::byte> second(1 << 20);
  auto exposed = transport->expose(first);
  REQUIRE(exposed);
  CHECK(error_of([&] { static_cast<void>(transport->expose(second)); }) ==
        "[transport] verbs: rank 0: rxe0 registers 262144 of 1048576 bytes, and then fails (Cannot "
        "allocate memory): this process may lock 1048576 bytes of memory; raise the limit (ulimit "
        "-l, LimitMEMLOCK of slurmd), or use less memory");
  exposed.reset();
  CHECK(transport->expose(first));
}

TEST_CASE("rdma limits: there is no device" * doctest::skip()) {
  const std::string said = error_of([] { static_cast<void>(alone(256 << 10)); });
  INFO(said);
  CHECK(said.starts_with("[transport] verbs: rank 0: no RDMA device was found"));
}
