#include "schedule/collectives.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace gear::process_group {
namespace {

constexpr int kPeersAtOnce = 8;             // of a round that reduces nothing
constexpr uint64_t kTreeBytes = 128 << 10;  // up to here a broadcast goes down a tree

int next(Place place, int steps) { return (place.rank + steps) % place.size; }
int previous(Place place, int steps) { return (place.rank + place.size - steps) % place.size; }

Transfer sending(int peer, Block block) { return {peer, false, block.bytes, block.length}; }
Transfer receiving(int peer, Block block) { return {peer, true, block.bytes, block.length}; }
Transfer reducing(int peer, Block block) { return {peer, true, block.bytes, block.length, true}; }

void copy(Block to, Block from) {
  if (to.bytes != from.bytes && to.length > 0) {
    std::memcpy(to.bytes, from.bytes, to.length);
  }
}

// `count` elements in `parts` parts that differ by one element at most.
std::vector<Block> divided(std::byte* data, uint64_t count, uint64_t bytes, int parts) {
  std::vector<Block> blocks;
  const auto many = static_cast<uint64_t>(parts);
  uint64_t begin = 0;
  for (uint64_t i = 0; i < many; ++i) {
    const uint64_t length = (count / many + (i < count % many ? 1 : 0)) * bytes;
    blocks.push_back({data + begin, length});
    begin += length;
  }
  return blocks;
}

// Rounds by which `own`, which holds this rank's share, gets what the others have for this rank.
// One peer a round: the order of the additions is fixed.
void add_reduction(Schedule& schedule, Place place, const std::vector<Block>& inputs, Block own) {
  for (int i = 1; i < place.size; ++i) {
    const int to = next(place, i);
    schedule.rounds.push_back(
        {{sending(to, inputs[static_cast<size_t>(to)]), reducing(previous(place, i), own)},
         nullptr});
  }
}

// Rounds by which each rank gets the block of every other; `skipped` has them already.
void add_gathering(Schedule& schedule, Place place, const std::vector<Block>& blocks,
                   int skipped = -1) {
  for (int begin = 1; begin < place.size; begin += kPeersAtOnce) {
    Round round;
    for (int i = begin; i < std::min(begin + kPeersAtOnce, place.size); ++i) {
      const int to = next(place, i);
      const int from = previous(place, i);
      if (place.rank != skipped) {
        round.transfers.push_back(receiving(from, blocks[static_cast<size_t>(from)]));
      }
      if (to != skipped) {
        round.transfers.push_back(sending(to, blocks[static_cast<size_t>(place.rank)]));
      }
    }
    schedule.rounds.push_back(std::move(round));
  }
}

// Rounds after which this rank knows that all have come to them.
void add_barrier(Schedule& schedule, Place place) {
  std::byte* const tokens = schedule.room(2);
  for (int steps = 1; steps < place.size; steps *= 2) {
    schedule.rounds.push_back({{receiving(previous(place, steps), {tokens, 1}),
                                sending(next(place, steps), {tokens + 1, 1})},
                               nullptr});
  }
}

// What is done with a rank's reduced elements before others see them.
std::function<void()> finishing(const Arithmetic& arithmetic, Block block, bool for_others) {
  const bool rounds = for_others && arithmetic.compression != Compression::kNone;
  if (arithmetic.divisor == 1 && !rounds) {
    return nullptr;
  }
  return [=] {
    const uint64_t count = block.length / arithmetic.bytes();
    if (arithmetic.divisor != 1) {
      divide(arithmetic.element, block.bytes, count, arithmetic.divisor);
    }
    if (rounds) {
      round_to(arithmetic.compression, block.bytes, count);
    }
  };
}

// Recursive doubling. Of the ranks beyond a power of two, each gives its array to a neighbour first
// and gets the result from it last.
Schedule small_all_reduce(Place place, Arithmetic arithmetic, Block data) {
  arithmetic.compression = Compression::kNone;
  Schedule schedule{{}, arithmetic, {}};
  int power = 1;
  while (power * 2 <= place.size) {
    power *= 2;
  }
  const int extra = place.size - power;
  const bool paired = place.rank < 2 * extra;
  const auto finish = finishing(arithmetic, data, false);
  if (paired && place.rank % 2 == 0) {
    schedule.rounds.push_back({{sending(place.rank + 1, data)}, nullptr});
    schedule.rounds.push_back({{receiving(place.rank + 1, data)}, nullptr});
    return schedule;
  }
  const Block other{schedule.room(data.length), data.length};
  const uint64_t count = data.length / arithmetic.bytes();
  // Both of a pair compute lower op upper: the same bits, the sign of a zero included.
  const auto add_round = [&](int peer, bool sends) {
    const std::byte* const left = peer < place.rank ? other.bytes : data.bytes;
    const std::byte* const right = peer < place.rank ? data.bytes : other.bytes;
    Round round{{receiving(peer, other)}, [=] {
                  combine(arithmetic.element, arithmetic.reduction, data.bytes, left, right, count);
                }};
    if (sends) {
      round.transfers.push_back(sending(peer, data));
    }
    schedule.rounds.push_back(std::move(round));
  };
  if (paired) {
    add_round(place.rank - 1, false);
  }
  const int number = paired ? place.rank / 2 : place.rank - extra;
  for (int mask = 1; mask < power; mask *= 2) {
    const int peer = number ^ mask;
    add_round(peer < extra ? 2 * peer + 1 : peer + extra, true);
  }
  if (finish) {
    schedule.rounds.push_back({{}, finish});
  }
  if (paired) {
    schedule.rounds.push_back({{sending(place.rank - 1, data)}, nullptr});
  }
  return schedule;
}

}  // namespace

Schedule all_reduce(Place place, Arithmetic arithmetic, std::byte* data, uint64_t count) {
  const uint64_t bytes = arithmetic.bytes();
  if (place.size == 1 || count == 0) {
    return {};
  }
  if (count * bytes <= kSmallBytes) {
    return small_all_reduce(place, arithmetic, {data, count * bytes});
  }
  Schedule schedule{{}, arithmetic, {}};
  const auto parts = divided(data, count, bytes, place.size);
  const Block own = parts[static_cast<size_t>(place.rank)];
  add_reduction(schedule, place, parts, own);
  schedule.rounds.back().then = finishing(arithmetic, own, true);
  schedule.rounds.back().reads = own;
  schedule.rounds.back().complete = own;
  add_gathering(schedule, place, parts);
  return schedule;
}

Schedule reduce(Place place, Arithmetic arithmetic, std::byte* data, uint64_t count, int root) {
  if (place.size == 1 || count == 0) {
    return {};
  }
  const uint64_t length = count * arithmetic.bytes();
  if (length <= kSmallBytes) {
    arithmetic.compression = Compression::kNone;
  }
  Schedule schedule{{}, arithmetic, {}};
  const auto real = [&](int number) { return (number + root) % place.size; };
  const int number = (place.rank + place.size - root) % place.size;
  Block sum{data, length};
  const bool is_inner = number != 0 && number % 2 == 0 && number + 1 < place.size;
  if (is_inner) {
    sum.bytes = schedule.room(length);
    schedule.rounds.push_back({{}, [=] { std::memcpy(sum.bytes, data, length); }});
  }
  for (int mask = 1; mask < place.size; mask *= 2) {
    if ((number & mask) != 0) {
      schedule.rounds.push_back({{sending(real(number - mask), sum)}, nullptr});
      break;
    }
    if (number + mask < place.size) {
      schedule.rounds.push_back({{reducing(real(number + mask), sum)}, nullptr});
    }
  }
  if (number == 0) {
    schedule.rounds.push_back({{}, finishing(arithmetic, sum, false)});
  }
  return schedule;
}

Schedule reduce_scatter(Place place, Arithmetic arithmetic, const std::vector<Block>& inputs,
                        Block output) {
  if (place.size > 1 && output.length <= kSmallBytes) {
    arithmetic.compression = Compression::kNone;
  }
  Schedule schedule{{}, arithmetic, {}};
  const Block own = inputs[static_cast<size_t>(place.rank)];
  schedule.rounds.push_back({{}, [=] { copy(output, own); }, own});
  add_reduction(schedule, place, inputs, output);
  schedule.rounds.push_back({{}, finishing(arithmetic, output, false)});
  return schedule;
}

Schedule broadcast(Place place, Block data, int root) {
  Schedule schedule;
  if (place.size == 1 || data.length == 0) {
    return schedule;
  }
  if (place.size > 2 && data.length > kTreeBytes) {
    const auto parts = divided(data.bytes, data.length, 1, place.size);
    for (int begin = 1; begin < place.size; begin += kPeersAtOnce) {
      Round round;
      for (int i = begin; i < std::min(begin + kPeersAtOnce, place.size); ++i) {
        const int peer = (root + i) % place.size;
        if (place.rank == root) {
          round.transfers.push_back(sending(peer, parts[static_cast<size_t>(peer)]));
        } else if (place.rank == peer) {
          round.transfers.push_back(receiving(root, parts[static_cast<size_t>(peer)]));
        }
      }
      schedule.rounds.push_back(std::move(round));
    }
    add_gathering(schedule, place, parts, root);
    // The root's own part goes out with the gathering.
    return schedule;
  }
  const auto real = [&](int number) { return (number + root) % place.size; };
  const int number = (place.rank + place.size - root) % place.size;
  int mask = 1;
  while (mask < place.size && (number & mask) == 0) {
    mask *= 2;
  }
  if (number != 0) {
    schedule.rounds.push_back({{receiving(real(number - mask), data)}, nullptr});
  }
  Round round;
  for (mask /= 2; mask > 0; mask /= 2) {
    if (number + mask < place.size) {
      round.transfers.push_back(sending(real(number + mask), data));
    }
  }
  schedule.rounds.push_back(std::move(round));
  return schedule;
}

Schedule exchange(Place place, const std::vector<Block>& to, const std::vector<Block>& from) {
  Schedule schedule;
  const Block sent = to[static_cast<size_t>(place.rank)];
  const Block received = from[static_cast<size_t>(place.rank)];
  for (int begin = 1; begin < place.size; begin += kPeersAtOnce) {
    Round round;
    for (int i = begin; i < std::min(begin + kPeersAtOnce, place.size); ++i) {
      const int source = previous(place, i);
      const int target = next(place, i);
      round.transfers.push_back(receiving(source, from[static_cast<size_t>(source)]));
      round.transfers.push_back(sending(target, to[static_cast<size_t>(target)]));
    }
    schedule.rounds.push_back(std::move(round));
  }
  if (received.length > 0) {
    schedule.rounds.push_back({{}, [=] { copy(received, sent); }});
  }
  return schedule;
}

Schedule exchange_of_any(Place place, const std::vector<std::optional<Block>>& to,
                         const std::vector<std::optional<Block>>& from) {
  const auto blocks_of = [](const std::vector<std::optional<Block>>& some) {
    std::vector<Block> blocks;
    blocks.reserve(some.size());
    for (const auto& block : some) {
      blocks.push_back(block.value_or(Block{nullptr, 0}));
    }
    return blocks;
  };
  Schedule schedule = exchange(place, blocks_of(to), blocks_of(from));
  for (Round& round : schedule.rounds) {
    for (Transfer& transfer : round.transfers) {
      const auto peer = static_cast<size_t>(transfer.peer);
      transfer.tells_length = (transfer.receives ? from : to)[peer].has_value();
    }
  }
  add_barrier(schedule, place);
  return schedule;
}

Schedule all_gather_of_any(Place place, std::vector<Block> own,
                           std::shared_ptr<Gathered> gathered) {
  const auto size = static_cast<size_t>(place.size);
  const uint64_t each = own.size() * sizeof(uint64_t);
  Schedule schedule;
  std::byte* const lengths = schedule.room(each * size);
  std::vector<Block> told;
  told.reserve(size);
  for (size_t rank = 0; rank < size; ++rank) {
    told.push_back({lengths + rank * each, each});
  }
  const Block own_lengths = told[static_cast<size_t>(place.rank)];
  for (size_t part = 0; part < own.size(); ++part) {
    std::memcpy(own_lengths.bytes + part * sizeof(uint64_t), &own[part].length, sizeof(uint64_t));
  }
  schedule.rounds = exchange(place, std::vector<Block>(size, own_lengths), told).rounds;
  auto more = [place, told = std::move(told), own = std::move(own),
               gathered = std::move(gathered)](Schedule& grown) {
    gathered->assign(own.size(), {});
    for (size_t part = 0; part < own.size(); ++part) {
      std::vector<Block>& from = (*gathered)[part];
      for (size_t rank = 0; rank < told.size(); ++rank) {
        uint64_t length = 0;
        std::memcpy(&length, told[rank].bytes + part * sizeof length, sizeof length);
        const bool is_own = rank == static_cast<size_t>(place.rank);
        from.push_back(is_own ? own[part] : Block{grown.room(length), length});
      }
      Schedule one = exchange(place, std::vector<Block>(told.size(), own[part]), from);
      std::ranges::move(one.rounds, std::back_inserter(grown.rounds));
    }
  };
  schedule.more = std::make_unique<std::function<void(Schedule&)>>(std::move(more));
  return schedule;
}

Schedule monitored_barrier(Place place) {
  Schedule schedule;
  std::byte* const tokens = schedule.room(static_cast<uint64_t>(place.size));
  const auto token = [&](int rank) { return Block{tokens + rank, 1}; };
  if (place.rank != 0) {
    schedule.rounds.push_back({{sending(0, token(0))}, nullptr});
    schedule.rounds.push_back({{receiving(0, token(0))}, nullptr});
    return schedule;
  }
  Round here;
  Round told;
  for (int peer = 1; peer < place.size; ++peer) {
    here.transfers.push_back(receiving(peer, token(peer)));
    told.transfers.push_back(sending(peer, token(peer)));
  }
  schedule.rounds.push_back(std::move(here));
  schedule.rounds.push_back(std::move(told));
  return schedule;
}

}  // namespace gear::process_group
