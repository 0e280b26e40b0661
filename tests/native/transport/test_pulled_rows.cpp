// Rows that one rank draws and reads alone, mapped and by every transport that reads one-sided:
// verbs with a fake device in the native tests, with a real one in tests/rdma.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "deliver/make_source.h"
#include "described_rows.h"
#include "store/id.h"
#include "transport/pulling_ranks.h"
#include "tries.h"
#include "varied_content.h"

using namespace gear::testing;
using namespace gear::transport;
using gear::deliver::LoaderOptions;
using gear::deliver::Pipeline;
using gear::plan::Batch;
using gear::plan::BatchLayout;
using gear::store::Shard;

namespace {

constexpr double kLong = 200;  // a wait that takes so long fails its test

void none(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) {
    CHECK(error == "");
  }
}

// Item `i` of a pulled batch, beside the same step as its owner collects it.
void expect_item(const Batch& batch, uint64_t i, const Batch& wanted) {
  const BatchLayout& layout = *batch.layout;
  const auto first_row = [](const Batch& of, size_t w, uint64_t item) {
    const BatchLayout::SharedWindow& shared = of.layout->windows[w];
    return of.layout->packed ? static_cast<uint64_t>(of.at<int32_t>(shared.cu_seqlens)[item])
                             : item * shared.window.length();
  };
  for (size_t w = 0; w < layout.windows.size(); ++w) {
    const int32_t length = batch.at<int32_t>(layout.windows[w].lengths)[i];
    expect(length == wanted.at<int32_t>(wanted.layout->windows[w].lengths)[0], "another length");
    const uint64_t rows =
        layout.packed ? static_cast<uint64_t>(length) : layout.windows[w].window.length();
    if (!layout.packed) {
      expect(std::memcmp(batch.at<bool>(layout.windows[w].mask) + i * rows,
                         wanted.at<bool>(wanted.layout->windows[w].mask), rows) == 0,
             "another mask");
    }
    for (const size_t o : layout.windows[w].outputs) {
      expect(std::memcmp(
                 batch.at<std::byte>(layout.data[o]) + first_row(batch, w, i) * layout.row_bytes[o],
                 wanted.at<std::byte>(wanted.layout->data[o]), rows * layout.row_bytes[o]) == 0,
             "other rows");
    }
  }
  for (size_t d = 0; d < layout.derived.size(); ++d) {
    const BatchLayout::SharedWindow& shared = layout.windows[layout.derived[d].window];
    const uint64_t row = first_row(batch, layout.derived[d].window, i);
    const int32_t length = batch.at<int32_t>(shared.lengths)[i];
    const uint64_t rows = layout.packed ? static_cast<uint64_t>(length) : shared.window.length();
    expect(std::memcmp(batch.at<int64_t>(layout.derived[d].data) + row,
                       wanted.at<int64_t>(wanted.layout->derived[d].data),
                       rows * sizeof(int64_t)) == 0,
           "other step numbers");
  }
}

LoaderOptions random_options(uint64_t round) {
  LoaderOptions options;
  for (size_t o = 0; o < 1 + round % 3; ++o) {
    options.outputs.push_back(random_output(round, o, 120));
  }
  options.outputs.emplace_back(
      "number",
      gear::plan::Standing{gear::plan::Derived::kStepIndex, column_of(options.outputs[0]).window});
  options.batch_size = 1 + round * 7 % 40;
  options.packed = round % 2 == 0;
  options.prefetch = round % 3;
  options.sampler.seed = round;
  return options;
}

// The steps that a loader of that look-ahead may draw.
std::map<int64_t, int> offered_by(const std::vector<std::shared_ptr<Shard>>& shards,
                                  uint64_t lookahead) {
  std::map<int64_t, int> offered;
  for (const auto& shard : shards) {
    const auto lock = shard->lock();
    const auto drawable = shard->index().steps(lookahead);
    for (const gear::store::Anchor anchor : all_steps(shard->index())) {
      if (drawable->contains(anchor)) {
        offered[shard->index().id(anchor, gear::store::Unit::kStep)] = 0;
      }
    }
  }
  return offered;
}

// Pulls on rank 0 until `least` batches are there, rows of another rank among them, and `seconds`
// are over, while writers of all ranks evict as fast as they can, with a rest now and then if
// `resting`: a writer that never rests leaves a slow reader nothing. The others make no call. What
// rank 0 saw, in words.
std::string pull_while_evicted(const PullKind& kind, int least, double seconds, bool resting) {
  Ranks ranks = kind.make(2, kLong);
  std::string told;
  none(errors_of(ranks, [&](Transport& transport) {
    const uint32_t rank = transport.rank();
    const auto shard = std::make_shared<Shard>(schema(), reachable(options_of(400), kind, rank));
    gear::store::Writer writer(shard);
    add_episode(writer, rank, 40);
    const PullingRank one(transport, shard);
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> written{0};
    std::thread evicting([&] {
      const uint64_t first = (rank + 1ULL) << 20;
      for (uint64_t episode = first; !stop; ++episode, ++written) {
        add_episode(writer, episode, 1 + episode % 30);
        if (resting && episode % 50 == 0) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
      }
    });
    std::string failed;
    try {
      LoaderOptions options;
      options.outputs = windows();
      options.batch_size = 64;
      options.packed = least % 2 == 1;
      const auto start = std::chrono::steady_clock::now();
      std::chrono::duration<double> took{};
      const auto loader = rank == 0 ? one.pull(options) : nullptr;
      int number = 0;
      const auto goes_on = [&] {
        const gear::deliver::Stats stats = loader->stats();
        return number < least || took.count() < seconds ||
               stats.same_node_bytes + stats.remote_bytes == 0;
      };
      for (; loader && goes_on(); ++number) {
        Batch batch;
        expect(loader->next(kLong, batch) == Pipeline::Next::kBatch, "no batch");
        expect(wrong_rows(batch) == 0, "rows are torn, or of another step");
        took = std::chrono::steady_clock::now() - start;
        expect(took.count() < kLong, "nothing came from the other rank");
      }
      if (loader) {
        const gear::deliver::Stats stats = loader->stats();
        told = gear::base::cat(number, " batches of 64, ", stats.repeated, " items read again, ",
                               stats.stale, " drawn anew, ", written.load(),
                               " episodes of 1 to 30 steps written over 400");
      }
    } catch (const std::exception& error) {
      failed = error.what();
    }
    transport.allgather({}, {});
    stop = true;
    evicting.join();
    expect(failed.empty(), failed.c_str());
    transport.allgather({}, {});
  }));
  return told;
}

}  // namespace

TEST_CASE("pulled rows: every step offered has one chance, and comes as its owner has it") {
  for (const PullKind& kind : pull_kinds()) {
    CAPTURE(kind.name);
    for (uint64_t round = 1; round <= (on_a_device() ? 2 / num_machines : tries(6)); ++round) {
      CAPTURE(round);
      constexpr uint32_t kSize = 3;
      Ranks ranks = kind.make(kSize, kLong);
      std::vector<std::shared_ptr<Shard>> shards;
      std::vector<std::unique_ptr<VariedContent>> contents;
      for (uint32_t rank = 0; rank < kSize; ++rank) {
        contents.push_back(std::make_unique<VariedContent>(
            rank,
            [&](gear::store::ShardOptions options) { return reachable(options, kind, rank); }));
        shards.push_back(contents.back()->shard);
      }
      const LoaderOptions options = random_options(round);
      const auto offered = offered_by(shards, gear::plan::lookahead(options.outputs));
      none(errors_of(ranks, [&](Transport& transport) {
        const PullingRank one(transport, shards[transport.rank()]);
        if (transport.rank() == 0) {
          const auto loader = one.pull(options);
          auto counts = offered;
          uint64_t items = 0;
          const uint64_t draws = (on_a_device() ? 8 : 20) * offered.size();
          for (int number = 0; items < draws; ++number) {
            Batch batch;
            expect(loader->next(kLong, batch) == Pipeline::Next::kBatch, "no batch");
            expect(batch.items == options.batch_size, "a batch of another size");
            items += batch.items;
            for (uint64_t i = 0; i < batch.items; ++i) {
              const int64_t id = batch.at<int64_t>(batch.layout->ids)[i];
              expect(counts.contains(id), "a step that is not offered");
              ++counts[id];
              if (number < 4) {
                const uint32_t owner = gear::store::StepId::unpack(id).owner;
                expect_item(batch, i,
                            gear::deliver::collect_ids(*shards[owner], {id}, options.outputs,
                                                       options.packed));
              }
            }
          }
          const double expected = static_cast<double>(items) / static_cast<double>(counts.size());
          double chi_square = 0;
          for (const auto& [id, count] : counts) {
            chi_square += (count - expected) * (count - expected) / expected;
          }
          const auto freedom = static_cast<double>(counts.size() - 1);
          expect(std::fabs(chi_square - freedom) < 5 * std::sqrt(2 * freedom),
                 "steps are not drawn alike");
          const gear::deliver::Stats stats = loader->stats();
          expect(stats.repeated == 0 && stats.stale == 0, "items of owners at rest came again");
          expect((stats.one_sided_bytes > 0) == !kind.mapped, "bytes came another way");
        }
        transport.allgather({}, {});
      }));
    }
  }
}

TEST_CASE("pulled rows: masses of several levels lead to the steps that are there") {
  const PullKind kind = pull_kinds()[0];
  Ranks ranks = kind.make(2, kLong);
  none(errors_of(ranks, [&](Transport& transport) {
    const uint32_t rank = transport.rank();
    gear::store::ShardOptions options;
    options.page_steps = 1;
    options.capacity = rank == 0 ? 70'000 : 2'000;  // three levels, two levels
    const gear::store::Schema one_byte({{"x", {}, gear::base::DType::kU8}});
    const auto shard = std::make_shared<Shard>(one_byte, reachable(options, kind, rank));
    gear::store::Writer writer(shard);
    const std::vector<std::byte> zeros(66'000);
    const std::byte* columns[] = {zeros.data()};
    writer.append(columns, rank == 0 ? 66'000 : 500, {});
    const PullingRank one(transport, shard);
    writer.append(columns, 1'000, {});  // published as it is appended
    transport.allgather({}, {});
    gear::group::PublishedMasses masses(*one.published);
    expect(masses.look() == 68'500, "another sum");
    std::vector<uint64_t> targets;
    for (uint64_t target = 0; target < 68'500; target += target < 66'990 ? 97 : 1) {
      targets.push_back(target);
    }
    std::vector<gear::group::PublishedPlace> places(targets.size());
    masses.find(targets, places);
    for (size_t i = 0; i < targets.size(); ++i) {
      const uint32_t owner = targets[i] < 67'000 ? 0 : 1;
      expect(places[i].owner == owner && places[i].nth == 0 &&
                 places[i].page == targets[i] - 67'000 * owner,
             "a target fell elsewhere");
    }
    transport.allgather({}, {});
  }));
}

TEST_CASE("pulled rows: what is given up while it is read is read again, or drawn anew") {
  for (const PullKind& kind : pull_kinds()) {
    CAPTURE(kind.name);
#ifdef __SANITIZE_THREAD__
    // Elsewhere rows are read while they are written: the page's use tells afterwards.
    if (!kind.mapped) {
      continue;
    }
#endif
    static_cast<void>(pull_while_evicted(kind, 40, 0, true));
  }
}

// By hand, with --no-skip.
TEST_CASE("pulled rows: a minute of eviction at full speed" * doctest::skip()) {
  for (const PullKind& kind : pull_kinds()) {
    MESSAGE(std::string(kind.name), ": ", pull_while_evicted(kind, 41, 60, false));
  }
}

TEST_CASE("pulled rows: none are there, or none may be drawn") {
  const PullKind kind = pull_kinds()[0];
  Ranks ranks = kind.make(2, kLong);
  none(errors_of(ranks, [&](Transport& transport) {
    const uint32_t rank = transport.rank();
    const auto shard = std::make_shared<Shard>(schema(), reachable(options_of(40), kind, rank));
    const PullingRank one(transport, shard);
    LoaderOptions options;
    options.outputs = windows();
    options.batch_size = 4;
    const auto refusal = [&](Pipeline& loader) -> std::string {
      try {
        Batch batch;
        loader.next(kLong, batch);
      } catch (const gear::base::InvalidArgument& error) {
        return error.what();
      }
      return "";
    };
    const auto loader = one.pull(options);
    expect(
        refusal(*loader) == "[sampler] nothing to sample: none of the 2 ranks has published a step",
        "a batch of nothing");
    transport.allgather({}, {});
    gear::store::Writer writer(shard);
    append(writer, rank, 0, 2);  // two steps follow none of them
    transport.allgather({}, {});
    expect(refusal(*loader).starts_with("[sampler] nothing to sample: 4 steps are published by 2 "
                                        "ranks, and none of them may be drawn"),
           "an incomplete window was drawn");
    transport.allgather({}, {});
  }));
}
