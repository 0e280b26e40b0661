#include "group/cuda/device_group_draw.h"

#include <algorithm>

#include "base/gpu/nvtx.h"
#include "link/link_cache.h"

namespace gear::group {
namespace {

// Thread blocks of a gather over NVLink for each multiprocessor: enough for the link, and few
// enough that the training step's own find room beside them.
constexpr uint32_t kBlocksPerMultiprocessor = 5;
constexpr uint64_t kPageBytes = 4096;
// Of a batch whose gather takes so long that two more events cost less than the next draw does.
constexpr uint64_t kOwnStreamBytes = 8 << 20;

// A rank's memory: its mailbox, its inboxes of parcels, its inbox of updates.
uint64_t mailbox_bytes() { return (sizeof(Mailbox) + kPageBytes - 1) / kPageBytes * kPageBytes; }

uint64_t updates_at(const plan::BatchLayout& layout) {
  return mailbox_bytes() + ParcelInbox(layout).all_bytes();
}

std::vector<Mailbox*> mailboxes(const PeerMemory& memory, uint32_t size) {
  std::vector<Mailbox*> all;
  for (uint32_t r = 0; r < size; ++r) {
    all.push_back(reinterpret_cast<Mailbox*>(memory.of(r)));
  }
  return all;
}

// What begins there in every rank's memory.
std::vector<std::byte*> parts_at(const PeerMemory& memory, uint32_t size, uint64_t offset) {
  std::vector<std::byte*> all;
  for (uint32_t r = 0; r < size; ++r) {
    all.push_back(memory.of(r) + offset);
  }
  return all;
}

}  // namespace

uint64_t DeviceGroupDraw::memory_bytes(const LoaderParts& parts, const UpdateExchange* updates) {
  const uint64_t inbox =
      updates ? UpdateExchange::inbox_bytes(parts.peers->size(), updates->room()) : 0;
  return updates_at(*parts.layout) + inbox;
}

DeviceGroupDraw::DeviceGroupDraw(const LoaderParts& parts, std::unique_ptr<PeerMemory> memory,
                                 std::shared_ptr<UpdateExchange> updates)
    : layout_(parts.layout),
      shard_(parts.peers->shard()),
      device_(parts.options.device),
      weighted_(parts.options.sampler.policy == select::Policy::kWeighted),
      of_all_(weighted_ && parts.options.sampler.normalize == select::Normalize::kBuffer),
      unit_(parts.options.sampler.unit),
      rank_(parts.peers->rank()),
      size_(parts.peers->size()),
      updates_(std::move(updates)),
      memory_(std::move(memory)),
      meeting_(rank_, mailboxes(*memory_, size_), parts.control->timeout_s(), device_),
      shares_(rank_, size_, parts.options.batch_size, parts.group.locality,
              parts.options.sampler.seed, device_),
      sender_(layout_, shard_.layout(), rank_, parts.group.locality,
              parts_at(*memory_, size_, mailbox_bytes()), device_),
      opener_(layout_, size_, memory_->of(rank_) + mailbox_bytes(), device_),
      ordered_(shard_.options().tier == memory::Tier::kPinned &&
               link::link_to(device_).order_pays(*layout_, shard_.layout(),
                                                 size_ * shard_.index().options().num_pages)),
      gather_(layout_, shard_.layout(),
              ordered_ ? gather::RowForm::kAddressed : gather::RowForm::kOwned),
      order_(shard_.layout(),
             std::min<uint64_t>(uint64_t{size_} << OwnedSlots::of(size_).slot_bits, store::kNone),
             device_),
      blocks_done_(1, device_),
      counts_(parts.options.prefetch + 4, device_) {
  const bool in_gpu = shard_.options().tier == memory::Tier::kDevice;
  if (layout_->bytes >= kOwnStreamBytes) {
    gathers_.emplace(device_);
  }
  for (uint32_t r = 0; r < size_; ++r) {
    pages_.push_back(parts.access.pages[r].device);
  }
  if (in_gpu && parts.group.locality == Locality::kOff) {
    int multiprocessors = 0;
    GEAR_CUDA_TRY(
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device_));
    most_blocks_ = kBlocksPerMultiprocessor * static_cast<uint32_t>(multiprocessors);
  } else if (!in_gpu && !ordered_) {
    most_blocks_ = gather::kBlocksFromHost;
  }
  if (ordered_) {
    uint64_t longest = 0;
    uint64_t rows = 0;
    for (const plan::RowList& list : opener_.rows(0)) {
      longest = std::max<uint64_t>(longest, list.count);
      rows += list.count;
    }
    order_.reserve(rows, longest);
  }
  store::Shard& shard = parts.peers->shard();
  const auto lock = weighted_ ? shard.lock_settled() : shard.lock();
  mirror_ = store::device_index(shard, device_);
  // Before the first gather, on whatever stream that is.
  GEAR_CUDA_TRY(cudaMemsetAsync(blocks_done_.get(), 0, blocks_done_.bytes(), mirror_->stream()));
  mirror_->stream().synchronize();
  if (unit_ == store::Unit::kStep) {
    steps_ = mirror_->steps(parts.options.sampler.lookahead, parts.options.sampler.mask);
  }
  if (weighted_) {
    weights_ = mirror_->weights(steps_, parts.options.sampler.alpha, of_all_);
  }
}

std::vector<uint32_t> DeviceGroupDraw::readers() const {
  std::vector<uint32_t> ranks;
  for (uint32_t r = 0; r < size_; ++r) {
    if (r != rank_ || !shard_.pages().row_sink() || gathers_) {
      ranks.push_back(r);
    }
  }
  return ranks;
}

bool DeviceGroupDraw::can_sync() const { return mirror_->can_sync(); }

void DeviceGroupDraw::sync() { mirror_->sync(); }

uint64_t DeviceGroupDraw::launch(const Turn& turn, deliver::DeviceBlock& block) {
  const base::Stream& stream = mirror_->stream();
  const store::DeviceView& view = mirror_->view();
  OfferedTotals totals;
  Meeting on_totals{};
  if (weighted_) {
    exchange_updates(turn.offers);
    const store::DeviceTree& tree = weights_->tree;
    on_totals = meeting_.next({.total = tree.levels[tree.num_levels - 1],
                               .scale = weights_->scale,
                               .largest = mirror_->largest_priority()});
    totals.heard = meeting_.said();
  } else {
    for (uint32_t r = 0; r < size_; ++r) {
      totals.known[r] = turn.offers[r].total;
    }
  }
  shares_.launch(totals, on_totals, turn.made, stream);
  const DeviceShare& share = shares_.share();
  const ParcelSender::Find find{.tree = weighted_ ? weights_->tree
                                        : steps_  ? steps_->counts()
                                                  : view.heads,
                                .least_of_all = of_all_ ? weights_->least : nullptr,
                                .holes = steps_ ? steps_->holes() : store::StepWords{},
                                .by_page = !weighted_,
                                .unit = unit_};
  sender_.write(turn.number, find, view, totals, share, stream);
  if (gathers_) {  // who has met for this batch may write into the inbox of the one before the last
    gathered_[turn.number % 2].make_wait(stream);
  }
  const Meeting on_parcels =
      meeting_.next({.least = share.least,
                     .to_note = share.drawn,
                     .noted = reinterpret_cast<uint32_t*>(&counts_[turn.number % counts_.size()])});
  block.begin_fill(stream);
  opener_.open(turn.number, on_parcels, weighted_ ? meeting_.said() : nullptr, turn.beta,
               block.device_data(), stream);
  const base::Stream& gathers = gathers_ ? *gathers_ : stream;
  if (gathers_) {
    opened_.record(stream);
    opened_.make_wait(gathers);
  }
  gather(turn, block.device_data(), gathers);
  if (gathers_) {
    gathered_[turn.number % 2].record(gathers);
  }
  block.end_fill(gathers);
  return on_parcels.number;
}

void DeviceGroupDraw::exchange_updates(std::span<const Offer> offers) {
  if (!updates_) {
    return;
  }
  std::vector<uint64_t> kept;
  for (const Offer& offer : offers) {
    kept.push_back(offer.kept);
  }
  const std::vector<std::byte*> inboxes = parts_at(*memory_, size_, updates_at(*layout_));
  updates_->begin(kept);
  while (updates_->next_round()) {
    updates_->scatter(inboxes, meeting_.next({}));
    updates_->apply(inboxes[rank_]);
  }
}

void DeviceGroupDraw::gather(const Turn& turn, std::byte* block, const base::Stream& stream) {
  const base::NvtxRange range("gear.gather");
  const std::vector<plan::RowList> rows = opener_.rows(turn.number);
  const std::span<const plan::RowList> walked =
      ordered_ ? order_.launch(rows, stream) : std::span<const plan::RowList>(rows);
  gather_.gather_owned(pages_, OwnedSlots::of(size_).slot_bits, walked, block,
                       {turn.passed, turn.number + 1, blocks_done_.get()}, most_blocks_, stream);
}

void DeviceGroupDraw::drain() noexcept {
  store::drain(shard_, *mirror_);
  if (gathers_) {
    gathers_->drain();
  }
}

}  // namespace gear::group
