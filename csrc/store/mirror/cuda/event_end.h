#pragma once

#include "base/cuda/cuda.h"
#include "store/read_tickets.h"

namespace gear::store {

/// The end of a read that a stream of a GPU makes: when that has come to the event.
class EventEnd final : public ReadEnd {
 public:
  explicit EventEnd(int device) : event(base::Event::on(device)) {}
  bool done() const noexcept override { return event.done_or_lost(); }

  base::Event event;
};

}  // namespace gear::store
