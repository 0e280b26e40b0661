#include <algorithm>
#include <cstring>
#include <optional>

#include "base/errors.h"
#include "base/threads/fence.h"
#include "base/threads/thread_pool.h"
#include "deliver/block_pool.h"
#include "gather/gather_cpu.h"
#include "group/mover.h"
#include "group/parcels/parcel_arena.h"
#include "group/parcels/parcel_format.h"
#include "group/remote_rows.h"

namespace gear::group {
namespace {

using transport::ConstBytes;

class HostMover final : public GroupMover {
 public:
  HostMover(MoverParts parts, std::unique_ptr<deliver::Stage> stage)
      : parts_(std::move(parts)),
        stage_(std::move(stage)),
        pool_(base::ThreadPool::shared()),
        readers_(parts_.peers.size()),
        messages_(parts_.peers.size()) {
    if (parts_.reader) {
      remote_ = std::make_unique<RemoteRows>(*parts_.layout, parts_.pages, *parts_.reader);
    } else if (parts_.in_arena) {
      std::vector<uint8_t> far;
      far.reserve(parts_.peers.size());
      for (const PeerPages& peer : parts_.peers) {
        far.push_back(peer.host == nullptr ? 1 : 0);
      }
      arena_ = std::make_unique<ParcelArena>(parts_.data, std::move(far));
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

  uint64_t wanted_room() const override { return arena_ ? arena_->wanted() : 0; }

  void make_room(uint64_t bytes) override {
    if (arena_) {
      arena_->make(bytes);
    }
  }

  void fill(plan::Batch& batch, std::span<const std::byte> bytes) override {
    acquire(batch);
    std::memcpy(batch.block.get(), bytes.data(), bytes.size());
    if (stage_) {
      stage_->send(batch);
    }
  }

  void pack(uint32_t consumer, Parcel& parcel) override {
    if (remote_) {
      readers_[consumer] = 1;
      return;
    }
    if (parcel.rows.bytes == 0) {
      return;
    }
    std::byte* out = nullptr;
    if (const auto place = arena_ ? arena_->place(parcel.rows.bytes) : std::nullopt) {
      readers_[consumer] = 1;
      put_rows_at(parcel, *place);
      out = arena_->at(*place);
    } else {
      out = room_behind(parcel, messages_[consumer]);
    }
    gather::pack_cpu(parts_.peers[parts_.rank].host, parts_.pages, *parts_.layout, parcel.plan,
                     parcel.rows, out, pool_);
    base::store_fence();  // the rows, before what says that they are there
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
      remote_->begin();
      for (uint32_t o = 0; o < parts_.peers.size(); ++o) {
        if (parts_.peers[o].host == nullptr) {
          remote_->add(o, assembly.plan(o));
        }
      }
      remote_->finish(batch, pool_);
    } else {
      unpack(assembly, batch);
    }
    if (remote_ || arena_) {
      tell_read(assembly);
    }
    if (stage_) {
      stage_->send(batch);
    }
  }

 private:
  void unpack(const BatchAssembly& assembly, plan::Batch& batch) {
    std::vector<ParcelArena::Piece> pieces;
    for (uint32_t o = 0; arena_ && o < parts_.peers.size(); ++o) {
      if (assembly.rows_at(o) < kRowsBehind) {
        pieces.push_back({o, assembly.rows_at(o), assembly.packed(o).bytes});
      }
    }
    const std::span<const ConstBytes> read =
        arena_ ? arena_->read(pieces) : std::span<const ConstBytes>();
    size_t next = 0;
    for (uint32_t o = 0; o < parts_.peers.size(); ++o) {
      const plan::PackedRows& rows = assembly.packed(o);
      if (rows.bytes == 0) {
        continue;
      }
      const bool is_read = arena_ && assembly.rows_at(o) < kRowsBehind;
      const ConstBytes came = is_read ? read[next++] : assembly.rows_behind(o);
      if (came.size() != rows.bytes) {
        throw base::TransportError(base::cat(
            "[loader] rank ", o, " sends ", came.size(), " bytes of rows, of which ", rows.bytes,
            " are to come: ranks of one group must run the same build with the same loader"));
      }
      gather::unpack_cpu(came.data(), rows, parts_.pages, assembly.plan(o), batch, pool_);
    }
  }

  // From here on the owners may write over what this rank has read.
  void tell_read(const BatchAssembly& assembly) {
    static constexpr std::byte kRead{1};
    std::vector<ConstBytes> to(parts_.peers.size());
    for (uint32_t o = 0; o < to.size(); ++o) {
      const bool read = remote_ ? parts_.peers[o].host == nullptr && assembly.items(o) > 0
                                : assembly.rows_at(o) < kRowsBehind;
      if (read) {
        to[o] = {&kRead, 1};
      }
    }
    std::vector<uint64_t> sizes(readers_.begin(), readers_.end());
    parts_.data.exchange(to, sizes);
    std::ranges::fill(readers_, uint8_t{0});
    if (arena_) {
      arena_->clear();
    }
  }

  MoverParts parts_;
  std::unique_ptr<RemoteRows> remote_;  // null: rows come packed
  std::unique_ptr<ParcelArena> arena_;  // null: those with their parcels
  std::unique_ptr<deliver::Stage> stage_;
  base::ThreadPool& pool_;
  std::shared_ptr<deliver::HostBlockPool> blocks_;
  std::vector<uint8_t> readers_;  // by consumer: 1 where it reads rows of this rank one-sided
  std::vector<std::vector<std::byte>> messages_;  // by consumer: parcel and rows of one batch
};

}  // namespace

std::unique_ptr<GroupMover> make_host_mover(MoverParts parts,
                                            std::unique_ptr<deliver::Stage> stage) {
  return std::make_unique<HostMover>(std::move(parts), std::move(stage));
}

}  // namespace gear::group
