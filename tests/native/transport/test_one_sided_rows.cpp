// Rows read one-sided, for every transport that does: verbs with a fake device in the native tests,
// with a real one in tests/rdma.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/numbers/philox.h"
#include "deliver/pipeline.h"
#include "described_rows.h"
#include "group/group_loader.h"
#include "scoped_variable.h"
#include "transport/one_sided_kinds.h"
#include "tries.h"
#include "varied_content.h"

using namespace gear::testing;
using namespace gear::transport;
using gear::deliver::LoaderOptions;
using gear::deliver::Pipeline;
using gear::group::Peers;
using gear::plan::Batch;
using gear::plan::BatchLayout;

namespace {

constexpr double kLong = 200;  // a wait that takes so long fails its test
constexpr const char* kPackBelow = "GEAR_PACK_BELOW";

// How owners pack: every run, or none.
const char* pack_below(bool packed) { return packed ? "1000000000" : "0"; }

uint64_t random_number(uint64_t seed, uint64_t n, uint64_t range) {
  return gear::base::scale_to(gear::base::philox(seed, 5, n), range);
}

using Contents = std::vector<std::unique_ptr<VariedContent>>;

// By rank; made anew for every transport, and the same.
Contents contents_of(uint32_t size) {
  Contents contents;
  for (uint32_t rank = 0; rank < size; ++rank) {
    contents.push_back(std::make_unique<VariedContent>(rank));
  }
  return contents;
}

std::unique_ptr<Pipeline> pipeline_over(Transport& transport, const Contents& contents,
                                        const LoaderOptions& options) {
  const auto peers = std::make_shared<Peers>(contents[transport.rank()]->shard,
                                             std::shared_ptr<Transport>(transport.duplicate()),
                                             nodes_of(transport.size()), false);
  return gear::group::make_pipeline(peers, {peers->shard(), options}, {});
}

LoaderOptions random_options(uint64_t round, uint64_t capacity) {
  LoaderOptions options;
  const uint64_t outputs = 1 + random_number(round, 0, 4);
  for (size_t o = 0; o < outputs; ++o) {
    options.outputs.push_back(random_output(round, o, capacity));
    if (o > 0 &&
        random_number(round, 10 + o, 2) == 0) {  // shares a window, or shows a column twice
      column_of(options.outputs[o]).window = column_of(options.outputs[0]).window;
    }
  }
  options.batch_size = 1 + random_number(round, 1, 40);
  options.packed = random_number(round, 2, 2) == 0;
  options.sampler.seed = round;
  return options;
}

void expect_same(const Batch& one, const Batch& other) {
  const BatchLayout& layout = *one.layout;
  expect(one.items == other.items && one.rows == other.rows, "the batches differ in size");
  const auto same = [&](uint64_t place, uint64_t bytes) {
    return std::memcmp(one.block.get() + place, other.block.get() + place, bytes) == 0;
  };
  expect(same(layout.ids, one.items * sizeof(int64_t)), "ids differ");
  expect(same(layout.probabilities, one.items * sizeof(float)), "probabilities differ");
  for (size_t o = 0; o < layout.outputs.size(); ++o) {
    expect(same(layout.data[o], one.rows[layout.window_of[o]] * layout.row_bytes[o]),
           "rows read one-sided are not those that were sent");
  }
}

void none(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) {
    CHECK(error == "");
  }
}

bool as_told(const gear::deliver::Stats& stats, bool packed) {
  return stats.packed_bytes == (packed ? stats.one_sided_bytes : 0) &&
         std::to_string(stats.pack_below) == pack_below(packed);
}

// Reads batches until all ranks have `least` of them and `seconds` are over, while a writer of each
// rank evicts as fast as it can. What rank 0 saw, in words.
std::string read_while_evicted(const OneSidedKind& kind, bool packed, int least, double seconds) {
  const ScopedVariable set(kPackBelow, pack_below(packed));
  Ranks ranks = kind.make(2, kLong, {});
  std::string told;
  none(errors_of(ranks, [&](Transport& transport) {
    gear::store::ShardOptions shard_options = options_of(200);
    shard_options.owner = transport.rank();
    const auto shard = std::make_shared<gear::store::Shard>(schema(), shard_options);
    {
      gear::store::Writer first(shard);
      add_episode(first, transport.rank(), 40);
    }
    const auto peers = std::make_shared<Peers>(
        shard, std::shared_ptr<Transport>(transport.duplicate()), nodes_of(2), false);
    LoaderOptions options;
    options.outputs = windows();
    options.batch_size = 64;
    options.packed = transport.size() % 2 == 1;
    const auto pipeline = gear::group::make_pipeline(peers, {peers->shard(), options}, {});
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> written{0};
    std::thread evicting([&] {
      gear::store::Writer writer(shard);
      const uint64_t first = (transport.rank() + 1ULL) << 20;
      for (uint64_t episode = first; !stop; ++episode, ++written) {
        add_episode(writer, episode, 1 + episode % 30);
      }
    });
    const auto start = std::chrono::steady_clock::now();
    std::string failed;
    int number = 0;
    try {
      for (bool go_on = true; go_on; ++number) {
        Batch batch;
        expect(pipeline->next(kLong, batch) == Pipeline::Next::kBatch, "no batch");
        expect(wrong_rows(batch) == 0, "rows are torn, or of another step");
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        const bool mine = number + 1 < least || took.count() < seconds;
        std::array<std::byte, 2> all{};
        transport.allgather(std::as_bytes(std::span(&mine, 1)), all);
        go_on = all[0] != std::byte{0} || all[1] != std::byte{0};
      }
      expect(pipeline->stats().one_sided_bytes > 0, "nothing was read one-sided");
      expect(as_told(pipeline->stats(), packed), "rows came another way");
    } catch (const std::exception& error) {
      failed = error.what();
    }
    stop = true;
    evicting.join();
    expect(failed.empty(), failed.c_str());
    if (transport.rank() == 0) {
      told = gear::base::cat(number, " batches, ", pipeline->stats().one_sided_bytes,
                             " bytes read one-sided, ", written.load(),
                             " episodes of 1 to 30 steps written over 200");
    }
  }));
  return told;
}

}  // namespace

TEST_CASE("one-sided rows: batches are to the bit those whose rows were sent") {
  for (const OneSidedKind& kind : kOneSidedKinds) {
    CAPTURE(kind.name);
    for (uint64_t round = 1; round <= tries(kind.rounds); ++round) {
      CAPTURE(round);
      const auto size = static_cast<uint32_t>(2 + round % 2);
      const bool packed = round / 2 % 2 == 1 && seen_by_sanitizer(kind);  // an arena is used again
      const ScopedVariable set(kPackBelow, pack_below(packed));
      Ranks ranks = kind.make(size, kLong, {});
      Ranks senders = make_messages(size, kLong);
      const Contents to_send = contents_of(size);
      const Contents to_read = contents_of(size);
      none(errors_of(ranks, [&](Transport& transport) {
        LoaderOptions options = random_options(round, 120);
        options.prefetch = round % 3;
        const auto sent = pipeline_over(*senders[transport.rank()], to_send, options);
        const auto read = pipeline_over(transport, to_read, options);
        for (int batch = 0; batch < 4; ++batch) {
          Batch wanted;
          Batch given;
          expect(sent->next(kLong, wanted) == Pipeline::Next::kBatch, "no batch");
          expect(read->next(kLong, given) == Pipeline::Next::kBatch, "no batch");
          expect_same(given, wanted);
        }
        const gear::deliver::Stats by_messages = sent->stats();
        const gear::deliver::Stats one_sided = read->stats();
        expect(by_messages.one_sided_bytes == 0 && one_sided.message_bytes == 0,
               "bytes came another way");
        expect(one_sided.one_sided_bytes == by_messages.message_bytes, "other bytes are counted");
        expect(one_sided.one_sided_bytes == one_sided.same_node_bytes + one_sided.remote_bytes,
               "other bytes are counted");
        expect(as_told(one_sided, packed), "rows came another way");
      }));
    }
  }
}

TEST_CASE("one-sided rows: no page is written again before all who read it have") {
  for (const OneSidedKind& kind : kOneSidedKinds) {
    if (seen_by_sanitizer(kind)) {
      CAPTURE(kind.name);
      static_cast<void>(read_while_evicted(kind, false, 60, 0));
      static_cast<void>(read_while_evicted(kind, true, 60, 0));
    }
  }
}

// By hand, with --no-skip.
TEST_CASE("one-sided rows: a minute of eviction at full speed" * doctest::skip()) {
  for (const OneSidedKind& kind : kOneSidedKinds) {
    if (seen_by_sanitizer(kind)) {
      MESSAGE(kind.name, ": ", read_while_evicted(kind, false, 60, 60));
      MESSAGE(kind.name, ", packed: ", read_while_evicted(kind, true, 60, 60));
    }
  }
}
