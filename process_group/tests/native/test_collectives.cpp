#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "schedule/collectives.h"
#include "stepped_ranks.h"

// Every collective against what a loop over all ranks computes, to the bit, on 1 to 7 ranks that
// are stepped by hand: messages come late and in another order, in many pieces.

using namespace gear::process_group;
using gear::process_group::testing::SteppedRanks;

namespace {

constexpr int kMostRanks = 7;
constexpr uint64_t kCounts[] = {0, 1, 5, 129, 4097, 9001};  // the last two beyond kSmallBytes

// Small whole numbers: every order of additions gives the same bits.
template <class Number>
std::vector<Number> given(int rank, uint64_t count) {
  std::minstd_rand random(static_cast<uint32_t>(rank) * 7919 + 1);
  std::vector<Number> values(count);
  for (Number& value : values) {
    value = static_cast<Number>(static_cast<int>(random() % 7) - (Number(-1) < Number(0) ? 3 : 0));
  }
  return values;
}

template <class Number>
std::byte* bytes_of(std::vector<Number>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}
template <class Number>
Block block_of(std::vector<Number>& values) {
  return {bytes_of(values), values.size() * sizeof(Number)};
}

// A call on all ranks, to its end.
void call(SteppedRanks& ranks, Kind kind, const std::function<Schedule(int rank)>& make,
          uint64_t segment_bytes = 64) {
  std::vector<std::shared_ptr<Call>> calls;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    calls.push_back(ranks.begin(rank, {.kind = kind}, make(rank), segment_bytes));
  }
  REQUIRE(ranks.finish(calls));
  for (const auto& one : calls) {
    REQUIRE(one->failure == "");
  }
  REQUIRE(ranks.messages_left() == 0);
}

// With messages that come at once, and with late ones.
void for_all_sizes(const std::function<void(SteppedRanks&)>& what) {
  for (int size = 1; size <= kMostRanks; ++size) {
    for (const uint32_t lateness : {0U, 9U}) {
      CAPTURE(size);
      CAPTURE(lateness);
      SteppedRanks ranks(size, lateness, static_cast<uint32_t>(size));
      what(ranks);
    }
  }
}

template <class Number>
Number reduced(Reduction reduction, Number left, Number right) {
  switch (reduction) {
    case Reduction::kSum:
      return static_cast<Number>(left + right);
    case Reduction::kProduct:
      return static_cast<Number>(left * right);
    case Reduction::kMin:
      return std::min(left, right);
    default:
      return std::max(left, right);
  }
}

// What a loop over the ranks makes of what they give.
template <class Number>
std::vector<Number> slow_reduction(int size, uint64_t count, Reduction reduction) {
  std::vector<Number> all = given<Number>(0, count);
  for (int rank = 1; rank < size; ++rank) {
    const std::vector<Number> more = given<Number>(rank, count);
    for (uint64_t i = 0; i < count; ++i) {
      all[i] = reduced(reduction, all[i], more[i]);
    }
  }
  return all;
}

template <class Number>
void check_all_reduce(SteppedRanks& ranks, Element element, Reduction reduction) {
  for (const uint64_t count : kCounts) {
    CAPTURE(count);
    std::vector<std::vector<Number>> values;
    for (int rank = 0; rank < ranks.size(); ++rank) {
      values.push_back(given<Number>(rank, count));
    }
    call(ranks, Kind::kAllReduce, [&](int rank) {
      return all_reduce(ranks.place(rank), {element, reduction},
                        bytes_of(values[static_cast<size_t>(rank)]), count);
    });
    const auto wanted = slow_reduction<Number>(ranks.size(), count, reduction);
    for (const auto& of_rank : values) {
      CHECK(of_rank == wanted);
    }
  }
}

}  // namespace

TEST_CASE("all_reduce of every reduction") {
  for_all_sizes([](SteppedRanks& ranks) {
    for (const auto reduction :
         {Reduction::kSum, Reduction::kProduct, Reduction::kMin, Reduction::kMax}) {
      check_all_reduce<int32_t>(ranks, Element::kI32, reduction);
    }
    check_all_reduce<uint8_t>(ranks, Element::kU8, Reduction::kMax);
    check_all_reduce<int64_t>(ranks, Element::kI64, Reduction::kSum);
    check_all_reduce<float>(ranks, Element::kF32, Reduction::kSum);
    check_all_reduce<double>(ranks, Element::kF64, Reduction::kSum);
  });
}

TEST_CASE("all_reduce of any floats gives all ranks the same bits, in every run") {
  for (const uint64_t count : {100U, 9001U}) {
    std::vector<std::vector<float>> first;
    for (const uint32_t seed : {1U, 2U, 3U}) {
      SteppedRanks ranks(5, 20, seed);
      std::mt19937 random(7);
      std::normal_distribution<float> normal;
      std::vector<std::vector<float>> values(5, std::vector<float>(count));
      for (auto& of_rank : values) {
        std::ranges::generate(of_rank, [&] { return normal(random); });
      }
      call(ranks, Kind::kAllReduce, [&](int rank) {
        return all_reduce(ranks.place(rank), {Element::kF32},
                          bytes_of(values[static_cast<size_t>(rank)]), count);
      });
      for (const auto& of_rank : values) {
        CHECK(std::memcmp(of_rank.data(), values.front().data(), count * sizeof(float)) == 0);
      }
      if (first.empty()) {
        first = values;
      }
      CHECK(std::memcmp(values[0].data(), first[0].data(), count * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("an average, and sums that travel as bfloat16") {
  for_all_sizes([](SteppedRanks& ranks) {
    const uint64_t count = 9001;
    for (const auto compression : {Compression::kNone, Compression::kBf16, Compression::kF16}) {
      std::vector<std::vector<float>> values;
      for (int rank = 0; rank < ranks.size(); ++rank) {
        values.push_back(given<float>(rank, count));
      }
      // A power of two: exact. A group of one rank has nothing to divide by.
      const int64_t divisor = ranks.size() == 1 ? 1 : 4;
      call(ranks, Kind::kAllReduce, [&](int rank) {
        return all_reduce(ranks.place(rank), {Element::kF32, Reduction::kSum, divisor, compression},
                          bytes_of(values[static_cast<size_t>(rank)]), count);
      });
      auto wanted = slow_reduction<float>(ranks.size(), count, Reduction::kSum);
      for (float& value : wanted) {
        value /= static_cast<float>(divisor);
      }
      for (const auto& of_rank : values) {
        CHECK(of_rank == wanted);
      }
    }
  });
}

TEST_CASE("reduce to every root leaves the others what they have") {
  for_all_sizes([](SteppedRanks& ranks) {
    for (const uint64_t count : {1U, 4097U}) {
      const auto wanted = slow_reduction<int32_t>(ranks.size(), count, Reduction::kSum);
      for (int root = 0; root < ranks.size(); ++root) {
        std::vector<std::vector<int32_t>> values;
        for (int rank = 0; rank < ranks.size(); ++rank) {
          values.push_back(given<int32_t>(rank, count));
        }
        call(ranks, Kind::kReduce, [&](int rank) {
          return reduce(ranks.place(rank), {Element::kI32},
                        bytes_of(values[static_cast<size_t>(rank)]), count, root);
        });
        for (int rank = 0; rank < ranks.size(); ++rank) {
          CHECK(values[static_cast<size_t>(rank)] ==
                (rank == root ? wanted : given<int32_t>(rank, count)));
        }
      }
    }
  });
}

TEST_CASE("broadcast from every root, down a tree and in parts") {
  for_all_sizes([](SteppedRanks& ranks) {
    for (const uint64_t count : {1U, 5000U, 40'000U}) {
      for (int root = 0; root < ranks.size(); root += 2) {
        std::vector<std::vector<int32_t>> values;
        for (int rank = 0; rank < ranks.size(); ++rank) {
          values.push_back(rank == root ? given<int32_t>(root, count)
                                        : std::vector<int32_t>(count));
        }
        call(
            ranks, Kind::kBroadcast,
            [&](int rank) {
              return broadcast(ranks.place(rank), block_of(values[static_cast<size_t>(rank)]),
                               root);
            },
            4096);
        for (const auto& of_rank : values) {
          CHECK(of_rank == given<int32_t>(root, count));
        }
      }
    }
  });
}

TEST_CASE("reduce_scatter of shares of other lengths") {
  for_all_sizes([](SteppedRanks& ranks) {
    const auto size = static_cast<size_t>(ranks.size());
    // The share of rank r has 100 r + 1 elements of the whole.
    std::vector<uint64_t> begins{0};
    for (size_t rank = 0; rank < size; ++rank) {
      begins.push_back(begins.back() + 100 * rank + 1);
    }
    const auto whole = slow_reduction<int64_t>(ranks.size(), begins.back(), Reduction::kSum);
    std::vector<std::vector<int64_t>> inputs;
    std::vector<std::vector<int64_t>> outputs;
    for (size_t rank = 0; rank < size; ++rank) {
      inputs.push_back(given<int64_t>(static_cast<int>(rank), begins.back()));
      outputs.emplace_back(begins[rank + 1] - begins[rank]);
    }
    call(ranks, Kind::kReduceScatter, [&](int rank) {
      const auto own = static_cast<size_t>(rank);
      std::vector<Block> shares;
      for (size_t of = 0; of < size; ++of) {
        shares.push_back({reinterpret_cast<std::byte*>(inputs[own].data() + begins[of]),
                          (begins[of + 1] - begins[of]) * sizeof(int64_t)});
      }
      return reduce_scatter(ranks.place(rank), {Element::kI64}, shares, block_of(outputs[own]));
    });
    for (size_t rank = 0; rank < size; ++rank) {
      CHECK(std::equal(outputs[rank].begin(), outputs[rank].end(),
                       whole.begin() + static_cast<std::ptrdiff_t>(begins[rank])));
    }
  });
}

TEST_CASE("all_gather") {
  for_all_sizes([](SteppedRanks& ranks) {
    const auto size = static_cast<size_t>(ranks.size());
    for (const uint64_t count : {0U, 1U, 333U}) {
      std::vector<std::vector<int32_t>> inputs;
      std::vector<std::vector<int32_t>> outputs(size, std::vector<int32_t>(count * size));
      std::vector<int32_t> wanted;
      for (int rank = 0; rank < ranks.size(); ++rank) {
        inputs.push_back(given<int32_t>(rank, count));
        wanted.insert(wanted.end(), inputs.back().begin(), inputs.back().end());
      }
      call(ranks, Kind::kAllGather, [&](int rank) {
        const auto own = static_cast<size_t>(rank);
        std::vector<Block> from;
        for (size_t of = 0; of < size; ++of) {
          from.push_back({reinterpret_cast<std::byte*>(outputs[own].data() + of * count),
                          count * sizeof(int32_t)});
        }
        return exchange(ranks.place(rank), std::vector<Block>(size, block_of(inputs[own])), from);
      });
      for (const auto& of_rank : outputs) {
        CHECK(of_rank == wanted);
      }
    }
  });
}

TEST_CASE("all_to_all, gather and scatter of lengths that the others do not know") {
  // Rank a gives rank b 37 (a + 2 b) bytes, or nothing for some.
  const auto length = [](size_t from, size_t to) {
    return (from + to) % 3 == 1 ? 0 : 37 * (from + 2 * to);
  };
  const auto value = [](size_t from, size_t to) { return static_cast<uint8_t>(16 * from + to); };
  for_all_sizes([&](SteppedRanks& ranks) {
    const auto size = static_cast<size_t>(ranks.size());
    // of all_to_all, then of a gather to the last rank, then of a scatter from it
    for (const int kind : {0, 1, 2}) {
      const auto goes = [&](size_t from, size_t to) {
        return kind == 0 || (kind == 1 ? to : from) == size - 1;
      };
      std::vector<std::vector<std::vector<uint8_t>>> sent(size);
      std::vector<std::vector<std::vector<uint8_t>>> got(size);
      call(ranks,
           kind == 0   ? Kind::kAllToAll
           : kind == 1 ? Kind::kGather
                       : Kind::kScatter,
           [&](int rank) {
             const auto own = static_cast<size_t>(rank);
             std::vector<std::optional<Block>> to;
             std::vector<std::optional<Block>> from;
             sent[own].resize(size);
             got[own].resize(size);
             for (size_t peer = 0; peer < size; ++peer) {
               sent[own][peer].assign(length(own, peer), value(own, peer));
               got[own][peer].assign(length(peer, own), 0);
               to.push_back(goes(own, peer) ? std::optional(block_of(sent[own][peer]))
                                            : std::nullopt);
               from.push_back(goes(peer, own) ? std::optional(block_of(got[own][peer]))
                                              : std::nullopt);
             }
             return exchange_of_any(ranks.place(rank), to, from);
           });
      for (size_t to = 0; to < size; ++to) {
        for (size_t from = 0; from < size; ++from) {
          const uint8_t wanted = goes(from, to) ? value(from, to) : 0;
          CHECK(got[to][from] == std::vector<uint8_t>(length(from, to), wanted));
        }
      }
    }
  });
}

TEST_CASE("all_gather of lengths that ranks tell each other first") {
  for_all_sizes([](SteppedRanks& ranks) {
    const auto size = static_cast<size_t>(ranks.size());
    std::vector<std::vector<int32_t>> inputs;
    std::vector<std::shared_ptr<Gathered>> gathered;
    for (int rank = 0; rank < ranks.size(); ++rank) {
      inputs.push_back(given<int32_t>(rank, static_cast<uint64_t>(rank) * 50));
      gathered.push_back(std::make_shared<Gathered>());
    }
    // What is gathered lives in the schedule, so it is looked at while the calls are held.
    std::vector<std::shared_ptr<Call>> calls;
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const auto own = static_cast<size_t>(rank);
      calls.push_back(ranks.begin(
          rank, {.kind = Kind::kAllReduce},
          all_gather_of_any(ranks.place(rank), {block_of(inputs[own])}, gathered[own]), 64));
    }
    REQUIRE(ranks.finish(calls));
    for (const auto& of_rank : gathered) {
      REQUIRE(of_rank->size() == 1);
      REQUIRE(of_rank->front().size() == size);
      for (size_t from = 0; from < size; ++from) {
        const Block& block = of_rank->front()[from];
        REQUIRE(block.length == inputs[from].size() * sizeof(int32_t));
        CHECK((block.length == 0 ||
               std::memcmp(block.bytes, inputs[from].data(), block.length) == 0));
      }
    }
  });
}

TEST_CASE("no rank leaves a barrier before all have come") {
  for (int size = 2; size <= kMostRanks; ++size) {
    for (const bool monitored : {false, true}) {
      SteppedRanks ranks(size, 3);
      std::vector<std::shared_ptr<Call>> calls;
      for (int rank = 0; rank < size; ++rank) {
        for (const auto& call : calls) {
          CHECK(!call->done);
        }
        calls.push_back(ranks.begin(rank,
                                    {.kind = monitored ? Kind::kMonitoredBarrier : Kind::kBarrier},
                                    monitored ? monitored_barrier(ranks.place(rank)) : Schedule{}));
        ranks.step(rank + 1 < size ? 40 : 0);
      }
      CHECK(ranks.finish(calls));
    }
  }
}

TEST_CASE("many calls under way, begun by turns and ended in any order") {
  const int size = 4;
  SteppedRanks ranks(size, 15, 5);
  constexpr uint64_t kCalls = 40;
  std::vector<std::vector<std::vector<int32_t>>> values(kCalls);
  std::vector<std::shared_ptr<Call>> calls;
  for (uint64_t one = 0; one < kCalls; ++one) {
    for (int rank = 0; rank < size; ++rank) {
      values[one].push_back(given<int32_t>(rank, 1 + one * 150));
    }
    for (int rank = 0; rank < size; ++rank) {
      auto& own = values[one][static_cast<size_t>(rank)];
      calls.push_back(ranks.begin(
          rank, {.kind = Kind::kAllReduce},
          all_reduce(ranks.place(rank), {Element::kI32}, bytes_of(own), own.size()), 256));
    }
    ranks.step(static_cast<int>(one % 3));
  }
  REQUIRE(ranks.finish(calls));
  for (uint64_t one = 0; one < kCalls; ++one) {
    for (const auto& of_rank : values[one]) {
      CHECK(of_rank == slow_reduction<int32_t>(size, 1 + one * 150, Reduction::kSum));
    }
  }
  CHECK(ranks.messages_left() == 0);
}
