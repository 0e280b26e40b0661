#include "group/global_draw.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/gpu/nvtx.h"
#include "transport/typed.h"

namespace gear::group {

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
      deal_(peers.nodes(), peers.rank(), locality),
      writer_(*layout_, shard_.layout()) {
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
  const auto gather = [&](std::span<const uint64_t> mine, std::span<const uint64_t> counts,
                          std::span<uint64_t> all) {
    lock.unlock();  // Python may run in the exchange, in this very thread
    transport::gather(control_, mine, counts, all);
    lock = shard_.lock();
  };
  deliver::Draw draw(shard_, lock);
  sampler_->select(shard_.index(), {items_, offers_, deal_.by_number(), gather}, draw_);
  if (draw_.items == 0) {
    return Round::kEpochEnd;
  }
  out.items = share_of(draw_.items, peers_.size(), peers_.rank());
  out.beta = draw_.beta;
  out.room = agreement_.room();
  out.least = draw_.least;
  deal_.deal(draw_);
  out.targets = deal_.targets();
  out.sources = deal_.sources();
  write_parcels(out);
  shard_.pages().flush();
  draw.commit(out.items, taken, &out.read);
  return Round::kDrawn;
}

void GlobalDraw::write_parcels(DrawnBatch& out) {
  const uint32_t ranks = peers_.size();
  out.parcels.resize(ranks);
  for (uint32_t c = 0; c < ranks; ++c) {
    Parcel& parcel = out.parcels[c];
    const bool told = told_[c] != 0;
    const std::span<const uint32_t> which = deal_.which()[c];
    parcel.items = which.size();
    parcel.message = {};
    parcel.rows = writer_.write(shard_.index(), draw_.own, which, deal_.places()[c], told,
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
