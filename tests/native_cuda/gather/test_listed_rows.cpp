// Listed rows, moved by the GPU between the pages of several owners, packed parcels and batches,
// against what the CPU makes of the same plan.
#include <cstring>

#include "gather/cuda/address_order.h"
#include "gather/cuda/row_gather.h"
#include "gather/cuda/row_upload.h"
#include "planned_content.h"

using namespace gear::plan;
using namespace gear::deliver;
using namespace gear::gather;
using namespace gear::store;
using namespace gear::testing;
using gear::base::DType;

namespace {

constexpr uint32_t kOwners = 3;

std::vector<Column> columns() {
  std::vector<Column> made;
  for (const int64_t bytes : {1, 6, 8, 12, 17, 48, 68, 256, 1023, 4097, 16400}) {
    made.push_back({"u" + std::to_string(bytes), {bytes}, DType::kU8});
  }
  made.push_back({"f", {40}, DType::kF32});
  return made;
}

// Every column twice, over one window, and again as another window and with conversions: more than
// one launch holds.
std::vector<Output> many_outputs(const Schema& schema) {
  std::vector<Output> outputs;
  for (size_t c = 0; c < schema.size(); ++c) {
    outputs.push_back({schema[c].name, c, -2, 2});
    outputs.push_back({schema[c].name + "-again", c, -2, 2});
    outputs.push_back({schema[c].name + "-step", c, 0, 1});
    outputs.emplace_back(schema[c].name + "-f16",
                         StepColumn{c, {-2, 2}, true, DType::kF16, 1.0F / 255});
  }
  return outputs;
}

struct Planned {
  std::shared_ptr<const BatchLayout> layout;
  Batch batch;  // as the CPU fills it
  Plan plan;
};

Planned planned_batch(Shard& shard, uint64_t batch_size, uint64_t items, bool packed,
                      uint64_t round) {
  Planned made;
  made.layout = std::make_shared<BatchLayout>(shard.schema(), many_outputs(shard.schema()),
                                              batch_size, packed);
  const std::vector<Anchor> anchors = stored_steps(shard.index());
  gear::select::Selection selection;
  for (uint64_t i = 0; i < items; ++i) {
    selection.add(anchors[random_below(anchors.size(), round, i)], 1.0F);
  }
  made.batch = batch_on_cpu(shard, made.layout, selection);
  Batch again = made.batch;
  again.block = gear::deliver::host_block(made.layout->bytes);
  make_plan(shard.index(), shard.layout(), selection, again, made.plan);
  return made;
}

// The runs of `plan` dealt out to the owners; the last plan has the zeros.
std::vector<Plan> deal(const Plan& plan) {
  std::vector<Plan> dealt(kOwners + 1);
  for (size_t w = 0; w < plan.num_windows(); ++w) {
    uint64_t turn = 0;
    for (Plan& one : dealt) {
      one.begin_window(plan.runs(w).size());
    }
    for (const Run& run : plan.runs(w)) {
      dealt[run.page == kNone ? kOwners : turn++ * 7 % 5 % kOwners].add(run);
    }
  }
  return dealt;
}

// A guarded block that has the header that the host writes.
std::unique_ptr<GuardedBlock> block_with_header(const Planned& planned) {
  auto block = std::make_unique<GuardedBlock>(planned.layout->bytes);
  GEAR_CUDA_TRY(cudaMemcpy(block->get(), planned.batch.block.get(), planned.layout->data.front(),
                           cudaMemcpyDefault));
  GEAR_CUDA_TRY(cudaDeviceSynchronize());
  return block;
}

// How rows of a plan lie when they are packed, with gaps, and the plan that takes them from there.
struct PackedPlan {
  PackedRows rows;
  Plan pack;    // to rows of the window
  Plan unpack;  // from rows of the window
};

PackedPlan packed_plan(const Planned& planned, const Plan& plan, const PageLayout& pages) {
  PackedPlan made;
  made.rows.offset.assign(planned.layout->outputs.size(), 0);
  for (size_t w = 0; w < plan.num_windows(); ++w) {
    uint32_t row = 0;
    made.pack.begin_window(plan.runs(w).size());
    made.unpack.begin_window(plan.runs(w).size());
    for (const Run& run : plan.runs(w)) {
      made.pack.add({run.page, run.row, run.count, row});
      made.unpack.add({0, row, run.count, run.target});
      row += run.count;
    }
    made.rows.rows.push_back(row);
    std::vector<uint64_t> of_column(pages.step_bytes.size(), UINT64_MAX);
    for (const size_t o : planned.layout->windows[w].outputs) {
      const size_t column = planned.layout->outputs[o].column;
      if (of_column[column] == UINT64_MAX) {
        of_column[column] = made.rows.bytes;
        made.rows.bytes += (row * pages.step_bytes[column] + 15) / 16 * 16;
      }
      made.rows.offset[o] = of_column[column];
    }
  }
  return made;
}

}  // namespace

TEST_CASE("rows of several owners arrive whole, with conversions and zeros") {
  const auto shard = make_content(columns(), 5, 200);
  const UploadedShard first(*shard);
  const UploadedShard second(*shard);
  const gear::base::PinnedArray<std::byte> third(shard->region().bytes(), kDevice);
  std::memcpy(third.get(), shard->data(), third.size());
  const std::byte* const sources[] = {first.bytes(), second.bytes(), third.get()};
  gear::base::ThreadPool pool(2);
  uint64_t round = 0;
  for (const bool packed : {false, true}) {
    for (const uint64_t items : {0, 1, 33, 150}) {
      CAPTURE(items);
      const Planned planned = planned_batch(*shard, 150, items, packed, ++round);
      const gear::base::Stream stream(kDevice);
      AddressOrder order(shard->layout(), shard->index().num_slots(), kDevice);
      RowUpload upload(static_cast<uint32_t>(shard->layout().page_steps),
                       planned.layout->windows.size(), kDevice);
      for (const auto& [form, most_blocks] : {std::pair{RowForm::kListed, 3U},
                                              {RowForm::kListed, 64U},
                                              {RowForm::kListed, UINT32_MAX},
                                              {RowForm::kAddressed, UINT32_MAX}}) {
        const RowGather gather(planned.layout, shard->layout(), form);
        const auto block = block_with_header(planned);
        upload.reset();
        const std::vector<Plan> dealt = deal(planned.plan);
        std::vector<RowList> lists;
        for (const Plan& plan : dealt) {
          upload.add(plan, pool);
        }
        upload.upload(stream);
        for (size_t i = 0; i < dealt.size(); ++i) {
          for (const RowList& list : upload.lists(i)) {
            lists.push_back(list);
          }
        }
        std::span<const RowList> walked = lists;
        if (form == RowForm::kAddressed) {
          walked = order.launch(lists, stream);
        }
        const size_t num_windows = planned.layout->windows.size();
        std::vector<RowGather::Part> parts;
        for (size_t i = 0; i < dealt.size(); ++i) {
          parts.push_back({sources[i % kOwners], walked.subspan(i * num_windows, num_windows)});
        }
        std::byte* const target = block->get();
        gather.gather(parts, {&target, 1}, most_blocks, stream);
        stream.synchronize();
        expect_same_block(planned.batch, block->read());
      }
    }
  }
}

TEST_CASE("rows packed by their owners are unpacked whole") {
  const auto shard = make_content(columns(), 5, 200);
  const UploadedShard uploaded(*shard);
  gear::base::ThreadPool pool(1);
  uint64_t round = 100;
  for (const bool on_host : {false, true}) {
    for (const bool packed : {false, true}) {
      const Planned planned = planned_batch(*shard, 60, 57, packed, ++round);
      const std::vector<Plan> dealt = deal(planned.plan);
      const RowGather gather(planned.layout, shard->layout(), RowForm::kListed);
      const gear::base::Stream stream(kDevice);
      RowUpload upload(static_cast<uint32_t>(shard->layout().page_steps),
                       planned.layout->windows.size(), kDevice);
      std::vector<PackedPlan> plans;
      std::vector<uint64_t> begins;
      uint64_t bytes = 0;
      for (uint32_t o = 0; o < kOwners; ++o) {
        plans.push_back(packed_plan(planned, dealt[o], shard->layout()));
        upload.add(plans.back().pack, pool);
        upload.add(plans.back().unpack, pool);
        begins.push_back(bytes);
        bytes += plans.back().rows.bytes;
      }
      const size_t padding = upload.add(dealt[kOwners], pool);
      upload.upload(stream);

      gear::base::GrowingBuffer buffer(on_host ? gear::base::GrowingBuffer::Place::kPinned
                                               : gear::base::GrowingBuffer::Place::kDevice,
                                       kDevice);
      std::byte* const messages = buffer.get(bytes);
      std::vector<RowGather::Part> to_pack;
      std::vector<std::byte*> out;
      std::vector<RowGather::Part> to_unpack;
      for (uint32_t o = 0; o < kOwners; ++o) {
        to_pack.push_back({uploaded.bytes(), upload.lists(size_t{2} * o), &plans[o].rows});
        out.push_back(messages + begins[o]);
        to_unpack.push_back(
            {messages + begins[o], upload.lists(size_t{2} * o + 1), &plans[o].rows});
      }
      const auto block = block_with_header(planned);
      gather.pack(to_pack, out, 64, stream);
      gather.unpack(to_unpack, block->get(), 64, stream);
      const RowGather::Part zeros{uploaded.bytes(), upload.lists(padding)};
      std::byte* const target = block->get();
      gather.gather({&zeros, 1}, {&target, 1}, 64, stream);
      stream.synchronize();
      expect_same_block(planned.batch, block->read());
    }
  }
}
