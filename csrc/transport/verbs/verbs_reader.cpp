#include "transport/verbs/verbs_reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/threads/interrupt.h"
#include "base/threads/spin.h"
#include "transport/collective.h"

namespace gear::transport::verbs {
namespace {

constexpr uint32_t kMostOpen = 4096;
constexpr uint64_t kLeastLanding = uint64_t{1} << 20;
constexpr int kSpins = 2000;  // looks in vain before the CPU is offered to others

// What a status says beyond its own words.
std::string_view hint(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return "it does not answer: it has ended, or the link is down (ibv_devinfo, ip link)";
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
      return "it does not offer the memory asked for: it has closed its buffer, or runs another "
             "build";
    case IBV_WC_LOC_QP_OP_ERR:
      return "this rank's device cannot send: its link is down (ibv_devinfo, ip link)";
    case IBV_WC_WR_FLUSH_ERR:
      return "an earlier read from it failed, or its connection was closed";
    default:
      return "see the system's log on both nodes";
  }
}

}  // namespace

VerbsReader::VerbsReader(std::shared_ptr<const VerbsPort> port, std::vector<ExposedShard> shards,
                         Options options)
    : port_(std::move(port)),
      shards_(std::move(shards)),
      options_(std::move(options)),
      next_lane_(shards_.size(), 0),
      requests_(kChain),
      places_(kChain) {
  const VerbsLibrary& library = port_->library();
  depth_ = std::clamp<uint32_t>(static_cast<uint32_t>(port_->limits().max_qp_wr), 1, kDepth);
  // Every read under way can end in a completion of its own: when a connection fails.
  most_open_ = std::clamp<uint32_t>(static_cast<uint32_t>(port_->limits().max_cqe), 1, kMostOpen);
  completions_ =
      own(library.create_cq(port_->context(), static_cast<int>(most_open_), nullptr, nullptr, 0),
          library.destroy_cq);
  if (!completions_) {
    throw base::TransportError(base::cat("[transport] ibv_create_cq of ", most_open_, " on ",
                                         port_->device_name(), ": ", base::errno_text(errno)));
  }
  for (uint32_t owner = 0; owner < shards_.size(); ++owner) {
    for (uint32_t k = 0; k < options_.queue_pairs; ++k) {
      Lane& lane = lanes_.emplace_back(Lane{owner, std::nullopt});
      if (owner != options_.rank) {
        lane.pair.emplace(*port_, completions_.get(), depth_);
      }
    }
  }
}

std::vector<QueuePairAddress> VerbsReader::addresses() const {
  std::vector<QueuePairAddress> addresses;
  addresses.reserve(lanes_.size());
  for (const Lane& lane : lanes_) {
    addresses.push_back(lane.pair ? lane.pair->address() : QueuePairAddress{});
  }
  return addresses;
}

void VerbsReader::connect(std::span<const QueuePairAddress> others) {
  GEAR_CHECK(others.size() == lanes_.size());
  const uint8_t timeout = packet_timeout(options_.timeout_s);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].pair) {
      lanes_[i].pair->connect(shards_[lanes_[i].owner].port, others[i], timeout);
    }
  }
}

ConstBytes VerbsReader::read(std::span<const RemoteRead> reads, uint64_t bytes) {
  if (!failed_.empty()) {
    throw base::TransportError(failed_);
  }
  for (const RemoteRead& one : reads) {
    GEAR_CHECK(one.owner < shards_.size() && one.owner != options_.rank && one.bytes > 0);
    GEAR_CHECK(one.bytes <= bytes && one.to <= bytes - one.bytes);
    const uint64_t there = shards_[one.owner].memory.bytes();
    GEAR_CHECK(one.bytes <= there && one.from <= there - one.bytes);
  }
  try {
    make_room(bytes);
    post_all(reads);
  } catch (const base::Error& error) {
    failed_ = error.what();
    if (options_.failure) {
      options_.failure->tell(failed_);
    }
    throw;
  } catch (...) {
    failed_ = "[transport] a read of rows was interrupted: make the loader again";
    throw;
  }
  return {landing_->data(), bytes};
}

void VerbsReader::make_room(uint64_t bytes) {
  if (landing_ && landing_->bytes() >= bytes) {
    return;
  }
  const uint64_t room = std::max(kLeastLanding, bytes + bytes / 2);
  registered_.reset();
  landing_.reset();
  landing_ = memory::make_region(memory::Tier::kHost, room);
  registered_.emplace(*port_, Bytes(landing_->data(), room), RegisteredMemory::Use::kLanding,
                      options_.chunk_bytes);
}

void VerbsReader::post_all(std::span<const RemoteRead> reads) {
  std::vector<Rest> rests;
  while (!reads.empty()) {
    const uint32_t owner = reads[0].owner;
    const auto end =
        std::ranges::find_if(reads, [owner](const RemoteRead& one) { return one.owner != owner; });
    const auto count = static_cast<size_t>(end - reads.begin());
    rests.push_back({owner, reads.first(count)});
    reads = reads.subspan(count);
  }
  const Clock::time_point start = Clock::now();
  Clock::time_point asked = start;
  int in_vain = 0;
  while (!rests.empty() || open_ > 0) {
    bool moved = false;
    for (Rest& rest : rests) {
      moved |= post_chain(rest);
    }
    std::erase_if(rests, [](const Rest& rest) { return rest.reads.empty(); });
    moved |= take_completions();
    if (moved) {
      in_vain = 0;
      continue;
    }
    base::pause_cpu();
    if (++in_vain < kSpins) {
      continue;
    }
    in_vain = 0;
    std::this_thread::yield();
    const Clock::time_point now = Clock::now();
    if (now - asked >= base::kInterruptEvery) {
      asked = now;
      base::check_interrupt();
      if (base::seconds_since(start) >= options_.timeout_s) {
        fail_late(rests);
      }
    }
  }
}

VerbsReader::Lane* VerbsReader::free_lane(uint32_t owner) {
  Lane* const lanes = lanes_.data() + size_t{owner} * options_.queue_pairs;
  for (uint32_t k = 0; k < options_.queue_pairs; ++k) {
    Lane& lane = lanes[next_lane_[owner]];
    next_lane_[owner] = (next_lane_[owner] + 1) % options_.queue_pairs;
    if (lane.open + std::min(kChain, depth_) <= depth_) {
      return &lane;
    }
  }
  return nullptr;
}

bool VerbsReader::post_chain(Rest& rest) {
  Lane* const lane = free_lane(rest.owner);
  if (lane == nullptr || open_ >= most_open_) {
    return false;
  }
  const uint32_t count =
      fill_chain(rest, std::min({kChain, most_open_ - open_, depth_ - lane->open}));
  requests_[count - 1].next = nullptr;
  requests_[count - 1].send_flags = IBV_SEND_SIGNALED;
  requests_[count - 1].wr_id = count;
  const auto index = static_cast<uint64_t>(lane - lanes_.data());
  for (uint32_t i = 0; i < count; ++i) {  // any of them may come back, with an error
    requests_[i].wr_id |= index << 32;
  }
  lane->pair->post(requests_.data());
  lane->open += count;
  open_ += count;
  return true;
}

// A read is divided where a chunk of its owner's or of the landing memory ends, or the device's
// largest message.
uint32_t VerbsReader::fill_chain(Rest& rest, uint32_t most) {
  const uint64_t most_bytes = std::min<uint64_t>(port_->most_message_bytes(), uint64_t{1} << 30);
  uint32_t count = 0;
  while (count < most && !rest.reads.empty()) {
    const RemoteRead& read = rest.reads[0];
    const MemoryChunk there = shards_[rest.owner].memory.from(read.from + rest.done);
    const MemoryChunk here = registered_->chunked().from(read.to + rest.done);
    const uint64_t bytes = std::min({read.bytes - rest.done, there.bytes, here.bytes, most_bytes});
    places_[count] = {here.address, static_cast<uint32_t>(bytes), here.key};
    ibv_send_wr& request = requests_[count];
    request = {};
    request.next = count + 1 < kChain ? &requests_[count + 1] : nullptr;
    request.sg_list = &places_[count];
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_READ;
    request.wr.rdma.remote_addr = there.address;
    request.wr.rdma.rkey = there.key;
    ++count;
    rest.done += bytes;
    if (rest.done == read.bytes) {
      rest.reads = rest.reads.subspan(1);
      rest.done = 0;
    }
  }
  return count;
}

bool VerbsReader::take_completions() {
  std::array<ibv_wc, 16> ended;
  const int count = port_->library().poll_cq(completions_.get(), ended.size(), ended.data());
  if (count < 0) {
    throw base::TransportError(base::cat("[transport] ibv_poll_cq on ", port_->device_name(),
                                         " failed: see the system's log"));
  }
  for (int i = 0; i < count; ++i) {
    const ibv_wc& one = ended[static_cast<size_t>(i)];
    if (one.status != IBV_WC_SUCCESS) {
      fail(one);
    }
    const auto reads = static_cast<uint32_t>(one.wr_id);
    lanes_[one.wr_id >> 32].open -= reads;
    open_ -= reads;
  }
  return count > 0;
}

void VerbsReader::fail(const ibv_wc& completion) {
  const uint32_t owner = lanes_[completion.wr_id >> 32].owner;
  throw base::TransportError(
      base::cat("[transport] rank ", options_.rank, " reads rows of rank ", owner, " by verbs (",
                port_->text(), " from ", address_text(shards_[owner].port),
                "): ", port_->library().status_text(completion.status), " (",
                static_cast<int>(completion.status), "): ", hint(completion.status)));
}

void VerbsReader::fail_late(std::span<const Rest> rests) {
  std::vector<uint32_t> owners;
  for (const Lane& lane : lanes_) {
    if (lane.open > 0 && (owners.empty() || owners.back() != lane.owner)) {
      owners.push_back(lane.owner);
    }
  }
  for (const Rest& rest : rests) {
    if (std::ranges::find(owners, rest.owner) == owners.end()) {
      owners.push_back(rest.owner);
    }
  }
  throw base::TransportError(base::cat("[transport] reads of ", ranks_text(owners),
                                       " by verbs did not end within ", options_.timeout_s,
                                       " s: see ibv_devinfo there, or set a longer time-out"));
}

}  // namespace gear::transport::verbs
