#pragma once

#include <memory>
#include <span>
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

  /// Wire::settle for a call that the group's failure ends. It waits until something has not ended,
  /// and for nothing after that: all calls of a group have one moment, of the engine's lock, and
  /// not one each.
  bool settle(std::span<Wire::Request> open) noexcept {
    const bool all = wire->settle(open, settles);
    settles = settles && all;
    return all;
  }

  const std::string name;
  const Place place;
  const std::unique_ptr<Wire> wire;
  Group group;
  RollCall roll_call;
  SendOrder sends;
  ReceiveOrder receives;
  Time listened;
  bool settles = true;  // so far
};

}  // namespace gear::process_group
