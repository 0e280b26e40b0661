// What the draws of a group cost a rank, and what it receives for them: one line of JSON for every
// number of ranks and sampler. Built by `cmake --build FOLDER --target gear_group_draws`; see
// group_draws.py.
//
//   gear_group_draws BATCH_SIZE RANKS...
//
// cpu_us: of one rank, in one thread that waits for nobody: draws and who consumes which, the other
// ranks' counts being given; the median of 60 batches, and worst_us: the most of all but the first,
// whose memory is new. received_bytes, messages: of a rank and batch, where ranks are threads
// of this process; rank_us: CPU time of such a thread, with the copies that it makes of messages.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/numbers/philox.h"
#include "group/global_draw.h"
#include "group/lone_draw.h"
#include "store/writing/writer.h"
#include "transport/loopback.h"
#include "transport/one_sided/forwarding.h"

using namespace gear;

namespace {

constexpr uint64_t kEpisodes = 20;  // of every rank
constexpr uint64_t kEpisodeSteps = 100;
constexpr uint32_t kRanksPerNode = 8;
constexpr int kBatches = 5;

struct Law {
  const char* name;
  select::Policy policy;
};
constexpr Law kByChance[] = {{"uniform", select::Policy::kUniform},
                             {"weighted", select::Policy::kWeighted},
                             {"epochs", select::Policy::kSequential}};
constexpr Law kOrdered[] = {{"fifo", select::Policy::kFifo}, {"topk", select::Policy::kTopK}};

double thread_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

double median(std::vector<double> of) {
  std::ranges::nth_element(of, of.begin() + static_cast<int64_t>(of.size() / 2));
  return of[of.size() / 2];
}

std::shared_ptr<store::Shard> filled_shard(uint32_t rank) {
  store::ShardOptions options;
  options.capacity = kEpisodes * kEpisodeSteps;
  options.page_steps = kEpisodeSteps;
  options.owner = rank;
  auto shard =
      std::make_shared<store::Shard>(store::Schema({{"x", {}, base::DType::kF32}}), options);
  store::Writer writer(shard);
  const std::vector<float> rows(kEpisodeSteps, 0.0F);
  const std::byte* columns[] = {reinterpret_cast<const std::byte*>(rows.data())};
  for (uint64_t e = 0; e < kEpisodes; ++e) {
    std::vector<float> priorities;
    for (uint64_t i = 0; i < kEpisodeSteps; ++i) {
      const uint64_t n = (rank * kEpisodes + e) * kEpisodeSteps + i;
      priorities.push_back(static_cast<float>(base::philox(1, 2, n).hi >> 40) + 1.0F);
    }
    writer.append(columns, kEpisodeSteps, priorities);
    writer.end_episode(store::EpisodeState::kTerminated, -1.0, {});
  }
  return shard;
}

std::vector<uint32_t> nodes_of(uint32_t ranks) {
  std::vector<uint32_t> nodes;
  for (uint32_t r = 0; r < ranks; ++r) {
    nodes.push_back(r / kRanksPerNode);
  }
  return nodes;
}

struct Times {
  double median_us = 0;
  double worst_us = 0;
};

Times time_alone(const Law& law, uint32_t ranks, uint64_t batch_size) {
  select::SamplerOptions options;
  options.policy = law.policy;
  options.seed = 7;
  group::LoneDraw lone(filled_shard(0), options, batch_size, group::Locality::kFirst,
                       nodes_of(ranks));
  std::vector<double> times;
  for (int i = 0; i < 60; ++i) {
    const double start = thread_us();
    while (lone.draw() == 0) {
    }
    times.push_back(thread_us() - start);
  }
  return {median(times), *std::max_element(times.begin() + 1, times.end())};
}

// Counts what a rank receives.
class Counted final : public transport::Forwarding {
 public:
  explicit Counted(std::unique_ptr<transport::Transport> inner)
      : Forwarding(*inner), owned_(std::move(inner)) {}

  void allgather(transport::ConstBytes mine, transport::Bytes all) override {
    inner_.allgather(mine, all);
    bytes += all.size() - mine.size();
    ++messages;
  }
  std::span<const transport::ConstBytes> exchange(std::span<const transport::ConstBytes> to,
                                                  std::span<const uint64_t> sizes) override {
    const std::span<const transport::ConstBytes> arrived = inner_.exchange(to, sizes);
    for (uint32_t r = 0; r < arrived.size(); ++r) {
      bytes += r == rank() ? 0 : arrived[r].size();
    }
    ++messages;
    return arrived;
  }

  uint64_t bytes = 0;
  uint64_t messages = 0;

 private:
  std::unique_ptr<transport::Transport> owned_;
};

struct Received {
  double bytes = 0;
  double messages = 0;
  double rank_us = 0;
};

Received draw_together(const Law& law, uint32_t ranks, uint64_t batch_size) {
  auto loopback = transport::make_loopback(ranks, 600);
  std::vector<Received> by_rank(ranks);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto shard = filled_shard(r);
      const std::shared_ptr<transport::Transport> transport(std::move(loopback[r]));
      group::Peers peers(shard, transport, nodes_of(ranks), false);
      deliver::LoaderOptions options;
      options.outputs = {{"x", 0, 0, 1, plan::Pad::kBoth, false}};
      options.batch_size = batch_size;
      options.sampler.policy = law.policy;
      options.sampler.seed = 7;
      const auto layout =
          std::make_shared<plan::BatchLayout>(shard->schema(), options.outputs, batch_size, false);
      Counted control(transport->duplicate());
      group::GlobalDraw draws(peers, options, group::Locality::kFirst, layout,
                              std::vector<uint8_t>(size_t{ranks} * ranks, 1), control);
      std::vector<double> times;
      for (int i = 0; i < kBatches; ++i) {
        group::DrawnBatch drawn;
        deliver::TakenBatch taken;
        const double start = thread_us();
        if (draws.draw({true, false}, drawn, taken) == group::GlobalDraw::Round::kDrawn) {
          taken.deliver();
          drawn.read.end();
        }
        times.push_back(thread_us() - start);
      }
      by_rank[r] = {static_cast<double>(control.bytes) / kBatches,
                    static_cast<double>(control.messages) / kBatches, median(times)};
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  Received most;
  std::vector<double> times;
  for (const Received& one : by_rank) {
    most.bytes = std::max(most.bytes, one.bytes);
    most.messages = std::max(most.messages, one.messages);
    times.push_back(one.rank_us);
  }
  most.rank_us = median(times);
  return most;
}

void report(const Law& law, uint32_t ranks, uint64_t batch_size, Times alone) {
  const Received received = draw_together(law, ranks, batch_size);
  std::printf("{\"sampler\": \"%s\", \"ranks\": %u, \"batch_size\": %llu, ", law.name, ranks,
              static_cast<unsigned long long>(batch_size));
  if (alone.worst_us > 0) {
    std::printf("\"cpu_us\": %.2f, \"worst_us\": %.2f, ", alone.median_us, alone.worst_us);
  }
  std::printf("\"rank_us\": %.1f, \"received_bytes\": %.0f, \"messages\": %.1f}\n",
              received.rank_us, received.bytes, received.messages);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("gear_group_draws BATCH_SIZE RANKS...\n", stderr);
    return 2;
  }
  setenv("GEAR_NUM_THREADS", "1", 1);
  const uint64_t batch_size = std::strtoull(argv[1], nullptr, 10);
  for (int i = 2; i < argc; ++i) {
    const auto ranks = static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 10));
    for (const Law& law : kByChance) {
      report(law, ranks, batch_size, time_alone(law, ranks, batch_size));
    }
    for (const Law& law : kOrdered) {
      report(law, ranks, batch_size, {});
    }
  }
}
