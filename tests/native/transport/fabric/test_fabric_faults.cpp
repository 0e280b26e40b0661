// What libfabric and its operator can get wrong, and how it is said: over this machine's tcp.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/errors.h"
#include "scoped_variable.h"
#include "transport/fabric.h"
#include "transport/failure.h"
#include "transport/one_sided/remote_memory.h"
#include "transport/opened_ranks.h"

using namespace gear::testing;
using namespace gear::transport;
using gear::base::TransportError;

namespace {

Ranks fabric_ranks(uint32_t size, double timeout_s, const FabricOptions& options = {}) {
  return open_ranks(size, timeout_s, [&](std::shared_ptr<Transport> messages) {
    return make_fabric(std::move(messages), options);
  });
}

std::string error_of_opening() {
  try {
    static_cast<void>(fabric_ranks(2, 200));
  } catch (const TransportError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("fabric faults: a provider or domain that is not there is named on all ranks") {
  const auto said = [](const char* variable, const char* value, const char* part) {
    const ScopedVariable set(variable, value);
    const std::string error = error_of_opening();
    INFO(error);
    CHECK(error.starts_with("[transport] fabric: rank 0: no provider of libfabric fits, "));
    CHECK(error.find(part) != std::string::npos);
    CHECK(error.find("; rank 1: no provider of libfabric fits, ") != std::string::npos);
  };
  said("GEAR_FABRIC_PROVIDER", "cxj", "GEAR_FABRIC_PROVIDER='cxj' (No data available): fi_info");
  said("GEAR_FABRIC_DOMAIN", "eth77", "GEAR_FABRIC_DOMAIN='eth77': there are ");
}

TEST_CASE("fabric faults: what carries the rows is said") {
  const ScopedVariable set("GEAR_FABRIC_PROVIDER", "tcp");
  CHECK(describe_fabric().starts_with("tcp"));
  CHECK(describe_fabric().find(" on ") != std::string::npos);
}

TEST_CASE("fabric faults: a closed buffer is named by who reads it, and to the group") {
  const ScopedVariable set("GEAR_FABRIC_PROVIDER", "tcp");
  const auto failure = std::make_shared<Failure>();
  Ranks ranks = fabric_ranks(2, 200, {uint64_t{1} << 30, failure});
  const auto errors = errors_of(ranks, [](Transport& transport) {
    std::vector<std::byte> mine(4096);
    auto memory = transport.expose(mine);
    const auto reader = memory->connect(transport);
    const std::vector<RemoteRead> reads(40, {1 - transport.rank(), 0, 64, 0});
    static_cast<void>(reader->read(reads, 64));
    transport.allgather({}, {});
    if (transport.rank() == 1) {
      memory.reset();
    }
    transport.allgather({}, {});
    std::string first;
    try {
      if (transport.rank() == 0) {
        static_cast<void>(reader->read(reads, 64));
      }
    } catch (const TransportError& error) {
      first = error.what();
    }
    transport.allgather({}, {});
    if (transport.rank() == 0) {
      static_cast<void>(reader->read(reads, 64));  // fails again, in the same words
      throw std::logic_error(first);
    }
  });
  CHECK(errors[1] == "");
  INFO(errors[0]);
  CHECK(errors[0].starts_with("[transport] "));
  CHECK(errors[0].find("rank 1") != std::string::npos);
  CHECK(failure->text() == errors[0]);
}
