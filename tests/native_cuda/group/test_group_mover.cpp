// Batches over several ranks, as threads of this process, moved by the kernels of a GPU each (of
// one, where there is one only) against what the CPU puts together.
#include <cstring>
#include <stdexcept>
#include <thread>

#include "../native/varied_content.h"
#include "base/cuda/cuda.h"
#include "base/errors.h"
#include "base/gpu/devices.h"
#include "deliver/block_pool.h"
#include "gather/gather_cpu.h"
#include "group/mover.h"
#include "group/parcels/parcel_writer.h"
#include "memory/peer_device_region.h"
#include "memory/region.h"
#include "transport/loopback.h"

using namespace gear::plan;
using namespace gear::gather;
using namespace gear::deliver;
using namespace gear::group;
using namespace gear::store;
using namespace gear::testing;
using gear::memory::Tier;

namespace {

constexpr uint64_t kBatches = 12;

// How ranks reach each other's rows.
enum class Reach : uint8_t { kMapped, kHost, kNccl, kMixed };  // kMixed: rank 0 is mapped

struct World {
  World(uint32_t size, Reach by, Tier tier) : ranks(size), way(by) {
    for (uint32_t r = 0; r < ranks; ++r) {
      contents.push_back(std::make_unique<VariedContent>(r));
      Shard& shard = *contents[r]->shard;
      const gear::memory::RegionOptions options{"", "", tier == Tier::kDevice ? device(r) : -1};
      pages.push_back(gear::memory::make_region(tier, shard.region().bytes(), options));
      pages.back()->write(0, {shard.data(), shard.region().bytes()});
    }
  }

  static int device(uint32_t rank) { return static_cast<int>(rank) % gear::base::device_count(); }
  bool mapped(uint32_t reader, uint32_t owner) const {
    return reader == owner || way == Reach::kMapped || (way == Reach::kMixed && owner == 0);
  }
  bool messages() const { return way != Reach::kMapped && ranks > 1; }
  const PageLayout& layout() const { return contents[0]->shard->layout(); }

  uint32_t ranks;
  Reach way;
  std::vector<std::unique_ptr<VariedContent>> contents;
  std::vector<std::unique_ptr<gear::memory::Region>> pages;
};

// What everybody draws for one global batch: for every consumer, what it gets from every owner.
struct Draw {
  Draw(const World& world, uint64_t round) {
    selections.resize(world.ranks);
    which.resize(world.ranks);
    places.resize(world.ranks);
    items.resize(world.ranks);
    for (auto& one : which) {
      one.resize(world.ranks);
    }
    for (auto& one : places) {
      one.resize(world.ranks);
    }
    uint64_t counter = 0;
    const auto random = [&](uint64_t range) {
      return gear::base::scale_to(gear::base::philox(round, 5, counter++), range);
    };
    for (uint32_t c = 0; c < world.ranks; ++c) {
      items[c] = round % 5 == 4 ? random(3) : 20 + random(21);
      for (uint32_t place = 0; place < items[c]; ++place) {
        const auto owner = static_cast<uint32_t>(random(world.ranks));
        const std::vector<Anchor> anchors = all_steps(world.contents[owner]->shard->index());
        which[owner][c].push_back(static_cast<uint32_t>(selections[owner].size()));
        places[owner][c].push_back(place);
        selections[owner].add(anchors[random(anchors.size())],
                              static_cast<float>(1 + random(100)) / 128);
      }
    }
  }
  std::vector<gear::select::Selection> selections;        // by owner
  std::vector<std::vector<std::vector<uint32_t>>> which;  // by owner, consumer
  std::vector<std::vector<std::vector<uint32_t>>> places;
  std::vector<uint64_t> items;  // by consumer
};

std::shared_ptr<const BatchLayout> layout_of(const World& world, bool packed) {
  Shard& shard = *world.contents[0]->shard;
  std::vector<Output> outputs;
  for (size_t o = 0; o < 5; ++o) {
    outputs.push_back(random_output(7, o, shard.index().num_slots()));
  }
  outputs.push_back(outputs[0]);  // a column that shares its packed rows
  outputs.back().name = "again";
  outputs.emplace_back("step", StepColumn{1, {0, 1}, true, gear::base::DType::kF16, 0.25F});
  return std::make_shared<BatchLayout>(shard.schema(), outputs, 40, packed);
}

// A batch in the making on one rank.
struct Making {
  Batch batch;
  std::unique_ptr<BatchAssembly> assembly;
  std::vector<std::vector<std::byte>> parcels;  // to this rank, by owner
};

std::vector<uint64_t> mapped_pages(const World& world, uint32_t rank, bool all) {
  std::vector<uint64_t> pages;
  for (uint32_t o = 0; o < world.ranks; ++o) {
    const bool mapped = all || world.mapped(rank, o);
    pages.push_back(mapped ? world.contents[o]->shard->index().options().num_pages : 0);
  }
  return pages;
}

void assemble(const World& world, const Draw& draw, uint32_t rank, bool all_mapped,
              Making& making) {
  const BatchLayout& layout = *making.batch.layout;
  making.assembly = std::make_unique<BatchAssembly>(layout, world.layout(),
                                                    mapped_pages(world, rank, all_mapped));
  making.assembly->begin(making.batch, draw.items[rank]);
  making.parcels.resize(world.ranks);
  for (uint32_t o = 0; o < world.ranks; ++o) {
    Plan unused;
    static_cast<void>(ParcelWriter(layout, world.layout())
                          .write(world.contents[o]->shard->index(), draw.selections[o],
                                 draw.which[o][rank], draw.places[o][rank],
                                 all_mapped || world.mapped(rank, o), making.parcels[o], unused));
    making.assembly->add(o, making.parcels[o]);
  }
  making.assembly->finish();
}

Making on_cpu(const World& world, const Draw& draw, uint32_t rank,
              const std::shared_ptr<const BatchLayout>& layout) {
  Making making;
  making.batch.layout = layout;
  making.batch.block = host_block(layout->bytes);
  assemble(world, draw, rank, true, making);
  gear::base::ThreadPool pool(1);
  for (uint32_t o = 0; o < world.ranks; ++o) {
    gather_cpu(world.contents[o]->shard->data(), world.layout(), making.assembly->plan(o),
               making.batch, pool);
  }
  gather_cpu(world.contents[0]->shard->data(), world.layout(), making.assembly->padding(),
             making.batch, pool);
  return making;
}

void expect_same(const Batch& expected, const Batch& batch, const std::string& where) {
  const BatchLayout& layout = *expected.layout;
  std::vector<std::byte> block(layout.bytes);
  batch.delivery->read(block);
  const auto compare = [&](uint64_t offset, uint64_t bytes, const std::string& what) {
    const std::byte* const wanted = expected.block.get() + offset;
    for (uint64_t i = 0; i < bytes; ++i) {
      if (block[offset + i] == wanted[i]) {
        continue;
      }
      throw std::runtime_error(gear::base::cat(where, ", ", what, ", byte ", i, " of ", bytes));
    }
  };
  const uint64_t items = expected.items;
  compare(layout.ids, items * sizeof(int64_t), "ids");
  compare(layout.probabilities, items * sizeof(float), "probabilities");
  for (const BatchLayout::SharedWindow& shared : layout.windows) {
    compare(shared.lengths, items * sizeof(int32_t), "lengths");
    if (layout.packed) {
      compare(shared.cu_seqlens, (items + 1) * sizeof(int32_t), "cu_seqlens");
    } else {
      compare(shared.mask, items * shared.window.length(), "mask");
    }
  }
  for (size_t o = 0; o < layout.outputs.size(); ++o) {
    compare(layout.data[o], expected.rows[layout.window_of[o]] * layout.row_bytes[o],
            gear::base::cat("output ", o));
  }
}

void play(const World& world, uint32_t rank, bool packed, gear::transport::Transport& data) {
  const int device = World::device(rank);
  const gear::base::OnDevice on(device);
  std::vector<PeerPages> peers(world.ranks);
  for (uint32_t o = 0; o < world.ranks; ++o) {
    if (!world.mapped(rank, o)) {
      continue;
    }
    if (world.pages[o]->device() >= 0) {
      gear::memory::open_peer_access(device, world.pages[o]->device());
    }
    peers[o].device = world.pages[o]->device_data();
  }
  const auto layout = layout_of(world, packed);
  const auto mover = make_device_mover(
      {layout, world.layout(), peers, rank, 2, data}, device,
      world.way == Reach::kNccl ? gear::transport::make_nccl(data, device) : nullptr);
  if (mover->on_stream() != (world.way == Reach::kNccl)) {
    throw std::runtime_error("on_stream");
  }
  std::vector<Making> making(kBatches);
  const auto finish = [&](uint64_t number) {
    Making& made = making[number];
    if (world.messages()) {
      mover->exchange(number, *made.assembly, made.batch);
    }
  };
  for (uint64_t number = 0; number < kBatches; ++number) {
    const Draw draw(world, number);
    Making& made = making[number];
    mover->acquire(made.batch);
    mover->begin(made.batch);
    made.batch.layout = layout;
    assemble(world, draw, rank, false, made);
    for (uint32_t c = 0; c < world.ranks; ++c) {
      if (world.mapped(c, rank)) {
        continue;
      }
      Parcel parcel;
      parcel.rows =
          ParcelWriter(*layout, world.layout())
              .write(world.contents[rank]->shard->index(), draw.selections[rank],
                     draw.which[rank][c], draw.places[rank][c], false, parcel.bytes, parcel.plan);
      mover->pack(c, parcel);
    }
    mover->gather(number, *made.assembly, made.batch, world.messages());
    if (number > 0) {
      mover->wait_read(number - 1);
    }
    // As next() does it where messages are on a stream: later than the gather of the next batch.
    if (!mover->on_stream()) {
      finish(number);
    }
    if (mover->on_stream() && number > 0) {
      finish(number - 1);
    }
  }
  if (mover->on_stream()) {
    finish(kBatches - 1);
  }
  for (uint64_t number = 0; number < kBatches; ++number) {
    const Making expected = on_cpu(world, Draw(world, number), rank, layout);
    expect_same(expected.batch, making[number].batch,
                gear::base::cat("rank ", rank, ", batch ", number));
    // Memory that comes back is filled again; the bytes of a resumed batch too.
    const std::vector<std::byte> bytes(layout->bytes, std::byte{static_cast<uint8_t>(number)});
    making[number].batch = Batch{};
    Batch resumed;
    mover->fill(resumed, bytes);
    std::vector<std::byte> back(layout->bytes);
    resumed.delivery->read(back);
    if (back != bytes) {
      throw std::runtime_error("a resumed batch differs");
    }
  }
}

void play_all(uint32_t ranks, Reach way, Tier tier) {
  for (const bool packed : {false, true}) {
    CAPTURE(packed);
    const World world(ranks, way, tier);
    auto transports = gear::transport::make_loopback(ranks, 60);
    std::vector<std::string> thrown(ranks);
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        try {
          play(world, r, packed, *transports[r]);
        } catch (const std::exception& error) {
          thrown[r] = error.what();
          transports[r].reset();  // the others need not wait
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    CHECK(thrown == std::vector<std::string>(ranks));
  }
}

}  // namespace

TEST_CASE("ranks read each other's pages by pointer") {
  for (const uint32_t ranks : {1U, 2U, 3U}) {
    for (const Tier tier : {Tier::kDevice, Tier::kPinned}) {
      play_all(ranks, Reach::kMapped, tier);
    }
  }
}

TEST_CASE("ranks send each other rows through the host") {
  for (const Tier tier : {Tier::kDevice, Tier::kPinned}) {
    play_all(2, Reach::kHost, tier);
    play_all(3, Reach::kMixed, tier);
  }
}

TEST_CASE("ranks send each other rows by NCCL") {
  const int gpus = gear::base::device_count();
  if (gpus < 2) {
    MESSAGE("skipped: one GPU");
    return;
  }
  for (const Tier tier : {Tier::kDevice, Tier::kPinned}) {
    play_all(static_cast<uint32_t>(gpus), Reach::kNccl, tier);
  }
}
