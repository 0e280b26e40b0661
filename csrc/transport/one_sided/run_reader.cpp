#include "transport/one_sided/run_reader.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/threads/interrupt.h"
#include "base/threads/spin.h"
#include "transport/collective.h"

namespace gear::transport {
namespace {

constexpr uint64_t kLeastLanding = uint64_t{1} << 20;
constexpr int kSpins = 2000;  // looks in vain before the CPU is offered to others

}  // namespace

void RunReader::Rest::skip(uint64_t bytes) {
  done += bytes;
  if (done == reads[0].bytes) {
    reads = reads.subspan(1);
    done = 0;
  }
}

RunReader::RunReader(std::unique_ptr<Lanes> lanes, Shards shards, Options options)
    : shards_(std::move(shards)),
      options_(std::move(options)),
      lanes_(std::move(lanes)),
      under_way_(shards_->size() * lanes_->limits().per_owner),
      next_lane_(shards_->size()) {
  chain_.reserve(kChain);
}

ConstBytes RunReader::read(std::span<const RemoteRead> reads, uint64_t bytes) {
  if (!failed_.empty()) {
    throw base::TransportError(failed_);
  }
  for (const RemoteRead& one : reads) {
    GEAR_CHECK(one.owner < shards_->size() && one.owner != options_.rank && one.bytes > 0);
    GEAR_CHECK(one.bytes <= bytes && one.to <= bytes - one.bytes);
    const uint64_t there = (*shards_)[one.owner].bytes();
    GEAR_CHECK(one.bytes <= there && one.from <= there - one.bytes);
  }
  const Clock::time_point start = Clock::now();
  try {
    post_all({}, start);  // what an interrupted call left under way fills the memory
    make_room(bytes);
    post_all(reads, start);
  } catch (const base::Error& error) {
    failed_ = error.what();
    if (options_.failure) {
      options_.failure->tell(failed_);
    }
    throw;
  }
  return {landing_->data(), bytes};
}

// Whether others still take part: an owner that has given up answers no read.
void RunReader::look() const {
  if (options_.failure) {
    options_.failure->check();
  }
  if (options_.messages) {
    options_.messages->look();
  }
}

void RunReader::make_room(uint64_t bytes) {
  if (landing_ && landing_->bytes() >= bytes) {
    return;
  }
  const uint64_t room = std::max(kLeastLanding, bytes + bytes / 2);
  static_cast<void>(lanes_->land_in({}));
  landing_.reset();
  landing_ = memory::make_region(memory::Tier::kHost, room);
  landing_chunks_ = lanes_->land_in({landing_->data(), room});
}

void RunReader::post_all(std::span<const RemoteRead> reads, Clock::time_point start) {
  std::vector<Rest> rests;
  while (!reads.empty()) {
    const uint32_t owner = reads[0].owner;
    const auto end =
        std::ranges::find_if(reads, [owner](const RemoteRead& one) { return one.owner != owner; });
    const auto count = static_cast<size_t>(end - reads.begin());
    rests.push_back({owner, reads.first(count)});
    reads = reads.subspan(count);
  }
  Clock::time_point asked = start;
  int in_vain = 0;
  while (!rests.empty() || open_ > 0) {
    bool moved = false;
    for (Rest& rest : rests) {
      moved |= post_chain(rest);
    }
    std::erase_if(rests, [](const Rest& rest) { return rest.reads.empty(); });
    moved |= take_ended();
    if (moved) {
      in_vain = 0;
      continue;
    }
    base::pause_cpu();
    if (++in_vain < kSpins) {
      continue;
    }
    in_vain = 0;
    std::this_thread::yield();
    const Clock::time_point now = Clock::now();
    if (now - asked >= base::kInterruptEvery) {
      asked = now;
      base::check_interrupt();
      look();
      if (base::seconds_since(start) >= options_.timeout_s) {
        fail_late(rests);
      }
    }
  }
}

// One with room for a whole chain, unless the device's queues are shorter.
bool RunReader::find_lane(uint32_t owner, uint32_t& lane) {
  const Lanes::Limits& limits = lanes_->limits();
  for (uint32_t k = 0; k < limits.per_owner; ++k) {
    lane = owner * limits.per_owner + next_lane_[owner];
    next_lane_[owner] = (next_lane_[owner] + 1) % limits.per_owner;
    if (under_way_[lane] + std::min(kChain, limits.depth) <= limits.depth) {
      return true;
    }
  }
  return false;
}

bool RunReader::post_chain(Rest& rest) {
  const Lanes::Limits& limits = lanes_->limits();
  uint32_t lane = 0;
  if (open_ >= limits.open || !find_lane(rest.owner, lane)) {
    return false;
  }
  fill_chain(rest, std::min({kChain, limits.open - open_, limits.depth - under_way_[lane]}));
  const uint32_t posted = lanes_->post(lane, chain_);
  for (uint32_t i = 0; i < posted; ++i) {
    rest.skip(chain_[i].bytes);
  }
  under_way_[lane] += posted;
  open_ += posted;
  return posted > 0;
}

// A read is divided where a chunk of its owner's or of the landing memory ends, or the device's
// largest message.
void RunReader::fill_chain(Rest rest, uint32_t most) {
  chain_.clear();
  while (chain_.size() < most && !rest.reads.empty()) {
    const RemoteRead& read = rest.reads[0];
    const MemoryChunk there = (*shards_)[rest.owner].from(read.from + rest.done);
    const MemoryChunk here = landing_chunks_.from(read.to + rest.done);
    const uint64_t bytes =
        std::min({read.bytes - rest.done, there.bytes, here.bytes, lanes_->limits().most_bytes});
    chain_.push_back({there.address, there.key, here.address, here.key, bytes});
    rest.skip(bytes);
  }
}

bool RunReader::take_ended() {
  const std::span<const Ended> ended = lanes_->ended();
  for (const Ended& one : ended) {
    if (!one.failure.empty()) {
      fail(one);
    }
    under_way_[one.lane] -= one.reads;
    open_ -= one.reads;
  }
  return !ended.empty();
}

void RunReader::fail(const Ended& ended) {
  const uint32_t owner = ended.lane / lanes_->limits().per_owner;
  throw base::TransportError(base::cat("[transport] rank ", options_.rank, " reads rows of rank ",
                                       owner, " by ", options_.kind, " (", lanes_->way(owner),
                                       "): ", ended.failure));
}

void RunReader::fail_late(std::span<const Rest> rests) {
  std::vector<uint32_t> owners;
  for (uint32_t owner = 0; owner < shards_->size(); ++owner) {
    const uint32_t lanes = lanes_->limits().per_owner;
    const auto begin = under_way_.begin() + int64_t{owner} * lanes;
    if (std::any_of(begin, begin + lanes, [](uint32_t reads) { return reads > 0; }) ||
        std::ranges::any_of(rests, [owner](const Rest& rest) { return rest.owner == owner; })) {
      owners.push_back(owner);
    }
  }
  throw base::TransportError(base::cat(
      "[transport] reads of ", ranks_text(owners), " by ", options_.kind, " did not end within ",
      options_.timeout_s, " s: see ", options_.tool, " there, or set a longer time-out"));
}

}  // namespace gear::transport
