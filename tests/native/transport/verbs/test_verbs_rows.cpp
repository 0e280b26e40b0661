// Rows read one-sided: with a fake device in the native tests, with a real one in tests/rdma.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/numbers/philox.h"
#include "deliver/pipeline.h"
#include "described_rows.h"
#include "group/group_loader.h"
#include "transport/verbs/verbs_ranks.h"
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

uint64_t random_number(uint64_t seed, uint64_t n, uint64_t range) {
  return gear::base::scale_to(gear::base::philox(seed, 5, n), range);
}

std::vector<std::byte> content_of(uint64_t rank, size_t bytes) {
  std::vector<std::byte> content(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    content[i] = static_cast<std::byte>((i * 2654435761U + rank * 97) >> 7);
  }
  return content;
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
                                             std::vector<uint32_t>(transport.size(), 0), false);
  return gear::group::make_pipeline(peers, options, {});
}

LoaderOptions random_options(uint64_t round, uint64_t capacity) {
  LoaderOptions options;
  const uint64_t outputs = 1 + random_number(round, 0, 4);
  for (size_t o = 0; o < outputs; ++o) {
    options.outputs.push_back(random_output(round, o, capacity));
    if (o > 0 &&
        random_number(round, 10 + o, 2) == 0) {  // shares a window, or shows a column twice
      options.outputs[o].start = options.outputs[0].start;
      options.outputs[o].stop = options.outputs[0].stop;
      options.outputs[o].pad = options.outputs[0].pad;
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

}  // namespace

TEST_CASE(
    "verbs rows: what others expose is read as it is, through chunks and queues of any size") {
  constexpr size_t kBytes = 300'001;
  for (const uint64_t chunk_bytes : {uint64_t{8192}, uint64_t{1} << 30}) {
    for (const uint32_t queue_pairs : {1U, 3U}) {
      for (const uint32_t size : {2U, 3U}) {
        CAPTURE(chunk_bytes);
        CAPTURE(queue_pairs);
        CAPTURE(size);
        std::vector<std::vector<std::byte>> there;
        for (uint32_t owner = 0; owner < size; ++owner) {
          there.push_back(content_of(owner, kBytes + owner));
        }
        Ranks ranks = make_verbs_ranks(size, kLong, {chunk_bytes, queue_pairs, nullptr});
        none(errors_of(ranks, [&](Transport& transport) {
          const uint32_t own = transport.rank();
          std::vector<std::byte> mine = there[own];
          const auto memory = transport.expose(mine);
          const auto reader = memory->connect(transport);
          for (uint64_t round = 0; round < 5; ++round) {
            std::vector<RemoteRead> reads;
            uint64_t bytes = 0;
            for (uint32_t owner = 0; owner < size; ++owner) {
              for (uint64_t n = 0; owner != own && n < 150 * round; ++n) {
                const uint64_t number = (round * size + owner) * 1000 + 3 * n;
                const uint64_t most = random_number(own, number, 20) == 0 ? 40'000 : 300;
                const uint64_t length = 1 + random_number(own, number + 1, most);
                const uint64_t from = random_number(own, number + 2, kBytes + owner - length + 1);
                reads.push_back({owner, from, length, bytes});
                bytes += length + n % 3;
              }
            }
            const ConstBytes read = reader->read(reads, bytes);
            expect(read.size() == bytes, "another size");
            for (const RemoteRead& one : reads) {
              expect(std::memcmp(read.data() + one.to, there[one.owner].data() + one.from,
                                 one.bytes) == 0,
                     "other bytes were read");
            }
          }
          transport.allgather({}, {});  // nobody leaves while others read
        }));
      }
    }
  }
}

TEST_CASE("verbs rows: batches are to the bit those whose rows were sent") {
  for (uint64_t round = 1; round <= 40; ++round) {
    CAPTURE(round);
    const auto size = static_cast<uint32_t>(2 + round % 2);
    Ranks ranks = make_verbs_ranks(size, kLong);
    Ranks senders = make_loopback(size, kLong);
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
      expect(one_sided.one_sided_bytes == one_sided.same_node_bytes, "other bytes are counted");
    }));
  }
}

TEST_CASE("verbs rows: no page is written again before all who read it have") {
  constexpr int kBatches = 60;
  Ranks ranks = make_verbs_ranks(2, kLong);
  none(errors_of(ranks, [&](Transport& transport) {
    gear::store::ShardOptions shard_options = options_of(200);
    shard_options.owner = transport.rank();
    const auto shard = std::make_shared<gear::store::Shard>(schema(), shard_options);
    {
      gear::store::Writer first(shard);
      add_episode(first, transport.rank(), 40);
    }
    const auto peers =
        std::make_shared<Peers>(shard, std::shared_ptr<Transport>(transport.duplicate()),
                                std::vector<uint32_t>(2, 0), false);
    LoaderOptions options;
    options.outputs = windows();
    options.batch_size = 64;
    options.packed = transport.size() % 2 == 1;
    const auto pipeline = gear::group::make_pipeline(peers, options, {});
    std::atomic<bool> stop{false};
    std::thread evicting([&] {
      gear::store::Writer writer(shard);
      for (uint64_t episode = (transport.rank() + 1) << 20; !stop; ++episode) {
        add_episode(writer, episode, 1 + episode % 30);
      }
    });
    std::string failed;
    try {
      for (int number = 0; number < kBatches; ++number) {
        Batch batch;
        expect(pipeline->next(kLong, batch) == Pipeline::Next::kBatch, "no batch");
        expect(wrong_rows(batch) == 0, "rows are torn, or of another step");
      }
      expect(pipeline->stats().one_sided_bytes > 0, "nothing was read one-sided");
    } catch (const std::exception& error) {
      failed = error.what();
    }
    stop = true;
    evicting.join();
    expect(failed.empty(), failed.c_str());
  }));
}

TEST_CASE("verbs rows: a duplicate exposes memory too, and none of it is nobody's") {
  Ranks ranks = make_verbs_ranks(2, kLong);
  none(errors_of(ranks, [](Transport& transport) {
    expect(transport.name() == "verbs", "another name");
    const std::unique_ptr<Transport> second = transport.duplicate();
    std::vector<std::byte> mine = content_of(transport.rank(), 64);
    const auto memory = second->expose(mine);
    const auto reader = memory->connect(*second);
    const uint32_t other = 1 - transport.rank();
    const std::vector<RemoteRead> reads{{other, 60, 4, 0}};
    const ConstBytes read = reader->read(reads, 4);
    expect(std::memcmp(read.data(), content_of(other, 64).data() + 60, 4) == 0, "other bytes");
    const auto refused = [&](RemoteRead one) {
      try {
        static_cast<void>(reader->read({&one, 1}, 4));
      } catch (const std::logic_error&) {
        return true;
      }
      return false;
    };
    expect(refused({other, 61, 4, 0}), "a read past the end was made");
    expect(refused({other, UINT64_MAX, 4, 0}), "a read past the end was made");
    expect(refused({other, 0, 4, 1}), "a read past the landing memory was made");
    expect(refused({transport.rank(), 0, 4, 0}), "a rank read its own memory");
    expect(reader->read({}, 0).empty(), "bytes of no reads");
    second->allgather({}, {});
  }));
}
