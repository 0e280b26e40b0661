#include <cstring>

#include "base/threads/thread_pool.h"
#include "deliver/block_pool.h"
#include "gather/gather_cpu.h"
#include "group/mover.h"
#include "group/parcels/parcel_arena.h"
#include "group/remote_rows.h"
#include "transport/typed.h"

namespace gear::group {
namespace {

using transport::ConstBytes;

class HostMover final : public GroupMover {
 public:
  HostMover(MoverParts parts, std::unique_ptr<deliver::Stage> stage)
      : parts_(std::move(parts)),
        stage_(std::move(stage)),
        pool_(base::ThreadPool::shared()),
        sent_(parts_.peers.size()) {
    if (parts_.reader) {
      remote_ = std::make_unique<RemoteRows>(*parts_.layout, parts_.pages, *parts_.reader);
    } else if (parts_.in_arena) {
      arena_ = std::make_unique<ParcelArena>(parts_.data);
    }
    // Of staged batches as many again are on their way to the GPU.
    const size_t most_blocks = (parts_.prefetch + 2) * (stage_ ? 2 : 1);
    blocks_ = deliver::make_host_blocks(parts_.layout->bytes, most_blocks,
                                        stage_ ? stage_->device() : -1);
    if (stage_) {
      blocks_->make(most_blocks);
    }
  }

  void acquire(plan::Batch& batch) override { batch.block = deliver::bytes_of(blocks_->acquire()); }
  void begin(plan::Batch&) override {}

  void fill(plan::Batch& batch, std::span<const std::byte> bytes) override {
    acquire(batch);
    std::memcpy(batch.block.get(), bytes.data(), bytes.size());
    if (stage_) {
      stage_->send(batch);
    }
  }

  void pack(uint32_t consumer, const plan::Plan& plan, const plan::PackedRows& rows) override {
    if (!arena_) {
      sent_[consumer].resize(rows.bytes);
    }
    std::byte* const out = arena_ ? arena_->place(consumer, rows.bytes) : sent_[consumer].data();
    gather::pack_cpu(parts_.peers[parts_.rank].host, parts_.pages, *parts_.layout, plan, rows, out,
                     pool_);
  }

  void gather(uint64_t, const BatchAssembly& assembly, plan::Batch& batch, bool messages) override {
    for (uint32_t o = 0; o < parts_.peers.size(); ++o) {
      if (parts_.peers[o].host != nullptr) {
        gather::gather_cpu(parts_.peers[o].host, parts_.pages, assembly.plan(o), batch, pool_);
      }
    }
    gather::gather_cpu(nullptr, parts_.pages, assembly.padding(), batch, pool_);
    if (stage_ && !messages) {
      stage_->send(batch);
    }
  }

  void wait_read(uint64_t) override {}

  void exchange(uint64_t, const BatchAssembly& assembly, plan::Batch& batch) override {
    if (remote_) {
      read(assembly, batch);
    } else {
      receive(assembly, batch);
    }
    if (stage_) {
      stage_->send(batch);
    }
  }

 private:
  void read(const BatchAssembly& assembly, plan::Batch& batch) {
    remote_->begin();
    for (uint32_t o = 0; o < parts_.peers.size(); ++o) {
      if (parts_.peers[o].host == nullptr) {
        remote_->add(o, assembly.plan(o));
      }
    }
    remote_->finish(batch, pool_);
    // From here on the owners may write the pages again.
    static_cast<void>(transport::allgather(parts_.data, uint8_t{1}));
  }

  void receive(const BatchAssembly& assembly, plan::Batch& batch) {
    std::vector<uint64_t> bytes(parts_.peers.size());
    for (uint32_t r = 0; r < parts_.peers.size(); ++r) {
      bytes[r] = assembly.packed(r).bytes;
    }
    const std::vector<ConstBytes> to(sent_.begin(), sent_.end());
    const std::span<const ConstBytes> arrived =
        arena_ ? arena_->fetch(bytes) : parts_.data.exchange(to, bytes);
    for (uint32_t r = 0; r < parts_.peers.size(); ++r) {
      if (!arrived[r].empty()) {
        gather::unpack_cpu(arrived[r].data(), assembly.packed(r), parts_.pages, assembly.plan(r),
                           batch, pool_);
      }
    }
    for (std::vector<std::byte>& one : sent_) {
      one.clear();
    }
  }

  MoverParts parts_;
  std::unique_ptr<RemoteRows> remote_;  // null: rows come packed
  std::unique_ptr<ParcelArena> arena_;  // null: those by message
  std::unique_ptr<deliver::Stage> stage_;
  base::ThreadPool& pool_;
  std::shared_ptr<deliver::HostBlockPool> blocks_;
  std::vector<std::vector<std::byte>> sent_;  // by consumer, until exchanged
};

}  // namespace

std::unique_ptr<GroupMover> make_host_mover(MoverParts parts,
                                            std::unique_ptr<deliver::Stage> stage) {
  return std::make_unique<HostMover>(std::move(parts), std::move(stage));
}

}  // namespace gear::group
