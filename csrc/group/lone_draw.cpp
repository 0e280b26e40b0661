#include "group/lone_draw.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/errors.h"
#include "base/numbers/philox.h"
#include "select/group/offers.h"

namespace gear::group {

LoneDraw::LoneDraw(std::shared_ptr<store::Shard> shard, const select::SamplerOptions& options,
                   uint64_t batch_size, Locality locality, const std::vector<uint32_t>& nodes)
    : shard_(std::move(shard)),
      ranks_(static_cast<uint32_t>(nodes.size())),
      deal_(nodes, 0, locality) {
  items_ = items_of_all(batch_size, ranks_);
  const auto lock =
      select::needs_priorities(options) ? shard_->lock_settled() : shard_->lock_between_draws();
  sampler_.emplace(options, shard_->index(), 0, ranks_);
  GEAR_CHECK(sampler_->law().chance() != nullptr);
}

uint64_t LoneDraw::draw() {
  const auto lock = shard_->lock_between_draws();
  const size_t bytes = sampler_->offer_bytes();
  offers_.resize(bytes * ranks_);
  sampler_->offer(shard_->index(), items_, std::span(offers_).first(bytes));
  for (uint32_t r = 1; r < ranks_; ++r) {
    std::copy_n(offers_.begin(), bytes, offers_.begin() + static_cast<ptrdiff_t>(r * bytes));
  }
  const auto gather = [this](std::span<const uint64_t> mine, std::span<const uint64_t>,
                             std::span<uint64_t> all) {
    const select::Told own = select::Told::unpack(mine[0]);
    count_others(own.count, all);
    for (uint64_t& one : all) {
      one = select::Told{one, own.least}.pack();
    }
  };
  sampler_->select(shard_->index(), {items_, offers_, deal_.by_number(), gather}, draw_);
  shard_->undraw();  // nobody takes them
  if (draw_.items == 0) {
    return 0;
  }
  deal_.deal(draw_);
  return draw_.own.size();
}

// Evenly over as wide a range as has a random draw's deviation.
void LoneDraw::count_others(uint64_t own, std::span<uint64_t> counts) {
  const uint64_t number = batches_++;
  const auto spread = static_cast<uint64_t>(std::sqrt(3.0 * static_cast<double>(items_ / ranks_)));
  uint64_t left = items_ - own;
  counts[0] = own;
  for (uint32_t r = 1; r < ranks_; ++r) {
    const uint64_t mean = left / (ranks_ - r);
    const uint64_t off = base::scale_to(base::philox(0, number, r), 2 * spread + 1);
    const uint64_t some = mean + off > spread ? mean + off - spread : 0;
    counts[r] = r + 1 == ranks_ ? left : std::min(left, some);
    left -= counts[r];
  }
}

}  // namespace gear::group
