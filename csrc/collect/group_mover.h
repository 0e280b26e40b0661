#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collect/collector.h"
#include "collect/parcel.h"
#include "transport/device_transport.h"
#include "transport/transport.h"

namespace gear::collect {

// Moves the rows of batches over many ranks, to host memory or to a GPU. One batch after the other,
// in the order of the batches on every rank:
//
//   begin ── pack(c), for every rank c that receives rows by message ── exchange ── deliver
//
// begin() to pack() are called by the collector's thread. exchange() and deliver() too, unless
// on_stream(): then they only enqueue work on a stream of the mover, and are called in the thread of
// next(), at the call that delivers the batch before: a fixed place among the training step's own
// collectives, the same on every rank, so that neither waits for the other.
class GroupMover {
 public:
  virtual ~GroupMover() = default;

  virtual bool on_stream() const { return false; }

  // Gives `batch` a block in which the host writes everything but the rows' data.
  virtual void begin(Batch& batch) = 0;
  // Packs rows of the own shard, which `plan` names, for rank `consumer`.
  virtual void pack(uint32_t consumer, const Plan& plan, const PackedRows& rows) = 0;
  // Sends what was packed and receives from[o].bytes from every rank o. Collective.
  virtual void exchange(std::span<const PackedRows> from) = 0;
  // Moves the rows of every owner into the data of `batch`; from then on it may be delivered, and is
  // filled when batch.delivery says so (null: now).
  virtual void deliver(const BatchAssembly& assembly, std::span<const PackedRows> from,
                       Batch& batch) = 0;
  // Returns when the last delivered batch no longer reads any pages, its own or its peers'.
  virtual void wait_read() = 0;
};

// Where the pages of a rank's shard can be read from here.
struct PeerPages {
  const std::byte* host = nullptr;    // by the host; null: not at all
  const std::byte* device = nullptr;  // by kernels on the consumer's GPU; null: not at all
};

// `peers`: by rank, the own one included; a rank without any address sends its rows. `layout` is
// that of all batches, of which up to `depth` are in flight or with the consumer.
//
// By host threads, into host memory or, with `stage`, on to a GPU; rows travel by `data`.
std::unique_ptr<GroupMover> make_host_mover(std::shared_ptr<const BatchLayout> layout,
                                            const store::PageLayout& pages,
                                            std::vector<PeerPages> peers, uint32_t rank,
                                            size_t depth, transport::Transport& data,
                                            std::unique_ptr<Stage> stage);
// By kernels of GPU `device`. Rows travel by `nccl`, or where that is null through pinned host
// memory by `data`. `own` is the rank's region, of tier kDevice or kPinned.
std::unique_ptr<GroupMover> make_device_mover(std::shared_ptr<const BatchLayout> layout,
                                              const store::PageLayout& pages,
                                              std::vector<PeerPages> peers, uint32_t rank,
                                              size_t depth, int device,
                                              transport::Transport& data,
                                              std::unique_ptr<transport::DeviceTransport> nccl);

}  // namespace gear::collect
