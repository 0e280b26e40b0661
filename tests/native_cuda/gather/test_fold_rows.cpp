// The device's folds against the CPU's, to the bit: random bits are numbers of every size, infinite
// ones and NaNs among them.
#include "planned_content.h"

using namespace gear::plan;
using namespace gear::gather;
using namespace gear::store;
using namespace gear::testing;
using gear::base::DType;

namespace {

std::vector<Column> columns() {
  return {{"a", {5}, DType::kU8},
          {"r", {}, DType::kF32},
          {"q", {3}, DType::kF32},
          {"w", {1100}, DType::kF32}};
}

// Folds of one, three and many values, beside the steps that one of them adds.
std::vector<Output> folds(uint32_t n, float factor) {
  return {{"a", 0, -2, 1},
          {"sum", Fold{1, n, factor}},
          {"steps", 1, 0, int64_t{n}},
          {"sums", Fold{2, n, factor}},
          {"wide", Fold{3, n, -factor}}};
}

}  // namespace

TEST_CASE("fold: sums are those of the CPU, to the bit") {
  const auto shard = make_content(columns(), 5, 120);
  const UploadedShard uploaded(*shard);
  uint64_t round = 0;
  for (const uint32_t n : {1, 2, 5, 30, 120}) {
    for (const float factor : {0.99F, -0.5F, 0.0F, 3e9F}) {
      for (const bool packed : {false, true}) {
        for (const bool ordered : {false, true}) {
          CAPTURE(n);
          CAPTURE(factor);
          expect_same_batch(*shard, uploaded, {folds(n, factor), 70, 67, packed, ordered}, ++round);
        }
      }
    }
  }
}

TEST_CASE("fold: of many items, of one and of none, and from mapped host memory") {
  const auto shard = make_content(columns(), 5, 120);
  const UploadedShard uploaded(*shard);
  for (const bool packed : {false, true}) {
    const std::vector<Output> outputs = {{"sum", Fold{1, 7, 0.97F}}};
    expect_same_batch(*shard, uploaded, {outputs, 70000, 70000, packed}, 1);
    expect_same_batch(*shard, uploaded, {outputs, 5, 1, packed}, 2);
    expect_same_batch(*shard, uploaded, {outputs, 5, 0, packed}, 3);
    for (const bool ordered : {false, true}) {
      expect_same_batch(*shard, uploaded, {folds(4, 0.97F), 150, 149, packed, ordered, true}, 4);
    }
  }
}

TEST_CASE("fold: batches that are gathered together have their own sums") {
  const auto shard = make_content(columns(), 5, 120);
  const UploadedShard uploaded(*shard);
  const std::vector<Anchor> anchors = stored_steps(shard->index());
  constexpr uint64_t kBatch = 33;
  constexpr uint32_t kSteps = 6;
  for (const bool packed : {false, true}) {
    CAPTURE(packed);
    const auto layout =
        std::make_shared<BatchLayout>(shard->schema(), folds(kSteps, 0.9F), kBatch, packed);
    DevicePlan plan(layout, shard->layout(), shard->index().num_slots(), kDevice, 3);
    AddressOrder order(shard->layout(), shard->index().num_slots(), kDevice);
    order.reserve(3 * kBatch * (3 * kSteps + 3), 3 * kBatch * kSteps);
    const RowGather gather(layout, shard->layout(), RowForm::kAddressed);
    const gear::base::Stream stream(kDevice);
    std::vector<Batch> expected;
    std::vector<std::unique_ptr<GuardedBlock>> blocks;
    std::vector<std::byte*> targets;
    uint64_t first = 0;
    for (const uint64_t items : {kBatch, kBatch, uint64_t{7}}) {
      gear::select::Selection selection;
      std::vector<uint32_t> slots;
      for (uint64_t i = 0; i < items; ++i) {
        const Anchor anchor = anchors[random_below(anchors.size(), 60, first + i)];
        selection.add(anchor, 1.0F);
        slots.push_back(static_cast<uint32_t>(shard->index().slot(anchor)));
      }
      expected.push_back(batch_on_cpu(*shard, layout, selection));
      blocks.push_back(std::make_unique<GuardedBlock>(layout->bytes));
      targets.push_back(blocks.back()->get());
      const auto anchors_there = upload(slots);
      GEAR_CUDA_TRY(cudaMemcpyAsync(plan.slots(), anchors_there.get(), anchors_there.bytes(),
                                    cudaMemcpyDeviceToDevice, stream));
      plan.launch(uploaded.view, Unit::kStep, items, targets.back(), nullptr, stream, first);
      stream.synchronize();
      first += items;
    }
    const RowGather::Part part{uploaded.bytes(), order.launch(plan.rows(), stream), nullptr,
                               plan.rows()};
    gather.gather({&part, 1}, targets, UINT32_MAX, stream);
    stream.synchronize();
    for (size_t i = 0; i < blocks.size(); ++i) {
      expect_same_block(expected[i], blocks[i]->read());
    }
  }
}
