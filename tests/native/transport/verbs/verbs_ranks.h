#pragma once

#include "transport/opened_ranks.h"
#include "transport/verbs/verbs_device.h"

namespace gear::testing {

/// What these tests are of: a fake in the native tests, the machine's libibverbs in tests/rdma.
const transport::verbs::VerbsLibrary& verbs_under_test();
bool verbs_are_real();

inline Ranks make_verbs_ranks(uint32_t size, double timeout_s,
                              const transport::VerbsOptions& options = {},
                              const transport::verbs::VerbsLibrary& (*find)() = verbs_under_test) {
  return open_ranks(size, timeout_s, [&](std::shared_ptr<transport::Transport> messages) {
    return transport::verbs::open_verbs(std::move(messages), options, find);
  });
}

}  // namespace gear::testing
