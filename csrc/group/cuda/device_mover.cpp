#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/gpu/nvtx.h"
#include "deliver/cuda/device_block.h"
#include "gather/cuda/address_order.h"
#include "gather/cuda/row_gather.h"
#include "gather/cuda/row_upload.h"
#include "group/mover.h"
#include "link/link_cache.h"

namespace gear::group {
namespace {

// Thread blocks of a gather for each multiprocessor: enough for NVLink, and few enough that the
// training step's own find room beside them.
constexpr uint32_t kMoverBlocksPerMultiprocessor = 4;

bool in_gpu_memory(const std::byte* pages) {
  cudaPointerAttributes attributes{};
  GEAR_CUDA_TRY(cudaPointerGetAttributes(&attributes, pages));
  return attributes.type == cudaMemoryTypeDevice;
}

uint64_t most_pages(std::span<const PeerPages> peers) {
  uint64_t most = 1;
  for (const PeerPages& peer : peers) {
    most = std::max(most, peer.num_pages);
  }
  return most;
}

// Whether rows of host memory are worth sorting by address first.
bool order_pays(const MoverParts& parts, int device) {
  uint64_t num_pages = 0;
  for (const PeerPages& peer : parts.peers) {
    num_pages += peer.num_pages;
  }
  return link::link_to(device).order_pays(*parts.layout, parts.pages, num_pages);
}

// By kernels of a GPU. Three streams, so that a batch's copies pass the gather of the one before,
// and what waits for other ranks delays no read of pages:
//
//   uploads     lists, header ─┐ (next batch)
//   reading                    └─ pack ── gather ─┐ (next batch)
//   messages                                      └─ exchange ── unpack
class DeviceMover final : public GroupMover {
 public:
  DeviceMover(MoverParts parts, int device, std::unique_ptr<transport::DeviceTransport> nccl)
      : parts_(std::move(parts)),
        device_(device),
        nccl_(std::move(nccl)),
        on_host_(!in_gpu_memory(parts_.peers[parts_.rank].device)),
        ordered_(on_host_ && order_pays(parts_, device)),
        gather_(parts_.layout, parts_.pages,
                ordered_ ? gather::RowForm::kAddressed : gather::RowForm::kListed),
        order_(parts_.pages, most_pages(parts_.peers) * parts_.pages.page_steps, device),
        pool_(base::ThreadPool::shared()),
        uploads_(device),
        reading_(device),
        messages_(device),
        reads_(parts_.prefetch + 4),
        blocks_(deliver::make_device_blocks(parts_.layout->bytes, parts_.prefetch + 2,
                                            memory::Tier::kDevice, device)) {
    int multiprocessors = 0;
    GEAR_CUDA_TRY(
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device_));
    const uint32_t over_links =
        kMoverBlocksPerMultiprocessor * static_cast<uint32_t>(multiprocessors);
    // In address order every block asks for little: AddressOrder's gathers are not limited either.
    most_blocks_ = ordered_ ? UINT32_MAX : on_host_ ? gather::kBlocksFromHost : over_links;
    message_blocks_ = nccl_ ? over_links : gather::kBlocksFromHost;
  }

  // What waits for other ranks ends first, or is aborted.
  ~DeviceMover() override {
    nccl_.reset();
    messages_.drain();
    reading_.drain();
    uploads_.drain();
  }

  bool on_stream() const override { return nccl_ != nullptr; }

  void acquire(plan::Batch& batch) override {
    const base::OnDevice on(device_);
    batch.delivery = blocks_->acquire();
  }

  void begin(plan::Batch& batch) override {
    const base::OnDevice on(device_);
    if (!open_) {
      open_ = free_job();
    }
    open_->block = std::static_pointer_cast<deliver::DeviceBlock>(std::move(batch.delivery));
    open_->upload.reset();
    open_->packed.clear();
    batch.block = {std::shared_ptr<void>(), open_->header.get()};
  }

  void fill(plan::Batch& batch, std::span<const std::byte> bytes) override {
    const base::OnDevice on(device_);
    std::shared_ptr<deliver::DeviceBlock> block = blocks_->acquire();
    block->fill(bytes, reading_);
    deliver::put_block(std::move(block), batch);
  }

  void pack(uint32_t consumer, Parcel& parcel) override {
    if (parcel.rows.bytes == 0) {
      return;
    }
    open_->packed.push_back({consumer, open_->upload.add(parcel.plan, pool_), parcel.rows});
  }

  void gather(uint64_t number, const BatchAssembly& assembly, plan::Batch& batch,
              bool messages) override {
    const base::NvtxRange range("gear.gather");
    const base::OnDevice on(device_);
    std::unique_ptr<Job> job = std::move(open_);
    job->numbers.clear();
    for (uint32_t o = 0; o < parts_.peers.size(); ++o) {
      job->numbers.push_back(job->upload.add(assembly.plan(o), pool_));
    }
    const size_t padding = job->upload.add(assembly.padding(), pool_);

    job->block->begin_fill(uploads_);
    std::byte* const block = job->block->device_data();
    job->upload.upload(uploads_);
    GEAR_CUDA_TRY(cudaMemcpyAsync(block, job->header.get(), job->header.bytes(),
                                  cudaMemcpyHostToDevice, uploads_));
    job->uploaded.record(uploads_);
    job->uploaded.make_wait(reading_);
    pack_rows(*job);
    gather_pages(*job, padding, block);
    reads_[number % reads_.size()].record(reading_);
    if (messages) {
      const std::lock_guard guard(mutex_);
      waiting_.push_back(std::move(job));
    } else {
      finish(std::move(job), batch, reading_);
    }
  }

  // Of a batch that came so much later that it took its place, at the worst.
  void wait_read(uint64_t number) override { reads_[number % reads_.size()].synchronize(); }

  void exchange(uint64_t number, const BatchAssembly& assembly, plan::Batch& batch) override {
    const base::NvtxRange range("gear.exchange");
    const base::OnDevice on(device_);
    Job& job = next_message();
    receive(number, assembly, job);
    std::vector<gather::RowGather::Part> parts;
    uint64_t begin = 0;
    for (uint32_t o = 0; o < parts_.peers.size(); ++o) {
      const plan::PackedRows& rows = assembly.packed(o);
      if (rows.bytes > 0) {
        parts.push_back({job.receive.data() + begin, job.upload.lists(job.numbers[o]), &rows});
        begin += rows.bytes;
      }
    }
    gather_.unpack(parts, job.block->device_data(), message_blocks_, messages_);
    finish(take_message(), batch, messages_);
  }

 private:
  struct Packed {
    uint32_t consumer;
    size_t number;  // of its lists
    plan::PackedRows rows;
    uint64_t begin = 0;  // in the send buffer
  };
  // What one batch needs on its way.
  struct Job {
    using Place = base::GrowingBuffer::Place;

    Job(uint64_t header_bytes, uint32_t page_steps, size_t num_windows, int device,
        bool messages_on_host)
        : header(header_bytes, device),
          upload(page_steps, num_windows, device),
          send(messages_on_host ? Place::kPinned : Place::kDevice, device),
          receive(messages_on_host ? Place::kPinned : Place::kDevice, device) {}

    base::PinnedArray<std::byte> header;  // of the block: all but the rows' data
    gather::RowUpload upload;
    std::vector<Packed> packed;
    std::vector<size_t> numbers;  // by owner: of the lists of its rows
    base::GrowingBuffer send;
    base::GrowingBuffer receive;
    std::shared_ptr<deliver::DeviceBlock> block;
    base::Event uploaded;
    base::Event done;  // nothing of it is in use
  };

  std::unique_ptr<Job> free_job() {
    std::unique_ptr<Job> job;
    {
      const std::lock_guard guard(mutex_);
      if (!jobs_.empty() && (jobs_.size() >= parts_.prefetch + 2 || jobs_.front()->done.done())) {
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
    }
    if (job) {
      job->done.synchronize();
      return job;
    }
    return std::make_unique<Job>(parts_.layout->data.front(),
                                 static_cast<uint32_t>(parts_.pages.page_steps),
                                 parts_.layout->windows.size(), device_, nccl_ == nullptr);
  }

  void receive(uint64_t number, const BatchAssembly& assembly, Job& job) {
    std::vector<uint64_t> sizes;
    uint64_t bytes = 0;
    for (uint32_t o = 0; o < parts_.peers.size(); ++o) {
      sizes.push_back(assembly.packed(o).bytes);
      bytes += sizes[o];
    }
    std::byte* in = job.receive.get(bytes);
    if (nccl_) {
      const auto to = sent<transport::DeviceRange>(job);
      std::vector<transport::DeviceRange> from;
      for (const uint64_t size : sizes) {
        from.push_back({std::exchange(in, in + size), size});
      }
      reads_[number % reads_.size()].make_wait(messages_);
      nccl_->alltoallv(to, from, reinterpret_cast<uintptr_t>(static_cast<cudaStream_t>(messages_)));
    } else {
      wait_read(number);
      const auto to = sent<transport::ConstBytes>(job);
      for (const transport::ConstBytes one : parts_.data.exchange(to, sizes)) {
        in = std::ranges::copy(one, in).out;
      }
    }
  }

  // Where the packed rows for every rank are.
  template <class Range>
  std::vector<Range> sent(const Job& job) const {
    std::vector<Range> to(parts_.peers.size());
    for (const Packed& packed : job.packed) {
      to[packed.consumer] = {job.send.data() + packed.begin, packed.rows.bytes};
    }
    return to;
  }

  // The batch may be delivered when `stream` comes here.
  void finish(std::unique_ptr<Job> job, plan::Batch& batch, const base::Stream& stream) {
    job->block->end_fill(stream);
    deliver::put_block(std::move(job->block), batch);
    job->done.record(stream);
    const std::lock_guard guard(mutex_);
    jobs_.push_back(std::move(job));
  }

  void gather_pages(const Job& job, size_t padding, std::byte* block) {
    std::vector<plan::RowList> lists;
    for (uint32_t o = 0; o < parts_.peers.size(); ++o) {
      if (parts_.peers[o].device == nullptr) {
        continue;
      }
      const std::span<const plan::RowList> own = job.upload.lists(job.numbers[o]);
      lists.insert(lists.end(), own.begin(), own.end());
    }
    const std::span<const plan::RowList> walked =
        ordered_ ? order_.launch(lists, reading_) : std::span<const plan::RowList>(lists);
    const size_t num_windows = parts_.layout->windows.size();
    std::vector<gather::RowGather::Part> parts;
    for (uint32_t o = 0; o < parts_.peers.size(); ++o) {
      if (parts_.peers[o].device == nullptr) {
        continue;
      }
      parts.push_back(
          {parts_.peers[o].device, walked.subspan(parts.size() * num_windows, num_windows)});
    }
    parts.push_back({parts_.peers[parts_.rank].device, job.upload.lists(padding)});
    gather_.gather(parts, {&block, 1}, most_blocks_, reading_);
  }

  void pack_rows(Job& job) {
    std::vector<gather::RowGather::Part> parts;
    std::vector<std::byte*> out;
    uint64_t bytes = 0;
    for (Packed& packed : job.packed) {
      packed.begin = bytes;
      bytes += packed.rows.bytes;
    }
    std::byte* const begin = job.send.get(bytes);
    for (const Packed& packed : job.packed) {
      parts.push_back(
          {parts_.peers[parts_.rank].device, job.upload.lists(packed.number), &packed.rows});
      out.push_back(begin + packed.begin);
    }
    gather_.pack(parts, out, message_blocks_, reading_);
  }

  Job& next_message() {
    const std::lock_guard guard(mutex_);
    GEAR_CHECK(!waiting_.empty());
    return *waiting_.front();
  }

  std::unique_ptr<Job> take_message() {
    const std::lock_guard guard(mutex_);
    std::unique_ptr<Job> job = std::move(waiting_.front());
    waiting_.pop_front();
    return job;
  }

  MoverParts parts_;
  int device_;
  std::unique_ptr<transport::DeviceTransport> nccl_;
  bool on_host_;  // the pages
  bool ordered_;  // rows are read in the order of their addresses
  gather::RowGather gather_;
  gather::AddressOrder order_;
  base::ThreadPool& pool_;
  uint32_t most_blocks_ = 0;
  uint32_t message_blocks_ = 0;
  base::Stream uploads_;
  base::Stream reading_;
  base::Stream messages_;
  std::vector<base::Event> reads_;  // ends of the reads of pages, by number of the batch
  std::shared_ptr<deliver::DeviceBlockPool> blocks_;
  std::unique_ptr<Job> open_;                 // between begin() and gather()
  std::mutex mutex_;                          // of what follows
  std::deque<std::unique_ptr<Job>> waiting_;  // for messages, in order
  std::deque<std::unique_ptr<Job>> jobs_;     // in the order in which they will be done
};

}  // namespace

std::unique_ptr<GroupMover> make_device_mover(MoverParts parts, int device,
                                              std::unique_ptr<transport::DeviceTransport> nccl) {
  const base::OnDevice on(device);
  return std::make_unique<DeviceMover>(std::move(parts), device, std::move(nccl));
}

}  // namespace gear::group
