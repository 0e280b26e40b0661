#include <algorithm>
#include <cstring>

#include "base/errors.h"
#include "base/threads/blocking.h"
#include "deliver/cuda/device_block.h"

namespace gear::deliver {
namespace {

// DLPack and the runtime both take 0 or 1 for the stream that all others of a GPU wait for.
cudaStream_t stream_of(uintptr_t handle) {
  return handle == 0 ? cudaStreamLegacy : reinterpret_cast<cudaStream_t>(handle);
}

// A stream that has passed only when `stream` has. The default stream waits for all but those that
// were made not to (torch's and JAX's, which are never destroyed), and does so for streams that
// their owner has destroyed by then, whose handles must not be touched.
cudaStream_t lasting(cudaStream_t stream) {
  if (stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
    return cudaStreamLegacy;
  }
  unsigned flags = 0;
  GEAR_CUDA_TRY(cudaStreamGetFlags(stream, &flags));
  return (flags & cudaStreamNonBlocking) != 0 ? stream : cudaStreamLegacy;
}

}  // namespace

DeviceBlock::DeviceBlock(uint64_t bytes, memory::Tier tier, int device)
    : fill_device_(device),
      region_(memory::make_region(tier, bytes, {"", "", device})),
      begun_(true),
      ended_(true) {}

// Python may drop the last tensor of a block: what comes here waits for the GPU, freeing too.
DeviceBlock::~DeviceBlock() {
  const base::Blocking blocking;
  filled_.drain();
  for (const Reader& reader : readers_) {
    if (reader.reads) {
      reader.released.drain();
    }
  }
  region_.reset();
}

void DeviceBlock::begin_fill(cudaStream_t stream) {
  const std::lock_guard guard(mutex_);
  for (Reader& reader : readers_) {
    if (!reader.reads) {
      continue;
    }
    reader.released.make_wait(stream);
    reader.reads = false;
  }
}

void DeviceBlock::begin_timing(cudaStream_t stream) {
  begun_.record(stream);
  timed_ = true;
}

void DeviceBlock::end_fill(cudaStream_t stream) {
  if (timed_) {
    ended_.record(stream);
    timed_ = false;
  }
  filled_.record(stream);
}

void DeviceBlock::fill(std::span<const std::byte> bytes, cudaStream_t stream) {
  GEAR_CHECK(bytes.size() <= this->bytes());
  begin_fill(stream);
  filled_.make_wait(stream);  // a batch that nobody took, on another stream
  GEAR_CUDA_TRY(
      cudaMemcpyAsync(device_data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream));
  end_fill(stream);
  filled_.synchronize();
}

void DeviceBlock::make_wait(uintptr_t handle) {
  if (device() < 0) {
    wait();
    return;
  }
  const cudaStream_t stream = stream_of(handle);
  const std::lock_guard guard(mutex_);
  Reader* free = nullptr;
  for (Reader& reader : readers_) {
    if (!reader.reads) {
      free = &reader;
    } else if (reader.stream == stream) {
      return;
    }
  }
  const base::OnDevice on(device());
  if (base::is_capturing(stream)) {  // its events belong to the graph that is being made
    throw base::InvalidArgument(
        "[batch] the first tensor of a batch cannot be taken while a CUDA graph is captured: "
        "take the tensors before the capture, and copy them into the graph's own inputs");
  }
  filled_.make_wait(stream);
  if (free == nullptr) {
    free = &readers_.emplace_back();
  }
  free->stream = stream;
  free->released_on = lasting(stream);
  free->reads = true;
}

void DeviceBlock::wait() { filled_.synchronize(); }

void DeviceBlock::read(std::span<std::byte> out) {
  GEAR_CHECK(out.size() <= bytes());
  wait();
  if (device() < 0) {
    std::memcpy(out.data(), data(), out.size());
    return;
  }
  // Not the default stream, which would wait for the work of others and they for this.
  const base::OnDevice on(fill_device_);
  const base::Stream stream(fill_device_);
  GEAR_CUDA_TRY(
      cudaMemcpyAsync(out.data(), device_data(), out.size(), cudaMemcpyDeviceToHost, stream));
  stream.synchronize();
}

bool DeviceBlock::release() noexcept {
  const std::lock_guard guard(mutex_);
  if (std::none_of(readers_.begin(), readers_.end(), [](const Reader& r) { return r.reads; })) {
    return true;
  }
  try {
    const base::OnDevice on(device());
    for (Reader& reader : readers_) {
      if (!reader.reads) {
        continue;
      }
      if (base::is_capturing(reader.released_on)) {
        return false;
      }
      reader.released.record(reader.released_on);
    }
    return true;
  } catch (...) {
    return false;
  }
}

std::shared_ptr<DeviceBlockPool> make_device_blocks(uint64_t block_bytes, size_t max_idle,
                                                    memory::Tier tier, int device) {
  return base::make_shared_here<DeviceBlockPool>(max_idle, [block_bytes, tier, device] {
    const base::OnDevice on(device);
    return std::make_unique<DeviceBlock>(block_bytes, tier, device);
  });
}

void put_block(std::shared_ptr<DeviceBlock> block, plan::Batch& batch) {
  batch.block = {block, block->data()};
  batch.delivery = std::move(block);
}

}  // namespace gear::deliver
