// Batches put together from the shards of several ranks, against each item gathered by itself from
// the shard that holds it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/errors.h"
#include "base/numbers/permutation.h"
#include "deliver/block_pool.h"
#include "expect_message.h"
#include "gather/gather_cpu.h"
#include "group/parcels/batch_assembly.h"
#include "group/parcels/parcel_format.h"
#include "group/parcels/parcel_writer.h"
#include "tries.h"
#include "varied_content.h"

using namespace gear::deliver;
using namespace gear::plan;
using namespace gear::group;
using namespace gear::gather;
using namespace gear::store;
using namespace gear::testing;

namespace {

using Bytes = std::vector<std::byte>;

Batch poisoned_batch(const std::shared_ptr<const BatchLayout>& layout) {
  Batch batch;
  batch.layout = layout;
  batch.block = host_block(layout->bytes);
  std::memset(batch.block.get(), kPoison, layout->bytes);
  return batch;
}

// One batch over several ranks: who holds each item, and where it goes.
struct Case {
  Case(const std::vector<std::unique_ptr<VariedContent>>& all, uint64_t number)
      : contents(all), ranks(1 + number % all.size()), round(number) {
    Shard& shard = *contents[0]->shard;
    for (size_t o = 0; o < 1 + random(4); ++o) {
      outputs.push_back(random_output(round, o, shard.index().num_slots()));
      if (o > 0 && random(2) == 0) {  // perhaps a shared window, or the same column twice
        column_of(outputs[o]).window = column_of(outputs[0]).window;
      }
      StepColumn& of = column_of(outputs[o]);
      if (of.column < 2 && random(3) == 0) {
        of.dtype = random(2) == 0 ? gear::base::DType::kF32 : gear::base::DType::kF16;
        of.scale = 0.25F;
      }
    }
    if (random(3) == 0) {
      outputs.emplace_back("sum", Fold{3, static_cast<uint32_t>(1 + random(9)), 0.75F});
    }
    if (random(2) == 0) {
      const auto kind = static_cast<Derived>(random(3));
      outputs.emplace_back("derived", Standing{kind, column_of(outputs[0]).window});
    }
    items = random(30);
    layout = std::make_shared<BatchLayout>(shard.schema(), outputs, items + 1 + random(2),
                                           random(2) == 0);
    part_items = static_cast<uint32_t>(random(2) == 0 ? 1 + random(9) : ParcelWriter::kPartItems);
    selections.resize(ranks);
    places.resize(ranks);
    const gear::base::Permutation order(items, round, 3);
    for (uint32_t place = 0; place < items; ++place) {
      const auto rank = static_cast<uint32_t>(random(random(3) == 0 ? 1 : ranks));
      const std::vector<Anchor> anchors = all_steps(contents[rank]->shard->index());
      owners.push_back(rank);
      selections[rank].add(anchors[random(anchors.size())],
                           static_cast<float>(1 + random(100)) / 128);
      places[rank].push_back(static_cast<uint32_t>(order(place)));
    }
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      std::ranges::sort(places[rank]);
      mapped_pages.push_back(random(2) * contents[rank]->shard->index().options().num_pages);
    }
  }

  uint64_t random(uint64_t range) {
    return gear::base::scale_to(gear::base::philox(round, 77, counter++), range);
  }

  const PageLayout& pages() const { return contents[0]->shard->layout(); }

  // What rank `owner` sends: its parcel, and the rows where they are packed.
  struct Sent {
    Bytes parcel;
    PackedRows packed;
    Bytes rows;
  };
  Sent send(uint32_t owner, gear::base::ThreadPool& pool) const {
    Shard& shard = *contents[owner]->shard;
    std::vector<uint32_t> which(selections[owner].size());
    for (uint32_t i = 0; i < which.size(); ++i) {
      which[i] = i;
    }
    Sent sent;
    Plan plan;
    const ParcelWriter writer(*layout, pages(), part_items);
    sent.packed = writer.write(shard.index(), selections[owner], which, places[owner],
                               mapped_pages[owner] > 0, sent.parcel, plan);
    REQUIRE(sent.parcel.size() <= writer.most_bytes(which.size()));
    sent.parcel.shrink_to_fit();  // so that a byte too far is seen
    sent.rows.resize(sent.packed.bytes);
    pack_cpu(shard.data(), pages(), *layout, plan, sent.packed, sent.rows.data(), pool);
    return sent;
  }

  const std::vector<std::unique_ptr<VariedContent>>& contents;
  uint32_t ranks;
  uint64_t round;
  uint64_t counter = 0;
  uint64_t items = 0;
  uint32_t part_items = 0;
  std::vector<Output> outputs;
  std::shared_ptr<const BatchLayout> layout;
  std::vector<uint32_t> owners;
  std::vector<gear::select::Selection> selections;  // by rank
  std::vector<std::vector<uint32_t>> places;
  std::vector<uint64_t> mapped_pages;
};

void move_rows(const Case& given, const BatchAssembly& assembly, uint32_t owner, const Bytes& rows,
               Batch& batch, gear::base::ThreadPool& pool) {
  if (given.mapped_pages[owner] > 0) {
    gather_cpu(given.contents[owner]->shard->data(), given.pages(), assembly.plan(owner), batch,
               pool);
  } else {
    unpack_cpu(rows.data(), assembly.packed(owner), given.pages(), assembly.plan(owner), batch,
               pool);
  }
}

// Item `place` of the batch is what it is when its owner gathers it alone. Returns its bytes.
uint64_t expect_item(const Case& given, const Batch& batch, uint32_t owner, Anchor anchor,
                     float probability, uint32_t place) {
  Shard& shard = *given.contents[owner]->shard;
  const auto layout =
      std::make_shared<BatchLayout>(shard.schema(), given.outputs, 1, given.layout->packed);
  Batch alone = poisoned_batch(layout);
  gear::select::Selection chosen;
  chosen.add(anchor, probability);
  Plan plan;
  gear::base::ThreadPool pool(1);
  make_plan(shard.index(), shard.layout(), chosen, alone, plan);
  gather_cpu(shard.data(), shard.layout(), plan, alone, pool);
  REQUIRE(batch.at<int64_t>(given.layout->ids)[place] == alone.at<int64_t>(layout->ids)[0]);
  REQUIRE(batch.at<float>(given.layout->probabilities)[place] == probability);
  for (size_t o = 0; o < layout->outputs.size(); ++o) {
    const size_t w = layout->window_of[o];
    const BatchLayout::SharedWindow& shared = given.layout->windows[w];
    const uint64_t length = shared.window.length();
    REQUIRE(batch.at<int32_t>(shared.lengths)[place] ==
            alone.at<int32_t>(layout->windows[w].lengths)[0]);
    uint64_t row = place * length;
    if (layout->packed) {
      row = static_cast<uint64_t>(batch.at<int32_t>(shared.cu_seqlens)[place]);
    } else {
      REQUIRE(std::memcmp(batch.at<bool>(shared.mask) + row,
                          alone.at<bool>(layout->windows[w].mask), length) == 0);
    }
    if (layout->outputs[o].fold) {
      row = place;
    }
    const uint64_t bytes = alone.delivered_rows(o) * layout->row_bytes[o];
    REQUIRE(std::memcmp(batch.at<std::byte>(given.layout->data[o]) + row * layout->row_bytes[o],
                        alone.at<std::byte>(layout->data[o]), bytes) == 0);
  }
  return alone.bytes;
}

std::vector<std::unique_ptr<VariedContent>> make_contents() {
  std::vector<std::unique_ptr<VariedContent>> contents;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    contents.push_back(std::make_unique<VariedContent>(rank));
  }
  return contents;
}

// Every run of the plans reads and writes inside what there is.
void expect_inside(const Case& given, const BatchAssembly& assembly, const Batch& batch) {
  const auto expect_targets = [&](const Plan& plan) {
    for (size_t w = 0; w < plan.num_windows(); ++w) {
      for (const Run& run : plan.runs(w)) {
        REQUIRE(run.target + run.count <= batch.rows[w]);
      }
    }
  };
  expect_targets(assembly.padding());
  for (uint32_t owner = 0; owner < given.ranks; ++owner) {
    const Plan& plan = assembly.plan(owner);
    expect_targets(plan);
    for (size_t w = 0; w < plan.num_windows(); ++w) {
      for (const Run& run : plan.runs(w)) {
        if (given.mapped_pages[owner] == 0) {
          continue;  // ASan looks at packed rows
        }
        REQUIRE(run.page < given.mapped_pages[owner]);
        REQUIRE(run.row + run.count <= given.pages().page_steps);
      }
    }
  }
}

}  // namespace

TEST_CASE("parcels: a batch from many ranks holds what each of them gathers alone") {
  const auto contents = make_contents();
  gear::base::ThreadPool pool(2);
  uint64_t packed_bytes = 0;
  uint64_t mapped_bytes = 0;
  const uint64_t rounds = tries(400);
  for (uint64_t round = 0; round < rounds; ++round) {
    CAPTURE(round);
    const Case given(contents, round);
    const BatchLayout& layout = *given.layout;
    Batch batch = poisoned_batch(given.layout);
    BatchAssembly assembly(layout, given.pages(), given.mapped_pages);
    for (int again = 0; again < 2; ++again) {
      std::vector<Case::Sent> sent;
      assembly.begin(batch, given.items);
      for (uint32_t owner = 0; owner < given.ranks; ++owner) {
        sent.push_back(given.send(owner, pool));
      }
      for (uint32_t owner = given.ranks; owner-- > 0;) {
        assembly.add(owner, sent[owner].parcel);
      }
      assembly.finish();
      expect_inside(given, assembly, batch);
      gather_cpu(contents[0]->shard->data(), given.pages(), assembly.padding(), batch, pool);
      for (uint32_t owner = 0; owner < given.ranks; ++owner) {
        const PackedRows packed = assembly.packed(owner);
        REQUIRE(packed.bytes == sent[owner].packed.bytes);
        REQUIRE(packed.rows == sent[owner].packed.rows);
        REQUIRE(packed.offset == sent[owner].packed.offset);
        REQUIRE((packed.bytes == 0 || given.mapped_pages[owner] == 0));
        move_rows(given, assembly, owner, sent[owner].rows, batch, pool);
        packed_bytes += packed.bytes;
        if (given.mapped_pages[owner] > 0) {
          mapped_bytes += assembly.bytes(owner);
        }
      }
    }
    uint64_t bytes = 0;
    for (uint32_t owner = 0; owner < given.ranks; ++owner) {
      uint64_t own = 0;
      for (size_t i = 0; i < given.places[owner].size(); ++i) {
        own += expect_item(given, batch, owner, given.selections[owner].anchors[i],
                           given.selections[owner].probabilities[i], given.places[owner][i]);
      }
      REQUIRE(assembly.bytes(owner) == own);
      bytes += own;
    }
    REQUIRE(batch.items == given.items);
    REQUIRE(batch.bytes == bytes);
    for (size_t o = 0; o < layout.outputs.size(); ++o) {
      const size_t w = layout.window_of[o];
      const uint64_t filled = batch.delivered_rows(o) * layout.row_bytes[o];
      if (layout.packed) {
        const auto last = batch.at<int32_t>(layout.windows[w].cu_seqlens)[given.items];
        REQUIRE(batch.rows[w] == static_cast<uint64_t>(last));
      }
      const uint64_t all =
          layout.batch_size * layout.outputs[o].delivered_rows * layout.row_bytes[o];
      for (uint64_t b = filled; b < all; ++b) {
        REQUIRE(batch.at<uint8_t>(layout.data[o])[b] == kPoison);
      }
    }
  }
  CHECK(packed_bytes > 250 * rounds);
  CHECK(mapped_bytes > 250 * rounds);
}

TEST_CASE("parcels: rows travel behind them, as many as there are") {
  const auto contents = make_contents();
  gear::base::ThreadPool pool(1);
  uint64_t travelled = 0;
  for (uint64_t round = 0; round < tries(200); ++round) {
    CAPTURE(round);
    const Case given(contents, round);
    Batch batch = poisoned_batch(given.layout);
    BatchAssembly assembly(*given.layout, given.pages(), given.mapped_pages);
    std::vector<Case::Sent> sent;
    std::vector<Parcel> parcels(given.ranks);
    for (uint32_t owner = 0; owner < given.ranks; ++owner) {
      sent.push_back(given.send(owner, pool));
      Parcel& parcel = parcels[owner];
      parcel.bytes.assign(sent[owner].parcel.begin(), sent[owner].parcel.end());
      parcel.rows = sent[owner].packed;
      if (parcel.rows.bytes > 0) {
        std::vector<std::byte> message;
        std::memcpy(room_behind(parcel, message), sent[owner].rows.data(), parcel.rows.bytes);
        parcel.bytes = message;
      }
    }
    const auto put_together = [&] {
      assembly.begin(batch, given.items);
      for (uint32_t owner = 0; owner < given.ranks; ++owner) {
        if (!given.places[owner].empty()) {
          assembly.add(owner, parcels[owner].bytes);
        }
      }
      assembly.finish();
    };
    put_together();
    for (uint32_t owner = 0; owner < given.ranks; ++owner) {
      REQUIRE(assembly.items(owner) == given.places[owner].size());
      const uint64_t bytes = sent[owner].packed.bytes;
      if (bytes == 0) {
        continue;
      }
      REQUIRE(assembly.rows_at(owner) == kRowsBehind);
      const auto rows = assembly.rows_behind(owner);
      REQUIRE(std::ranges::equal(rows, sent[owner].rows));
      travelled += bytes;
      for (const int more : {-1, 1}) {
        const auto whole = parcels[owner].bytes;
        parcels[owner].bytes.resize(whole.size() + static_cast<size_t>(more));
        expect_message<gear::base::TransportError>(put_together, "parcel of rank",
                                                   "its rows are more or less than it says");
        parcels[owner].bytes = whole;
      }
      put_together();
    }
  }
  CHECK(travelled > 10'000);
}

TEST_CASE("parcels: torn bytes are refused, or stay inside what there is") {
  const auto contents = make_contents();
  gear::base::ThreadPool pool(1);
  uint64_t refused = 0;
  uint64_t accepted = 0;
  const uint64_t rounds = tries(6000);
  for (uint64_t round = 0; round < rounds; ++round) {
    CAPTURE(round);
    Case given(contents, round % 300);
    given.counter = 1000 * round;
    std::vector<Case::Sent> sent;
    for (uint32_t owner = 0; owner < given.ranks; ++owner) {
      sent.push_back(given.send(owner, pool));
    }
    Bytes& torn = sent[given.random(given.ranks)].parcel;
    for (uint64_t i = given.random(4); i > 0 && !torn.empty(); --i) {
      std::byte& byte = torn[given.random(torn.size())];
      byte = static_cast<std::byte>(given.random(2) == 0 ? given.random(256)
                                                         : std::to_integer<uint64_t>(byte) + 1);
    }
    const uint64_t kind = given.random(4);
    if (kind == 0) {
      torn.resize(given.random(torn.size() + 1));
    }
    if (kind == 1) {
      torn.resize(torn.size() + given.random(40));
    }
    torn.shrink_to_fit();
    Batch batch = poisoned_batch(given.layout);
    BatchAssembly assembly(*given.layout, given.pages(), given.mapped_pages);
    try {
      assembly.begin(batch, given.items);
      for (uint32_t owner = 0; owner < given.ranks; ++owner) {
        assembly.add(owner, sent[owner].parcel);
      }
      assembly.finish();
    } catch (const gear::base::TransportError&) {
      ++refused;
      continue;
    }
    ++accepted;
    expect_inside(given, assembly, batch);
    for (uint32_t owner = 0; owner < given.ranks; ++owner) {
      const Bytes rows(assembly.packed(owner).bytes);  // as many as would be received
      move_rows(given, assembly, owner, rows, batch, pool);
    }
  }
  CHECK(6 * refused > rounds);
  CHECK(6 * accepted > rounds);
}

TEST_CASE("parcels: what is wrong with one is said") {
  const auto contents = make_contents();
  gear::base::ThreadPool pool(1);
  uint64_t round = 0;  // one with rows of rank 0 mapped, and of another packed
  const auto fits = [](const Case& given) {
    return given.items > 4 && given.ranks > 1 && given.mapped_pages[0] > 0 &&
           given.mapped_pages[1] == 0 && given.places[0].size() > 1 && given.places[1].size() > 1 &&
           given.places[0][0] < given.places[1][1];
  };
  while (!fits(Case(contents, round))) {
    ++round;
  }
  const Case given(contents, round);
  const Bytes mapped = given.send(0, pool).parcel;
  const Bytes packed = given.send(1, pool).parcel;
  Batch batch = poisoned_batch(given.layout);
  BatchAssembly assembly(*given.layout, given.pages(), given.mapped_pages);
  const auto expect_refused = [&](uint32_t owner, const Bytes& parcel, const char* what) {
    assembly.begin(batch, given.items);
    expect_message<gear::base::TransportError>([&] { assembly.add(owner, parcel); },
                                               "parcel of rank " + std::to_string(owner), what,
                                               "the same build");
  };
  expect_refused(0, {mapped.begin(), mapped.end() - 1}, "ends too early");
  expect_refused(1, {packed.begin(), packed.begin() + 3}, "ends too early");
  Bytes longer = packed;
  longer.push_back(std::byte{0});
  expect_refused(1, longer, "bytes follow");
  expect_refused(0, packed, "not where they were to be");
  expect_refused(1, mapped, "not where they were to be");
  const size_t places =
      sizeof(ParcelHeader) + given.places[1].size() * (sizeof(int64_t) + sizeof(float));
  Bytes twice = packed;
  std::memcpy(twice.data() + places + 4, twice.data() + places, 4);
  expect_refused(1, twice, "do not ascend");
  Bytes far = packed;
  const auto behind = static_cast<uint32_t>(given.items);
  std::memcpy(far.data() + places + 4 * (given.places[1].size() - 1), &behind, 4);
  expect_refused(1, far, "has no place");
  Bytes taken = packed;
  std::memcpy(taken.data() + places, given.places[0].data(), 4);
  assembly.begin(batch, given.items);
  assembly.add(0, mapped);
  expect_message<gear::base::TransportError>([&] { assembly.add(1, taken); }, "parcel of rank 1",
                                             "place is taken");
  Bytes more = packed;
  more[0] = std::byte{255};
  expect_refused(1, more, "more items than the batch");

  assembly.begin(batch, given.items);
  assembly.add(0, mapped);
  expect_message<gear::base::TransportError>(
      [&] { assembly.finish(); }, " fill " + std::to_string(given.places[0].size()) + " of ",
      "make the same calls");
}

TEST_CASE("packed rows: outputs of one window that show one column share its rows") {
  const Schema schema({{"x", {3}, gear::base::DType::kU8}, {"y", {}, gear::base::DType::kF64}});
  const PageLayout pages(schema, 4);
  std::vector<Output> outputs = {{"a", 0, -1, 1}, {"b", 1, -1, 1}, {"c", 0, -1, 1}, {"d", 0, 0, 1}};
  column_of(outputs[2]).dtype = gear::base::DType::kF32;
  const BatchLayout layout(schema, outputs, 8, false);
  REQUIRE(layout.windows.size() == 2);
  const PackedRows packed(layout, pages, {7, 2});
  CHECK(packed.offset == std::vector<uint64_t>{0, 32, 0, 96});  // 7 * 3 and 7 * 8, to 16
  CHECK(packed.bytes == 112);
  CHECK(PackedRows().bytes == 0);
  CHECK(PackedRows(layout, pages, {0, 0}).bytes == 0);
}
