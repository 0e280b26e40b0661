#include "transport/verbs/verbs_lanes.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errors.h"

namespace gear::transport::verbs {
namespace {

constexpr uint32_t kDepth = 256;
constexpr uint32_t kMostOpen = 4096;

// What a status says beyond its own words.
std::string_view hint(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return "it does not answer: it has ended, or the link is down (ibv_devinfo, ip link)";
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
      return "it does not offer the memory asked for: it has closed its buffer, which it may do "
             "only once all ranks have closed their loaders, or runs another build";
    case IBV_WC_LOC_QP_OP_ERR:
      return "this rank's device cannot send: its link is down (ibv_devinfo, ip link)";
    case IBV_WC_WR_FLUSH_ERR:
      return "an earlier read from it failed, or its connection was closed";
    default:
      return "see the system's log on both nodes";
  }
}

}  // namespace

VerbsLanes::VerbsLanes(std::shared_ptr<const VerbsPort> port, std::vector<PortAddress> ports,
                       Options options)
    : port_(std::move(port)),
      ports_(std::move(ports)),
      options_(std::move(options)),
      pairs_(ports_.size() * options_.queue_pairs) {
  const VerbsLibrary& library = port_->library();
  limits_.per_owner = options_.queue_pairs;
  limits_.depth = std::clamp<uint32_t>(static_cast<uint32_t>(port_->limits().max_qp_wr), 1, kDepth);
  // Every read under way can end in a completion of its own: when a connection fails.
  limits_.open = std::clamp<uint32_t>(static_cast<uint32_t>(port_->limits().max_cqe), 1, kMostOpen);
  limits_.most_bytes = std::min<uint64_t>(port_->most_message_bytes(), uint64_t{1} << 30);
  requests_.resize(limits_.depth);
  places_.resize(limits_.depth);
  completions_ =
      own(library.create_cq(port_->context(), static_cast<int>(limits_.open), nullptr, nullptr, 0),
          library.destroy_cq);
  if (!completions_) {
    throw base::TransportError(base::cat("[transport] ibv_create_cq of ", limits_.open, " on ",
                                         port_->device_name(), ": ", base::errno_text(errno)));
  }
  for (size_t lane = 0; lane < pairs_.size(); ++lane) {
    if (options_.partners[lane / options_.queue_pairs] != 0) {
      pairs_[lane].emplace(*port_, completions_.get(), limits_.depth);
    }
  }
}

Opaque VerbsLanes::introduction(uint32_t rank) const {
  std::vector<QueuePairAddress> addresses(options_.queue_pairs);
  for (uint32_t k = 0; k < options_.queue_pairs; ++k) {
    if (const auto& pair = pairs_[size_t{rank} * options_.queue_pairs + k]) {
      addresses[k] = pair->address();
    }
  }
  const auto bytes = std::as_bytes(std::span(addresses));
  return {bytes.begin(), bytes.end()};
}

void VerbsLanes::connect(std::span<const Opaque> others) {
  const uint8_t timeout = packet_timeout(options_.timeout_s);
  for (size_t lane = 0; lane < pairs_.size(); ++lane) {
    if (!pairs_[lane]) {
      continue;
    }
    const size_t owner = lane / options_.queue_pairs;
    const size_t k = lane % options_.queue_pairs;
    QueuePairAddress address{};
    GEAR_CHECK(others[owner].size() == options_.queue_pairs * sizeof address);
    std::memcpy(&address, others[owner].data() + k * sizeof address, sizeof address);
    pairs_[lane]->connect(ports_[owner], address, timeout);
  }
}

ChunkedMemory VerbsLanes::land_in(Bytes memory) {
  landing_.reset();
  landing_.emplace(*port_, memory, MemoryUse::kLanding, options_.chunk_bytes);
  return landing_->chunked();
}

uint32_t VerbsLanes::post(uint32_t lane, std::span<const Piece> chain) {
  for (size_t i = 0; i < chain.size(); ++i) {
    const Piece& piece = chain[i];
    places_[i] = {piece.to, static_cast<uint32_t>(piece.bytes),
                  static_cast<uint32_t>(piece.to_key)};
    ibv_send_wr& request = requests_[i];
    request = {};
    request.wr_id = uint64_t{lane} << 32;  // any of them may come back, with an error
    request.next = i + 1 < chain.size() ? &requests_[i + 1] : nullptr;
    request.sg_list = &places_[i];
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_READ;
    request.wr.rdma.remote_addr = piece.from;
    request.wr.rdma.rkey = static_cast<uint32_t>(piece.from_key);
  }
  ibv_send_wr& last = requests_[chain.size() - 1];
  last.send_flags = IBV_SEND_SIGNALED;
  last.wr_id |= chain.size();
  GEAR_CHECK(pairs_[lane].has_value());
  pairs_[lane]->post(requests_.data());
  return static_cast<uint32_t>(chain.size());
}

std::span<const Ended> VerbsLanes::ended() {
  ended_.clear();
  std::array<ibv_wc, kCompletions> ended;
  const int count = port_->library().poll_cq(completions_.get(), ended.size(), ended.data());
  if (count < 0) {
    throw base::TransportError(base::cat("[transport] ibv_poll_cq on ", port_->device_name(),
                                         " failed: see the system's log"));
  }
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const ibv_wc& one = ended[i];
    Ended& added = ended_.emplace_back(
        Ended{static_cast<uint32_t>(one.wr_id >> 32), static_cast<uint32_t>(one.wr_id), {}});
    if (one.status != IBV_WC_SUCCESS) {
      added.failure = base::cat(port_->library().status_text(one.status), " (",
                                static_cast<int>(one.status), "): ", hint(one.status));
    }
  }
  return ended_;
}

std::string VerbsLanes::way(uint32_t owner) const {
  return base::cat(port_->text(), " from ", address_text(ports_[owner]));
}

}  // namespace gear::transport::verbs
