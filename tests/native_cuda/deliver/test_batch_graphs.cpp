#include "deliver/cuda/batch_graphs.h"

#include <doctest/doctest.h>

#include <optional>

#include "device_memory.h"

using gear::deliver::BatchGraphs;

namespace {

constexpr int kDevice = 0;

// Two blocks of a byte, of which launches of the first are captured.
class Blocks {
 public:
  Blocks() { clear(); }

  // Sets the byte to `value` where that is not replayed; what it is then.
  uint8_t use(size_t block, uint8_t value) {
    clear();
    BatchGraphs::Use use(graphs_, byte(block), stream_);
    replayed_ = use.replayed();
    if (!replayed_) {
      launch(block, value);
    }
    use.end();
    return read(block);
  }
  // The same without an end.
  uint8_t give_up(size_t block, uint8_t value) {
    clear();
    std::optional<BatchGraphs::Use> use(std::in_place, graphs_, byte(block), stream_);
    launch(block, value);
    use.reset();
    return read(block);
  }
  // Whether the last use was.
  bool replayed() const { return replayed_; }

 private:
  uint8_t* byte(size_t block) const { return bytes_.get() + block; }
  void launch(size_t block, uint8_t value) const {
    GEAR_CUDA_TRY(cudaMemsetAsync(byte(block), value, 1, stream_));
  }
  void clear() const { GEAR_CUDA_TRY(cudaMemsetAsync(byte(0), 0, 2, stream_)); }
  uint8_t read(size_t block) const {
    return gear::tests::from_device(byte(block), 1, stream_).front();
  }

  gear::base::Stream stream_{kDevice};
  gear::base::DeviceArray<uint8_t> bytes_{2, kDevice};
  BatchGraphs graphs_{1, kDevice};
  bool replayed_ = false;
};

}  // namespace

TEST_CASE("launches that fill a block are made at once, then captured, then replayed") {
  const gear::base::OnDevice on(kDevice);
  Blocks blocks;
  CHECK(blocks.use(0, 1) == 1);
  CHECK(blocks.use(0, 2) == 2);
  CHECK_FALSE(blocks.replayed());
  for (uint8_t value = 3; value < 6; ++value) {
    CHECK(blocks.use(0, value) == 2);
    CHECK(blocks.replayed());
    CHECK(blocks.use(1, value) == value);
    CHECK_FALSE(blocks.replayed());
  }
}

TEST_CASE("a capture that goes without its end comes to nothing, and the stream goes on") {
  const gear::base::OnDevice on(kDevice);
  Blocks blocks;
  CHECK(blocks.give_up(0, 1) == 1);  // made at once
  CHECK(blocks.use(0, 2) == 2);
  CHECK(blocks.give_up(0, 3) == 0);
  CHECK(blocks.give_up(0, 4) == 0);
  CHECK(blocks.use(0, 5) == 5);
  CHECK_FALSE(blocks.replayed());
  CHECK(blocks.use(0, 6) == 5);
  CHECK(blocks.replayed());
}
