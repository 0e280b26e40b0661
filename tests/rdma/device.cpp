// The transport tests that come along from tests/native are of this machine's libibverbs here, and
// with GEAR_TEST_MACHINE=0 or 1 of ranks in two machines.
#include <cstdlib>

#include "transport/verbs/verbs_ranks.h"
#include "two_machines.h"

const gear::transport::verbs::VerbsLibrary& gear::testing::verbs_under_test() {
  return gear::transport::verbs::verbs_library();
}
bool gear::testing::verbs_are_real() { return true; }

namespace {

// Before any test runs.
const bool in_one_of_two = [] {
  if (gear::testing::num_machines == 1) {
    return false;
  }
  gear::testing::make_messages = [](uint32_t size, double timeout_s) {
    const auto machine = static_cast<uint32_t>(std::atoi(std::getenv("GEAR_TEST_MACHINE")));
    return gear::testing::messages_between_machines(machine, size, timeout_s);
  };
  return true;
}();

}  // namespace
