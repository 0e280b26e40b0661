#pragma once

#include <cstdint>
#include <span>

#include "bindings/one_thread.h"
#include "group/peers/peers.h"
#include "group/pull/published_shards.h"

namespace gear::bindings {

/// The peers of a buffer, and which thread draws over them: the ranks meet in every draw, in one
/// order, so that a second thread's draw would wait for one that waits for it.
class BufferPeers final : public group::Peers {
 public:
  using Peers::Peers;

  /// As of its outbox.
  void update(std::span<const int64_t> ids, std::span<const float> priorities) {
    outbox().update(ids, priorities);
  }
  void update_from_device(const int64_t* ids, const float* priorities, uint64_t count,
                          uintptr_t stream) {
    outbox().update_from_device(ids, priorities, count, stream);
  }

  /// From here on ranks may pull from one another. Collective.
  void publish() { published = std::make_shared<group::PublishedShards>(*this); }
  std::shared_ptr<group::PublishedShards> published;  ///< null: they may not

  OneThread draws{
      "[loader] another thread draws from this buffer, and over a group all loaders of a buffer "
      "belong into one thread: call next() of one after the other, in the same order on all ranks"};
};

}  // namespace gear::bindings
