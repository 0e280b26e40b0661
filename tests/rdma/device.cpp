// The transport tests that come along from tests/native are of this machine's libibverbs here.
#include "transport/verbs/verbs_ranks.h"

const gear::transport::verbs::VerbsLibrary& gear::testing::verbs_under_test() {
  return gear::transport::verbs::verbs_library();
}
bool gear::testing::verbs_are_real() { return true; }
