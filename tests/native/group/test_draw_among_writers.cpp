// Draws over all ranks among threads that write; made for ThreadSanitizer.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <compare>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "drawing_rank.h"
#include "group/parcels/parcel_format.h"
#include "transport/loopback.h"

using namespace gear::group;
using namespace gear::plan;
using namespace gear::store;
using namespace gear::testing;
using gear::select::Policy;
using gear::transport::Bytes;
using gear::transport::ConstBytes;
using gear::transport::Transport;

namespace {

// What a parcel says of each of its items, and the rows that it names.
struct Item {
  int64_t id;
  float probability;

  auto operator<=>(const Item&) const = default;
};

template <class T>
T take(ConstBytes& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes = bytes.subspan(sizeof value);
  return value;
}

// Appends the items; the number of rows that are not whole, or not at the place of their id.
uint64_t read_parcel(Shard& shard, const Parcel& parcel, std::vector<Item>& items) {
  ConstBytes bytes = parcel.bytes;
  if (bytes.empty()) {
    return 0;
  }
  const auto header = take<ParcelHeader>(bytes);
  const size_t first = items.size();
  for (uint32_t i = 0; i < header.items; ++i) {
    items.push_back({take<int64_t>(bytes), 0});
  }
  for (uint32_t i = 0; i < header.items; ++i) {
    items[first + i].probability = take<float>(bytes);
  }
  const uint64_t parts = (header.items + header.part_items - 1) / header.part_items;
  bytes = bytes.subspan(header.items * (sizeof(uint32_t) + sizeof(ParcelPiece)) +
                        (1 + parts) * sizeof(uint32_t));
  uint64_t wrong = 0;
  for (uint32_t i = 0; i < header.items; ++i) {
    const auto run = take<ParcelRun>(bytes);
    Row there(0, 0);
    std::memcpy(&there, shard.data() + shard.layout().offset(run.page, 0, run.row), sizeof there);
    const Row wanted(there.numbers[0], there.numbers[1]);
    wrong += std::memcmp(&there, &wanted, sizeof there) != 0;
    wrong += StepId::unpack(items[first + i].id).slot != run.page * kPageSteps + run.row;
  }
  return wrong;
}

// Draws while the shard's other threads append, evict and update: every batch is, to the bit, what
// a sampler chooses that sees what all ranks offered.
void draw_among_writers(Transport& control, Policy policy, int batches) {
  Rank rank(control, {policy});
  Shard& shard = *rank.shard;
  const uint32_t ranks = control.size();
  std::unique_ptr<gear::select::GroupSampler> reference;
  {
    const auto lock = shard.lock();
    reference = std::make_unique<gear::select::GroupSampler>(rank.sampler, shard.index(),
                                                             control.rank(), ranks);
  }
  std::vector<Item> wanted;
  gear::select::SamplerPosition before =
      reference->law().position();  // of the batch: its offers may be told twice
  rank.during([&](ConstBytes all) {
    std::vector<std::byte> offers;
    for (uint32_t r = 0; r < ranks; ++r) {
      const ConstBytes one = all.subspan(r * (all.size() / ranks) + 24, 2 * sizeof(uint64_t));
      offers.insert(offers.end(), one.begin(), one.end());
    }
    uint64_t version = 0;
    {
      const auto lock = shard.lock();
      version = shard.index().steps().version();
      gear::select::GroupDraw draw;
      reference->law().restore(before);
      const auto alone = [](std::span<const uint64_t>, std::span<const uint64_t>,
                            std::span<uint64_t>) {};
      reference->select(shard.index(), {kBatchSize * ranks, offers, false, alone}, draw);
      wanted.clear();
      for (size_t i = 0; i < draw.own.size(); ++i) {
        wanted.push_back(
            {shard.index().id(draw.own.anchors[i], Unit::kStep), draw.own.probabilities[i]});
      }
    }
    for (int i = 0; i < 20; ++i) {
      std::this_thread::yield();
    }
    const auto lock = shard.lock();
    expect(shard.index().steps().version() == version, "the index did not stand still");
  });

  constexpr std::chrono::microseconds kPause{50};  // leaves the lock to others
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::vector<int64_t> seen;
  std::vector<std::thread> others;
  for (uint64_t number = 1; number <= 2; ++number) {
    others.emplace_back([&, number] {
      Writer writer(rank.shard);
      for (uint64_t episode = number << 32; !stop; ++episode) {
        add_episode(writer, episode, 1 + episode % 9);
        std::this_thread::sleep_for(kPause);
      }
    });
  }
  others.emplace_back([&] {
    for (uint64_t round = 0; !stop; ++round) {
      std::vector<int64_t> ids;
      {
        const std::lock_guard guard(mutex);
        ids = seen;
      }
      // The largest grows, which moves the scale of weights.
      const auto growing = static_cast<float>(1 + round / 8);
      const std::vector<float> priorities(ids.size(), static_cast<float>(round % 7) * growing);
      shard.update(ids, priorities);
      std::this_thread::sleep_for(kPause);
    }
  });
  std::string failure;
  try {
    for (int batch = 0; batch < batches; ++batch) {
      DrawnBatch drawn;
      gear::deliver::TakenBatch taken;
      expect(rank.draws->draw({true, false}, drawn, taken) == GlobalDraw::Round::kDrawn, "no draw");
      before = reference->law().position();
      taken.deliver();
      std::vector<Item> items;
      uint64_t wrong = 0;
      for (const Parcel& one : drawn.parcels) {
        wrong += read_parcel(shard, one, items);
      }
      drawn.read.end();
      expect(wrong == 0, "rows are torn");
      std::ranges::sort(items);
      std::ranges::sort(wanted);
      expect(items == wanted, "the draws are not those of the offers");
      const std::lock_guard guard(mutex);
      seen.clear();
      for (const Item& item : items) {
        seen.push_back(item.id);
      }
    }
  } catch (const std::exception& error) {
    failure = error.what();
  }
  stop = true;
  for (std::thread& other : others) {
    other.join();
  }
  if (!failure.empty()) {
    throw std::logic_error(failure);
  }
}

}  // namespace

TEST_CASE("draws among writers are the law's, and their rows whole") {
  for (const Policy policy : {Policy::kUniform, Policy::kWeighted}) {
    for (const uint32_t size : {1U, 2U, 3U}) {
      CAPTURE(size);
      auto ranks = gear::transport::make_loopback(size, 200);
      const auto errors =
          errors_of(ranks, [&](Transport& control) { draw_among_writers(control, policy, 40); });
      for (const std::string& error : errors) {
        CHECK(error == "");
      }
    }
  }
}
