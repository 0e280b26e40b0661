#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ranks/receive_order.h"
#include "ranks/roll_call.h"
#include "ranks/send_order.h"

namespace gear::process_group {

/// A process group, as its calls see it.
struct Ring {
  Ring(const std::vector<int>& world_ranks, std::string of_group, double timeout_s)
      : name(std::move(of_group)),
        communicator(world_ranks, name, timeout_s),
        roll_call(communicator) {}

  const std::string name;
  Communicator communicator;
  RollCall roll_call;
  SendOrder sends;
  ReceiveOrder receives;
  Clock::time_point listened{};
};

}  // namespace gear::process_group
