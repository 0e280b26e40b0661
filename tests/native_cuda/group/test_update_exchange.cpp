#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "../native/described_rows.h"
#include "base/errors.h"
#include "device_memory.h"
#include "group/cuda/update_exchange.h"
#include "store/shard.h"

using namespace gear;
using gear::group::UpdateExchange;
using gear::tests::from_device;
using gear::tests::to_device;

namespace {

constexpr uint32_t kRanks = 3;
constexpr double kAlpha = 0.6;
constexpr uint64_t kCapacity = 400;

uint64_t random_below(uint64_t range, uint64_t round, uint64_t number) {
  return base::scale_to(base::philox(round, 5, number), range);
}

// Priorities of one update() call.
struct Call {
  std::vector<int64_t> ids;
  std::vector<float> priorities;
  bool refused = false;
};

// What one rank of a group has, and the index that its own is to be equal to.
struct Rank {
  std::shared_ptr<store::Shard> shard;
  std::shared_ptr<store::Shard> reference;
  std::shared_ptr<const store::DeviceWeights> weights;
  std::shared_ptr<const store::WeightTree> reference_weights;
  std::unique_ptr<UpdateExchange> exchange;
  base::DeviceArray<std::byte> inbox;
  std::vector<Call> calls;
  std::vector<std::pair<base::DeviceArray<int64_t>, base::DeviceArray<float>>> arrays;

  const base::Stream& stream() const { return store::device_index(*shard, 0)->stream(); }
};

std::shared_ptr<store::Shard> make_shard(uint32_t rank) {
  store::ShardOptions options = testing::options_of(kCapacity);
  options.owner = rank;
  auto shard = std::make_shared<store::Shard>(testing::schema(), options);
  store::Writer writer(shard);
  for (uint64_t episode = 0; episode < 40 + rank; ++episode) {  // the first are evicted
    testing::add_episode(writer, episode, 3 + episode % 17);
  }
  testing::append(writer, 99, 0, 6);  // an open one: its last steps are not offered everywhere
  return shard;
}

std::vector<Rank> make_ranks(uint64_t room) {
  std::vector<Rank> ranks(kRanks);
  std::vector<uint64_t> num_slots;
  for (uint32_t r = 0; r < kRanks; ++r) {
    ranks[r].shard = make_shard(r);
    ranks[r].reference = make_shard(r);
    num_slots.push_back(ranks[r].shard->index().num_slots());
  }
  for (uint32_t r = 0; r < kRanks; ++r) {
    Rank& rank = ranks[r];
    const auto mirror = store::device_index(*rank.shard, 0);
    rank.weights = mirror->weights(mirror->steps(0), kAlpha);
    rank.reference_weights = rank.reference->index().steps(0)->weights(kAlpha);
    rank.exchange = std::make_unique<UpdateExchange>(*rank.shard, mirror, r, num_slots, room);
    rank.inbox = base::DeviceArray<std::byte>(UpdateExchange::inbox_bytes(kRanks, room), 0);
    GEAR_CUDA_TRY(cudaMemset(rank.inbox.get(), 0xcd, rank.inbox.bytes()));
    GEAR_CUDA_TRY(cudaDeviceSynchronize());
  }
  return ranks;
}

// Ids of all ranks' steps, evicted ones and episodes among them, many of them several times.
Call make_call(const std::vector<Rank>& ranks, uint64_t seed, uint64_t count) {
  Call call;
  for (uint64_t i = 0; i < count; ++i) {
    const auto owner = static_cast<uint32_t>(random_below(kRanks, seed, 4 * i));
    const store::Index& index = ranks[owner].reference->index();
    const auto page =
        static_cast<uint32_t>(random_below(index.options().num_pages, seed, 4 * i + 1));
    const auto row = static_cast<uint32_t>(random_below(4, seed, 4 * i + 2));
    const uint64_t kind = random_below(10, seed, 4 * i + 3);
    int64_t id = index.id({page, kind == 0 ? 0 : row},
                          kind == 0 ? store::Unit::kEpisode : store::Unit::kStep);
    if (kind == 1) {
      id ^= int64_t{1} << store::StepId::kSlotBits;  // another generation
    }
    call.ids.push_back(id);
    call.priorities.push_back(static_cast<float>(i % 37) + static_cast<float>(seed % 13) / 8.0F);
  }
  return call;
}

void keep(Rank& rank, Call call, bool on_device, const base::Stream& stream) {
  const uint64_t count = call.ids.size();
  const auto handle = reinterpret_cast<uintptr_t>(static_cast<cudaStream_t>(stream));
  if (on_device) {
    auto& [ids, priorities] =
        rank.arrays.emplace_back(to_device(std::span<const int64_t>(call.ids)),
                                 to_device(std::span<const float>(call.priorities)));
    rank.exchange->keep(ids.get(), priorities.get(), count, true, handle);
    // The arrays may be reused at once by what follows on their stream.
    GEAR_CUDA_TRY(cudaMemsetAsync(ids.get(), 0xff, ids.bytes(), stream));
  } else {
    rank.exchange->keep(call.ids.data(), call.priorities.data(), count, false, 0);
  }
  rank.calls.push_back(std::move(call));
}

// Returns the number of rounds.
int exchange(std::vector<Rank>& ranks) {
  std::vector<uint64_t> kept;
  std::vector<std::byte*> inboxes;
  for (Rank& rank : ranks) {
    kept.push_back(rank.exchange->kept());
    inboxes.push_back(rank.inbox.get());
  }
  for (Rank& rank : ranks) {
    rank.exchange->begin(kept);
  }
  for (int rounds = 0;; ++rounds) {
    uint32_t more = 0;
    for (Rank& rank : ranks) {
      more += rank.exchange->next_round() ? 1 : 0;
    }
    REQUIRE((more == 0 || more == kRanks));
    if (more == 0) {
      return rounds;
    }
    for (Rank& rank : ranks) {
      rank.exchange->scatter(inboxes);
    }
    for (Rank& rank : ranks) {
      rank.stream().synchronize();  // the GPUs meet
    }
    for (Rank& rank : ranks) {
      rank.exchange->apply(rank.inbox.get());
    }
  }
}

// As the host's exchange does it: the ranks in order, of each its calls in order.
void apply_to_references(std::vector<Rank>& ranks) {
  for (Rank& sender : ranks) {
    for (const Call& call : sender.calls) {
      for (size_t i = 0; i < call.ids.size() && !call.refused; ++i) {
        const uint32_t owner = store::StepId::unpack(call.ids[i]).owner;
        ranks[owner].reference->index().update({&call.ids[i], 1}, {&call.priorities[i], 1});
      }
    }
    sender.calls.clear();
  }
}

void check_equal(Rank& rank) {
  const store::DeviceTree& tree = rank.weights->tree;
  const store::SumTree& wanted_tree = rank.reference_weights->sums;
  const auto leaves = from_device(tree.levels[0], tree.counts[0], rank.stream());
  uint64_t wrong = 0;
  for (uint64_t slot = 0; slot < leaves.size(); ++slot) {
    wrong += leaves[slot] != wanted_tree[slot] ? 1 : 0;
  }
  CHECK(wrong == 0);
  const int top = tree.num_levels - 1;
  CHECK(from_device(tree.levels[top], 1, rank.stream())[0] == wanted_tree.total());
  rank.shard->lock_settled();
  const store::IndexState& state = rank.shard->index().state();
  const store::IndexState& wanted = rank.reference->index().state();
  CHECK(rank.shard->index().slots().priorities == rank.reference->index().slots().priorities);
  CHECK(state.max_priority == wanted.max_priority);
  CHECK(state.counters.stale_updates == wanted.counters.stale_updates);
  CHECK(state.counters.saturated_weights == wanted.counters.saturated_weights);
  for (size_t e = 0; e < wanted.episodes.size(); ++e) {
    REQUIRE(state.episodes[e].weight == wanted.episodes[e].weight);
  }
}

}  // namespace

TEST_CASE("updates of all ranks reach their owners in the order of ranks and calls") {
  for (const uint64_t room : {4096, 100, 7}) {
    CAPTURE(room);
    auto ranks = make_ranks(room);
    const base::Stream first(0);
    const base::Stream second(0);
    int most_rounds = 0;
    for (uint64_t turn = 0; turn < 8; ++turn) {
      CAPTURE(turn);
      for (uint32_t r = 0; r < kRanks; ++r) {
        const uint64_t calls = random_below(4, turn, r);  // none too
        for (uint64_t c = 0; c < calls; ++c) {
          const uint64_t seed = 100 * turn + 10 * r + c;
          Call call = make_call(ranks, seed, 1 + random_below(400, seed, 1 << 20));
          keep(ranks[r], std::move(call), c != 1, c == 0 ? first : second);
        }
      }
      most_rounds = std::max(most_rounds, exchange(ranks));
      apply_to_references(ranks);
      for (Rank& rank : ranks) {
        check_equal(rank);
        CHECK(rank.exchange->kept() == 0);
        rank.exchange->raise_failed();
      }
    }
    CHECK((most_rounds == 1) == (room == 4096));
  }
}

TEST_CASE("nothing is applied of a call of one wrong update, whose rank is told") {
  auto ranks = make_ranks(512);
  const base::Stream stream(0);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const uint64_t count : {5, 300, 1000}) {
    CAPTURE(count);
    for (const bool wrong_id : {false, true}) {
      CAPTURE(wrong_id);
      keep(ranks[0], make_call(ranks, count, count), true, stream);
      Call refused = make_call(ranks, count + 1, count);
      const uint64_t at = count * 4 / 5;
      for (const uint64_t position : {at, count - 1}) {
        if (wrong_id) {
          refused.ids[position] |= int64_t{kRanks} << 50;  // a rank that is not there
        } else {
          refused.priorities[position] = kNan;
        }
      }
      if (wrong_id) {
        refused.ids[at] |= int64_t{63} << 50;
      }
      refused.refused = true;
      keep(ranks[0], std::move(refused), true, stream);
      keep(ranks[0], make_call(ranks, count + 2, count), true, stream);
      keep(ranks[2], make_call(ranks, count + 3, count), true, stream);
      exchange(ranks);
      apply_to_references(ranks);
      for (Rank& rank : ranks) {
        check_equal(rank);
      }
      std::string message;
      try {
        ranks[0].exchange->raise_failed();
      } catch (const base::InvalidArgument& error) {
        message = error.what();
      }
      CHECK(message.find("position " + std::to_string(at)) != std::string::npos);
      CHECK(message.find("2 calls ago") != std::string::npos);
      ranks[0].exchange->raise_failed();  // once
      ranks[2].exchange->raise_failed();
    }
  }
}

TEST_CASE("what is kept behind the count that ranks agreed on waits for the next exchange") {
  auto ranks = make_ranks(64);
  const base::Stream stream(0);
  keep(ranks[1], make_call(ranks, 1, 150), true, stream);
  const std::vector<uint64_t> kept{0, ranks[1].exchange->kept(), 0};
  const Call later = make_call(ranks, 2, 90);
  std::vector<std::byte*> inboxes;
  for (Rank& rank : ranks) {
    inboxes.push_back(rank.inbox.get());
    rank.exchange->begin(kept);
  }
  bool first = true;
  while (ranks[0].exchange->next_round()) {
    CHECK(ranks[1].exchange->next_round());
    CHECK(ranks[2].exchange->next_round());
    if (first) {
      ranks[1].exchange->keep(later.ids.data(), later.priorities.data(), 90, false, 0);
      first = false;
    }
    for (Rank& rank : ranks) {
      rank.exchange->scatter(inboxes);
    }
    for (Rank& rank : ranks) {
      rank.stream().synchronize();
    }
    for (Rank& rank : ranks) {
      rank.exchange->apply(rank.inbox.get());
    }
  }
  CHECK(ranks[1].exchange->kept() == 90);
  apply_to_references(ranks);
  for (Rank& rank : ranks) {
    check_equal(rank);
  }
  ranks[1].calls.push_back(later);
  exchange(ranks);
  apply_to_references(ranks);
  for (Rank& rank : ranks) {
    check_equal(rank);
  }
}

TEST_CASE("the host takes back what a GPU keeps, without what was refused") {
  auto ranks = make_ranks(64);
  const base::Stream stream(0);
  std::vector<int64_t> taken_ids{-5};
  std::vector<float> taken{0.5F};
  for (const uint64_t calls : {12, 40}) {  // within the ring's room; more, across its end
    CAPTURE(calls);
    std::vector<int64_t> ids = taken_ids;
    std::vector<float> priorities = taken;
    for (uint64_t c = 0; c < calls; ++c) {
      Call call = make_call(ranks, calls + c, 8000);
      if (c % 7 == 3) {
        call.priorities[7000] = -1.0F;
      } else {
        ids.insert(ids.end(), call.ids.begin(), call.ids.end());
        priorities.insert(priorities.end(), call.priorities.begin(), call.priorities.end());
      }
      keep(ranks[0], std::move(call), c % 2 == 0, stream);
    }
    CHECK(ranks[0].exchange->kept() == calls * 8000);
    ranks[0].exchange->take(taken_ids, taken);
    CHECK(ranks[0].exchange->kept() == 0);
    CHECK(taken_ids == ids);
    CHECK(taken == priorities);
  }
}
