// Batches gathered together, and what becomes of them where that fails.
#include "deliver/cuda/joint_gather.h"

#include <stdexcept>

#include "planned_content.h"

using namespace gear::plan;
using namespace gear::deliver;
using namespace gear::store;
using namespace gear::testing;
using gear::base::DType;

TEST_CASE("what fails in a joint gather is thrown until its batches are dropped") {
  const gear::base::OnDevice on(kDevice);
  const auto shard = make_content({{"a", {}, DType::kU8}}, 4, 420);
  const UploadedShard uploaded(*shard);
  const uint64_t num_pages = uploaded.view.num_pages;
  const auto layout_of = [&](const std::vector<Output>& outputs) {
    return std::make_shared<const BatchLayout>(shard->schema(), outputs, 8, false);
  };
  const auto layout = layout_of({{"x", 0, 0, 1}});
  const auto foreign = layout_of({{"x", 0, -2, 1}});
  const gear::base::Stream stream(kDevice);
  JointGather joint(uploaded.bytes(), layout, shard->layout(), num_pages, 2, kDevice, stream);
  DevicePlan plan(layout, shard->layout(), shard->index().num_slots(), kDevice, 2);
  // Of three rows an item: the gather, which has room for one, refuses them.
  DevicePlan broken(foreign, shard->layout(), shard->index().num_slots(), kDevice, 2);
  for (DevicePlan* one : {&plan, &broken}) {
    GEAR_CUDA_TRY(cudaMemset(one->slots(), 0, 8 * sizeof(uint32_t)));
  }
  GEAR_CUDA_TRY(cudaDeviceSynchronize());
  const auto blocks = make_device_blocks(foreign->bytes, 4, gear::memory::Tier::kDevice, kDevice);
  const auto add = [&](DevicePlan& with) {
    std::shared_ptr<DeviceBlock> block = blocks->acquire();
    block->begin_fill(stream);
    return joint.add(with, uploaded.view, Unit::kStep, 8, std::move(block), nullptr);
  };

  for (const bool by_writer : {false, true}) {
    CAPTURE(by_writer);
    const Filled first = add(broken);
    CHECK(first.timed_batches == 0);
    if (by_writer) {
      first.end->hurry();
    } else {
      CHECK_THROWS_AS(add(broken), std::logic_error);
    }
    CHECK(first.end->done());
    CHECK_THROWS_AS(joint.raise_failed(), std::logic_error);
    CHECK_THROWS_AS(add(plan), std::logic_error);
    CHECK_THROWS_AS(joint.raise_failed(), std::logic_error);
    joint.drop();
    joint.raise_failed();
    const Filled again = add(plan);
    CHECK(again.timed_batches == 0);
    CHECK(add(plan).timed_batches == 2);
    stream.synchronize();
    CHECK(again.end->done());
  }
}
