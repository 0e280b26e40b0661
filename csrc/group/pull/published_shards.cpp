#include "group/pull/published_shards.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <optional>
#include <string>

#include "base/errors.h"
#include "base/threads/fence.h"
#include "base/threads/interrupt.h"
#include "memory/shared/shared_region.h"
#include "transport/on_all.h"
#include "transport/typed.h"

namespace gear::group {
namespace {

constexpr std::string_view kNoSchema = "0000000000000000";

// Word by word: each is whole.
void copy_words(const std::byte* from, uint64_t bytes, std::byte* to) {
  for (uint64_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    auto* word = reinterpret_cast<uint64_t*>(const_cast<std::byte*>(from + i));
    const uint64_t value = std::atomic_ref(*word).load(std::memory_order_acquire);
    std::memcpy(to + i, &value, sizeof value);
  }
}

}  // namespace

PublishedShards::PublishedShards(Peers& peers) {
  transport::Transport& control = peers.control();
  const uint64_t page_steps = peers.shard().layout().page_steps;
  for (uint32_t r = 0; r < peers.size(); ++r) {
    layouts_.emplace_back(peers.num_slots(r) / page_steps);
  }
  const PageAccess access = peers.agree_on_access(-1, control);
  if (access.others == Way::kMessage) {
    throw base::InvalidArgument(base::cat(
        "[group] ranks cannot pull from one another: some rank's steps are neither in memory that "
        "others map (tier 'shared' or 'pinned', on one node) nor read one-sided; give such a tier, "
        "or transport 'verbs' or 'fabric' and a tier of host memory; ranks' bytes go by '",
        control.name(), "'"));
  }
  pages_ = access.pages;
  make_index(peers);
  if (access.moves_rows()) {
    page_reader_ = peers.remote()->connect(control, access.far());
    index_reader_ = far_indexes_->connect(control, access.far());
  }
}

// Named memory, which the ranks that map its owner's pages map too.
void PublishedShards::make_index(Peers& peers) {
  transport::Transport& control = peers.control();
  const uint32_t rank = peers.rank();
  const uint64_t number = peers.next_loader();
  indexes_.resize(peers.size());
  std::shared_ptr<memory::SharedRegion> own;
  transport::on_all(control, [&] {
    own = memory::SharedRegion::create(peers.shared_name(rank, number), layouts_[rank].bytes,
                                       kNoSchema);
    indexes_[rank] = own;
    const auto lock = peers.shard().lock_between_draws();
    peers.shard().publish_index(own);
  });
  transport::on_all(control, [&] {
    for (uint32_t r = 0; r < peers.size(); ++r) {
      if (r != rank && by_pointer(r)) {
        auto index = memory::SharedRegion::attach(peers.shared_name(r, number), kNoSchema);
        index->allow_writes(false);
        indexes_[r] = std::move(index);
      }
    }
  });
  own->hide_name();
  if (peers.remote() != nullptr) {
    far_indexes_ = control.expose({own->data(), own->bytes()});
    if (!far_indexes_) {
      throw base::InvalidArgument(
          "[group] ranks cannot pull from one another: a rank's index could not be registered for "
          "reads, as its warning says");
    }
  }
}

PublishedShards::Turn::Turn(PublishedShards& shards) : shards_(shards) {
  std::unique_lock guard(shards_.mutex_);
  shards_.turns_.push_back(this);
  while (shards_.turns_.front() != this) {
    shards_.ended_.wait_for(guard, base::kInterruptEvery);
    guard.unlock();
    try {
      base::check_interrupt();
    } catch (...) {
      leave();
      throw;
    }
    guard.lock();
  }
}

PublishedShards::Turn::~Turn() { leave(); }

void PublishedShards::Turn::leave() {
  {
    const std::lock_guard guard(shards_.mutex_);
    std::erase(shards_.turns_, this);
  }
  shards_.ended_.notify_all();
}

void PublishedShards::read(Part part, std::span<const Read> reads) {
  std::optional<Turn> turn;
  for (const Read& one : reads) {
    if (!by_pointer(one.owner)) {
      if (!turn) {
        turn.emplace(*this);
        far_.clear();
      }
      far_.push_back({{one.owner, one.from, one.bytes, 0}, one.to});
    } else if (part == Part::kIndex) {
      copy_words(indexes_[one.owner]->data() + one.from, one.bytes, one.to);
    } else {
      std::memcpy(one.to, pages_[one.owner].host + one.from, one.bytes);
    }
  }
  if (turn) {
    read_far(part == Part::kIndex ? *index_reader_ : *page_reader_);
  }
  base::full_fence();
}

void PublishedShards::read_far(transport::RemoteReader& reader) {
  std::ranges::stable_sort(far_, {}, [](const Far& one) { return one.read.owner; });
  uint64_t bytes = 0;
  far_reads_.clear();
  for (Far& one : far_) {
    one.read.to = bytes;
    bytes += (one.read.bytes + 7) / 8 * 8;
    far_reads_.push_back(one.read);
  }
  const transport::ConstBytes landed = reader.read(far_reads_, bytes);
  for (const Far& one : far_) {
    std::memcpy(one.to, landed.data() + one.read.to, one.read.bytes);
  }
}

}  // namespace gear::group
