#include "group/agreement.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "base/errors.h"

namespace gear::group {
namespace {

bool is_of_memory(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const base::OutOfMemory&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

EndDraw::~EndDraw() {
  if (shard_ != nullptr) {
    const auto lock = shard_->lock();
    shard_->end_draw();
  }
}

Agreement::Agreement(Peers& peers, const select::SamplerOptions& sampler,
                     transport::Transport& control, Updates updates)
    : peers_(peers),
      shard_(peers.shard()),
      sampler_(sampler),
      control_(control),
      updates_(updates) {}

Agreement::Round Agreement::agree(const Terms& terms, uint64_t offer_bytes, const MakeOffer& offer,
                                  std::vector<std::byte>& offers) {
  std::exception_ptr error = terms.error;
  told_ = false;
  own_.resize(sizeof(Ready) + offer_bytes);
  all_.resize(own_.size() * peers_.size());
  offers.resize(offer_bytes * peers_.size());
  ranks_.resize(peers_.size());
  if (expects_updates_) {
    static_cast<void>(shard_.lock_between_draws());  // refuses a thread whose draw is out
    tell_updates(error);
  }
  exchange(terms, error, offer_bytes, offer, offers);
  expects_updates_ = any(Ready::kKeptUpdates) || any(Ready::kToldUpdates);
  if (any(Ready::kKeptUpdates)) {
    {
      const EndDraw end(shard_);
    }
    tell_updates(error);
    exchange(terms, error, offer_bytes, offer, offers);
  }
  if (!offers_compare()) {
    {
      const EndDraw end(shard_);
    }
    try {
      const auto lock = shard_.lock_between_draws();
      raise_largest();
    } catch (...) {  // the others are told
      error = error ? error : std::current_exception();
    }
    exchange(terms, error, offer_bytes, offer, offers);
  }
  EndDraw end(shard_);
  check_same_beta();
  if (error) {
    std::rethrow_exception(error);
  }
  check_all_can();
  const bool nothing = !any(Ready::kOffersSome);
  if (nothing && !any(Ready::kLimited)) {
    return Round::kNothing;
  }
  if (nothing || any(Ready::kHeldBack)) {
    return any(Ready::kOutOfTime) ? Round::kOutOfTime : Round::kNotAllowed;
  }
  end.release();
  // Not where that would move the scale of what this rank has offered: a larger one that came
  // meanwhile is heard before the next batch.
  if (sampler_.policy != select::Policy::kWeighted || updates_ == Updates::kByCaller) {
    const auto lock = shard_.lock();
    raise_largest();
  }
  return Round::kDrawn;
}

bool Agreement::any(Ready::Flag flag) const {
  return std::ranges::any_of(ranks_, [flag](const Ready& one) { return (one.flags & flag) != 0; });
}

uint64_t Agreement::room() const {
  uint32_t most = 0;
  for (const Ready& one : ranks_) {
    most = std::max(most, one.room_bits);
  }
  constexpr uint32_t kMostBits = 48;
  if (most > kMostBits) {
    throw base::TransportError(base::cat("[loader] a rank wants 2^", most - 1, " bytes for packed ",
                                         "rows: ranks of one group must run the same build"));
  }
  return most == 0 ? 0 : uint64_t{1} << (most - 1);
}

void Agreement::tell_updates(std::exception_ptr& error) {
  told_ = told_ || peers_.outbox().num_kept() > 0;
  try {
    peers_.outbox().exchange(control_);
  } catch (const base::TransportError&) {
    throw;
  } catch (...) {  // of this rank's GPU, after its part of the exchange: the others are told
    error = error ? error : std::current_exception();
  }
}

// Whether what all ranks offer is by one scale, if that matters.
bool Agreement::offers_compare() const {
  return updates_ == Updates::kByCaller || sampler_.policy != select::Policy::kWeighted ||
         std::ranges::all_of(ranks_, [&](const Ready& one) {
           return one.largest == ranks_[0].largest &&
                  one.largest_weight == ranks_[0].largest_weight;
         });
}

void Agreement::raise_largest() const {
  for (const Ready& one : ranks_) {
    shard_.index().raise_largest(one.largest, one.largest_weight);
  }
}

void Agreement::check_all_can() const {
  for (uint32_t r = 0; r < ranks_.size(); ++r) {
    if ((ranks_[r].flags & Ready::kNoMemory) != 0) {
      throw base::OutOfMemory(base::cat(
          "[loader] rank ", r, " has no memory for a batch (its own message says more), so that ",
          "none is drawn on any rank: free some there, and call next on all of them again"));
    }
    if ((ranks_[r].flags & Ready::kFailed) != 0) {
      throw base::TransportError(base::cat(
          "[loader] rank ", r, " failed before a batch, so that none is drawn on any rank: its ",
          "own message says how"));
    }
  }
}

void Agreement::check_same_beta() const {
  for (uint32_t r = 1; r < ranks_.size(); ++r) {
    if (ranks_[r].beta != ranks_[0].beta) {
      throw base::InvalidArgument(base::cat(
          "[sampler] beta of the loader on rank ", r, " is ", ranks_[r].beta, ", on rank 0 ",
          ranks_[0].beta, ", and no batch is drawn: set the same before next on all ranks"));
    }
  }
}

// Leaves what all ranks say in ranks_ and `offers`, and a draw out.
void Agreement::exchange(const Terms& terms, std::exception_ptr& error, uint64_t offer_bytes,
                         const MakeOffer& offer, std::vector<std::byte>& offers) {
  const uint64_t message_bytes = sizeof(Ready) + offer_bytes;
  std::ranges::fill(own_, std::byte{0});
  const Ready own = begin(terms, error, offer, std::span(own_).subspan(sizeof(Ready)));
  std::memcpy(own_.data(), &own, sizeof own);
  EndDraw end(shard_);
  control_.allgather(own_, all_);  // Python may run in it, in this very thread
  end.release();
  for (uint32_t r = 0; r < ranks_.size(); ++r) {
    const std::byte* message = all_.data() + r * message_bytes;
    std::memcpy(&ranks_[r], message, sizeof(Ready));
    std::copy_n(message + sizeof(Ready), offer_bytes, offers.data() + r * offer_bytes);
  }
}

Agreement::Ready Agreement::begin(const Terms& terms, std::exception_ptr& error,
                                  const MakeOffer& offer, std::span<std::byte> out) {
  const bool kept = updates_ == Updates::kByHosts && peers_.outbox().num_kept() > 0;
  std::unique_lock<std::mutex> lock;
  if (!error && select::needs_priorities(sampler_)) {
    try {
      lock = shard_.lock_settled();
    } catch (...) {  // of this rank's GPU: the others are told
      error = std::current_exception();
    }
  }
  if (!lock.owns_lock()) {
    lock = shard_.lock_between_draws();
  }
  store::Index& index = shard_.index();
  const bool offers_some = select::counted(sampler_, index).total() > 0;
  if (!error) {
    try {
      offer(index, out);
    } catch (...) {  // the others are told
      error = std::current_exception();
    }
  }
  const bool no_memory = error && is_of_memory(error);
  shard_.begin_draw();
  const auto flag = [](bool set, Ready::Flag one) { return set ? uint32_t{one} : 0U; };
  return {flag(kept, Ready::kKeptUpdates) | flag(offers_some, Ready::kOffersSome) |
              flag(!terms.allowed, Ready::kHeldBack) |
              flag(shard_.rate_limiter().active(), Ready::kLimited) |
              flag(terms.out_of_time, Ready::kOutOfTime) | flag(no_memory, Ready::kNoMemory) |
              flag(error && !no_memory, Ready::kFailed) | flag(told_, Ready::kToldUpdates),
          index.state().max_priority, index.state().max_weight,
          static_cast<uint32_t>(std::bit_width(terms.room)), terms.beta};
}

}  // namespace gear::group
