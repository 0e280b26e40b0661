#include "group/global_draw.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/gpu/nvtx.h"
#include "transport/typed.h"

namespace gear::group {

namespace {

// The draws of a batch are numbered in 32 bits.
uint64_t items_of_all(uint64_t batch_size, uint32_t ranks) {
  if (batch_size > UINT32_MAX / ranks) {
    throw base::InvalidArgument(base::cat(
        "[loader] batch_size ", batch_size, " on each of ", ranks, " ranks: all together draw ",
        UINT32_MAX, " items at most; lower batch_size to ", UINT32_MAX / ranks, " or less"));
  }
  return batch_size * ranks;
}

}  // namespace

GlobalDraw::GlobalDraw(Peers& peers, const deliver::LoaderOptions& options, Locality locality,
                       std::shared_ptr<const plan::BatchLayout> layout, std::vector<uint8_t> told,
                       transport::Transport& control)
    : peers_(peers),
      shard_(peers.shard()),
      items_(items_of_all(options.batch_size, peers.size())),
      told_(std::move(told)),
      control_(control),
      layout_(std::move(layout)),
      agreement_(peers, options.sampler, control),
      locality_(locality),
      assignment_(peers.nodes()),
      writer_(*layout_, shard_.layout()),
      which_(peers.size()),
      places_(peers.size()) {
  const auto lock = select::needs_priorities(options.sampler) ? shard_.lock_settled()
                                                              : shard_.lock_between_draws();
  shard_.rate_limiter().check_batch(options.batch_size);
  sampler_.emplace(options.sampler, shard_.index(), peers.rank(), peers.size());
}

GlobalDraw::Round GlobalDraw::draw(const Terms& terms, DrawnBatch& out,
                                   deliver::TakenBatch& taken) {
  const base::NvtxRange range("gear.select");
  Terms with_beta = terms;
  with_beta.beta = law().beta();
  const Round round = agreement_.agree(
      with_beta, sampler_->offer_bytes(),
      [this](store::Index& index, std::span<std::byte> own) {
        sampler_->offer(index, items_, own);
      },
      offers_);
  if (round != Round::kDrawn) {
    return round;
  }
  const EndDraw end(shard_);
  try {
    return resolve(out, taken);
  } catch (const base::InvalidArgument&) {  // on all ranks alike
    throw;
  } catch (const base::TransportError&) {  // the others hear of it by the transport
    throw;
  } catch (...) {
    out_of_step_ = true;
    throw;
  }
}

// The rank's part of the batch that the offers of all make.
GlobalDraw::Round GlobalDraw::resolve(DrawnBatch& out, deliver::TakenBatch& taken) {
  auto lock = shard_.lock();
  const bool by_number = locality_ == Locality::kOff;
  const auto gather = [&](std::span<const uint64_t> mine, std::span<const uint64_t> counts,
                          std::span<uint64_t> all) {
    lock.unlock();  // Python may run in the exchange, in this very thread
    transport::gather(control_, mine, counts, all);
    lock = shard_.lock();
  };
  deliver::Draw draw(shard_, lock);
  sampler_->select(shard_.index(), {items_, offers_, by_number, gather}, draw_);
  if (draw_.items == 0) {
    return Round::kEpochEnd;
  }
  out.items = share_of(draw_.items, peers_.size(), peers_.rank());
  out.most_bytes = writer_.most_bytes(out.items);
  out.beta = draw_.beta;
  out.least = draw_.least;
  for (uint32_t c = 0; c < peers_.size(); ++c) {
    which_[c].clear();
    places_[c].clear();
  }
  if (by_number) {
    sort_by_number();
  } else {
    sort_by_counts();
  }
  write_parcels(out);
  shard_.pages().flush();
  draw.commit(out.items, taken, &out.read);
  return Round::kDrawn;
}

// Which of this rank's draws each consumer receives, and in which places of its batch.
void GlobalDraw::sort_by_counts() {
  for (const AssignedRun& run : assignment_.runs(draw_.counts, peers_.rank())) {
    for (uint32_t i = 0; i < run.count; ++i) {
      which_[run.consumer].push_back(run.first + i);
      places_[run.consumer].push_back(run.place + i);
    }
  }
}

// The same where draws go to the ranks in their order.
void GlobalDraw::sort_by_number() {
  uint32_t consumer = 0;
  uint64_t begin = 0;  // of its batch
  uint64_t share = share_of(draw_.items, peers_.size(), consumer);
  for (uint32_t i = 0; i < draw_.own_draws.size(); ++i) {
    while (draw_.own_draws[i] >= begin + share) {
      begin += share;
      share = share_of(draw_.items, peers_.size(), ++consumer);
    }
    which_[consumer].push_back(i);
    places_[consumer].push_back(static_cast<uint32_t>(draw_.own_draws[i] - begin));
  }
}

void GlobalDraw::write_parcels(DrawnBatch& out) {
  const uint32_t ranks = peers_.size();
  const uint32_t rank = peers_.rank();
  out.parcels.resize(ranks);
  for (uint32_t c = 0; c < ranks; ++c) {
    Parcel& parcel = out.parcels[c];
    const bool told = told_[size_t{c} * ranks + rank] != 0;
    parcel.items = which_[c].size();
    parcel.rows = writer_.write(shard_.index(), draw_.own, which_[c], places_[c], told,
                                parcel.bytes, parcel.plan);
  }
}

void check_same_loader(const deliver::LoaderOptions& options, Locality locality, bool nccl,
                       std::optional<double> timeout_s, transport::Transport& control) {
  const select::SamplerOptions& sampler = options.sampler;
  std::string outputs;
  for (const plan::Output& one : options.outputs) {
    outputs += (outputs.empty() ? "" : ", ") + plan::in_words(one);
  }
  const std::vector<std::pair<std::string_view, std::string>> own = {
      {"batch_size", base::cat(options.batch_size)},
      {"prefetch", base::cat(options.prefetch)},
      {"packed", base::cat(options.packed)},
      {"seed", base::cat(sampler.seed)},
      {"sampler",
       base::cat("policy ", static_cast<int>(sampler.policy), ", unit ",
                 static_cast<int>(sampler.unit), ", alpha ", sampler.alpha, ", beta ", sampler.beta,
                 ", normalize ", select::kNormalizations.name(sampler.normalize), ", shuffle ",
                 sampler.shuffle, ", drop_last ", sampler.drop_last)},
      {"outputs", outputs},
      {"locality", locality == Locality::kFirst ? "first" : "off"},
      {"nccl", base::cat(nccl)},
      {"timeout_s", timeout_s ? base::cat(*timeout_s) : "None"}};
  std::string text;
  for (const auto& [name, value] : own) {
    text += value;
    text.push_back('\0');
  }
  const std::vector<char> bytes(text.begin(), text.end());
  const auto all =
      transport::exchange_lists(control, std::vector<std::vector<char>>(control.size(), bytes));
  for (uint32_t r = 1; r < all.size(); ++r) {
    const char* first = all[0].data();
    const char* other = all[r].data();
    for (const auto& [name, value] : own) {
      const std::string_view wanted(first);
      const std::string_view given(other);
      if (given != wanted) {
        throw base::InvalidArgument(base::cat("[loader] ", name, " of the loader on rank ", r,
                                              " is ", given, ", on rank 0 ", wanted,
                                              ": give every rank the same"));
      }
      first += wanted.size() + 1;
      other += given.size() + 1;
    }
  }
}

}  // namespace gear::group
