#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "engine/call.h"
#include "ranks/signature.h"
#include "schedule/schedule.h"

namespace gear::process_group {

class NodeMemory;

/// A message between this rank and `peer`, which is Wire::kAnyone to receive from whoever sends.
struct Letter {
  Kind kind;  ///< kSend or kReceive
  Block bytes;
  int peer;
  int tag;
  std::shared_ptr<Staging> staging = nullptr;  ///< if `bytes` stand for those of a GPU
};

/// Carries out the operations of one process group: what a backend of torch stands on.
class Carrier {
 public:
  explicit Carrier(std::shared_ptr<Ring> ring) : ring_(std::move(ring)) {}
  virtual ~Carrier() = default;
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  /// This rank as users see it: schedules are made for it.
  Place place() const noexcept { return ring_->place; }
  /// For calls that are made elsewhere.
  const std::shared_ptr<Ring>& ring() const noexcept { return ring_; }

  // Under the engine's lock: for Engine::submit.
  /// The group's next collective call.
  virtual std::shared_ptr<Call> begin(const Signature& signature, Schedule schedule,
                                      double timeout_s) = 0;
  virtual std::shared_ptr<Call> begin(const Letter& letter, double timeout_s) = 0;

  /// Memory of the node in which ranks hand each other pieces of tensors. Collective; null on all
  /// ranks where one does not want it or cannot have it. Throws TransportError when ranks do not
  /// come within timeout_s: the group has failed then.
  virtual std::shared_ptr<NodeMemory> share_memory(bool wanted, double timeout_s) = 0;

 protected:
  std::shared_ptr<Ring> ring_;
};

}  // namespace gear::process_group
