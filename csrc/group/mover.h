#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "deliver/stage.h"
#include "group/parcels/batch_assembly.h"
#include "group/parcels/parcel_writer.h"
#include "group/peers/page_access.h"
#include "transport/device_transport.h"
#include "transport/one_sided/remote_memory.h"
#include "transport/transport.h"

namespace gear::group {

/// Moves the rows of batches over many ranks, to host memory or to a GPU. One batch after the
/// other, in the order of their numbers (0, 1, ...), the same on every rank:
///
///   acquire ── begin ── pack(c), for every rank c that does not read the own pages by pointer
///           ── parcels to their consumers ── gather ── wait_read
///           ── exchange                          (not where every rank reads every other's pages)
///
/// Where there is a reader, no rank packs: exchange() reads the rows out of their owners' pages.
/// Where rows are packed in an arena, it reads them there. Either returns when those that read this
/// rank's have done so.
///
/// Called by the source's own thread, or where it has none by that of next(); acquire() by that of
/// next(), and exchange() too where on_stream(): there it only enqueues work, at the call that
/// delivers the batch before, which is a fixed place among the training step's own collectives, the
/// same on every rank, so that neither waits for the other. gather() never waits for a rank's
/// next(): a writer may wait for it.
class GroupMover {
 public:
  virtual ~GroupMover() = default;

  virtual bool on_stream() const { return false; }

  /// Gives `batch`, which is not drawn yet, its memory. Throws OutOfMemory; nothing is lost then.
  virtual void acquire(plan::Batch& batch) = 0;
  /// From here on the host writes everything but the rows' data into the block of `batch`.
  virtual void begin(plan::Batch& batch) = 0;
  /// Gives `batch` a block that holds these bytes of one: a resumed batch, filled.
  virtual void fill(plan::Batch& batch, std::span<const std::byte> bytes) = 0;
  /// Bytes that it would like every rank to read of it one-sided, so that batches like the largest
  /// so far find room there; 0: none. Any thread.
  virtual uint64_t wanted_room() const { return 0; }
  /// So many have it from here on: the most that any rank wanted. Collective over the parts'
  /// `data`.
  virtual void make_room(uint64_t) {}
  /// Packs the rows of the own shard that go with a parcel for rank `consumer`, and puts into the
  /// parcel where it finds them.
  virtual void pack(uint32_t consumer, Parcel& parcel) = 0;
  /// Moves what lies in own and peers' pages into the data of `batch`, and its padding. Without
  /// `messages` to come the batch may be delivered from then on, and is filled when
  /// batch.delivery says so (null: now).
  virtual void gather(uint64_t number, const BatchAssembly& assembly, plan::Batch& batch,
                      bool messages) = 0;
  /// Returns when nothing reads pages any more for the batches up to `number`.
  virtual void wait_read(uint64_t number) = 0;
  /// Brings the rows of batch `number` that others have for this rank, and did not come with their
  /// parcels, sends what it packed for them, and moves what came into the data of `batch`, which
  /// may be delivered from then on.
  virtual void exchange(uint64_t number, const BatchAssembly& assembly, plan::Batch& batch) = 0;
};

/// What a mover is made for.
struct MoverParts {
  std::shared_ptr<const plan::BatchLayout> layout;  ///< of all batches
  store::PageLayout pages;
  std::vector<PeerPages> peers;  ///< by rank, the own one included; without address: it sends rows
                                 ///< or, with num_pages, `reader` reads them
  uint32_t rank;
  size_t prefetch;             ///< so many batches are behind the one that is delivered
  transport::Transport& data;  ///< rows travel by it
  std::unique_ptr<transport::RemoteReader> reader = nullptr;  ///< of the host mover
  bool in_arena = false;  ///< the host mover's packed rows are read one-sided, through `data`
};

/// By host threads, into host memory or, with `stage`, on to a GPU.
std::unique_ptr<GroupMover> make_host_mover(MoverParts parts,
                                            std::unique_ptr<deliver::Stage> stage);
/// By kernels of GPU `device`. Rows travel by `nccl`, or where that is null through pinned host
/// memory. The own pages are of tier kDevice or kPinned.
std::unique_ptr<GroupMover> make_device_mover(MoverParts parts, int device,
                                              std::unique_ptr<transport::DeviceTransport> nccl);

}  // namespace gear::group
