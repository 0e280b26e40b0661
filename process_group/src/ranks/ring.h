#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ranks/receive_order.h"
#include "ranks/roll_call.h"
#include "ranks/send_order.h"

namespace gear::process_group {

/// A process group, as its calls see it.
struct Ring {
  /// `of_users`: this rank as users see it; `over` may reach the first ranks of the group alone.
  Ring(std::string of_group, Place of_users, std::vector<int> world_ranks,
       std::unique_ptr<Wire> over)
      : name(std::move(of_group)),
        place(of_users),
        wire(std::move(over)),
        group(std::move(world_ranks), *wire),
        roll_call(*wire, group) {}

  const std::string name;
  const Place place;
  const std::unique_ptr<Wire> wire;
  Group group;
  RollCall roll_call;
  SendOrder sends;
  ReceiveOrder receives;
  Time listened;
};

}  // namespace gear::process_group
