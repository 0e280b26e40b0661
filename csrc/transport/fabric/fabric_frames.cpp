#include "transport/fabric/fabric_frames.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <span>
#include <utility>

#include "base/errors.h"
#include "transport/typed.h"

namespace gear::transport::fabric {
namespace {

constexpr size_t kFrameSends = 96;
constexpr size_t kFrameReceives = 32;
constexpr size_t kFramesAtOnce = 32;  // taken at a time
// So that a rank that takes nothing does not hold all sends, nor several that do. Questions and
// their answers leave some for what says why a group has ended.
constexpr uint32_t kToOneRank = 8;
constexpr size_t kControlSends = 16;
constexpr size_t kLastWords = 8;
constexpr uint32_t kControlsToOneRank = 4;  // more

// What the address of a rank begins with; its endpoint's name follows.
struct AddressHead {
  FabricNetwork network;
  uint32_t line_port;  // 0: it has no life line
};

}  // namespace

FabricFrames::FabricFrames(std::shared_ptr<const FabricDomain> domain)
    : domain_(std::move(domain)),
      rooms_(new std::byte[(kFrameSends + kFrameReceives) * kFrameBytes]),
      slots_(kFrameSends + kFrameReceives),
      endpoint_(domain_, slots_.size() * 2, true, FI_CQ_FORMAT_MSG),
      entries_(kFramesAtOnce) {
  static_assert(offsetof(Slot, context) == 0);
  const FabricDomain& opened = *domain_;
  if (opened.demands(FI_MR_LOCAL)) {
    registered_ =
        open_fid<fid_mr>(opened.library(), opened.text() + ", fi_mr_reg", [&](fid_mr** out) {
          return ::fi_mr_reg(opened.domain(), rooms_.get(), slots_.size() * kFrameBytes,
                             FI_SEND | FI_RECV, 0, opened.next_key(), 0, out, nullptr);
        });
    if (opened.demands(FI_MR_ENDPOINT)) {
      check_fabric(opened.library(), opened.text() + ", fi_mr_bind",
                   ::fi_mr_bind(registered_.get(), &endpoint_.endpoint()->fid, 0));
      check_fabric(opened.library(), opened.text() + ", fi_mr_enable",
                   ::fi_mr_enable(registered_.get()));
    }
    descriptor_ = ::fi_mr_desc(registered_.get());
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].room = rooms_.get() + i * kFrameBytes;
    if (i < kFrameReceives) {
      slots_[i].rank = kReceives;
      post(slots_[i]);
    } else {
      free_.push_back(&slots_[i]);
    }
  }
  // That of net, in libfabric 1.17, does not tell of what comes.
  wait_file_ =
      std::strcmp(opened.info()->fabric_attr->prov_name, "net") == 0 ? -1 : endpoint_.wait_file();
  const uint32_t format = opened.network().address_format;
  if (format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6) {
    lines_.emplace(endpoint_.name());
  }
}

Opaque FabricFrames::address() const {
  const AddressHead head{domain_->network(), lines_ ? lines_->port() : 0U};
  const ConstBytes bytes = bytes_of(head);
  Opaque address(bytes.begin(), bytes.end());
  const Opaque name = endpoint_.name();
  address.insert(address.end(), name.begin(), name.end());
  return address;
}

void FabricFrames::know(std::vector<Opaque> addresses) {
  const FabricNetwork own = domain_->network();
  for (size_t rank = 0; rank < addresses.size(); ++rank) {
    Opaque& address = addresses[rank];
    AddressHead head{};
    if (address.size() <= sizeof head) {
      throw base::TransportError(base::cat("[transport] the address of rank ", rank, " has ",
                                           address.size(),
                                           " bytes: ranks of one group must run the same build"));
    }
    std::memcpy(&head, address.data(), sizeof head);
    FabricNetwork& other = head.network;
    other.provider.back() = '\0';
    if (own.provider != other.provider || own.address_format != other.address_format) {
      throw base::TransportError(base::cat(
          "[transport] ", own.provider.data(), " (address format ", own.address_format,
          ") cannot reach rank ", rank, ", ", other.provider.data(), " (", other.address_format,
          "): set GEAR_FABRIC_PROVIDER and GEAR_FABRIC_DOMAIN so that all ranks use one "
          "network"));
    }
    line_ports_.push_back(static_cast<uint16_t>(head.line_port));
    address.erase(address.begin(), address.begin() + sizeof head);
  }
  names_ = std::move(addresses);
  numbers_.assign(names_.size(), FI_ADDR_NOTAVAIL);
  under_way_.assign(names_.size(), 0);
}

void FabricFrames::watch(uint32_t rank) {
  if (lines_.has_value() && line_ports_[rank] != 0) {
    lines_->watch(rank, names_[rank], line_ports_[rank]);
  }
}

bool FabricFrames::send(uint32_t rank, const messages::FrameHead& head, ConstBytes bytes,
                        uint32_t& leaving) {
  GEAR_CHECK(rank < names_.size() && bytes.size() <= payload_bytes());
  const bool control = head.kind >= messages::FrameKind::kGaveUp;
  const bool asks =
      head.kind == messages::FrameKind::kAsk || head.kind == messages::FrameKind::kAnswer;
  if (free_.size() <= (control ? (asks ? kLastWords : 0) : kControlSends) ||
      under_way_[rank] >= kToOneRank + (control ? kControlsToOneRank : 0)) {
    return false;
  }
  if (numbers_[rank] == FI_ADDR_NOTAVAIL) {
    numbers_[rank] = endpoint_.add(names_[rank]);
  }
  Slot& slot = *free_.back();
  slot.rank = rank;
  slot.control = control;
  slot.leaving = &leaving;
  std::memcpy(slot.room, &head, sizeof head);
  if (!bytes.empty()) {
    std::memcpy(slot.room + sizeof head, bytes.data(), bytes.size());
  }
  const ssize_t code = ::fi_send(endpoint_.endpoint(), slot.room, sizeof head + bytes.size(),
                                 descriptor_, numbers_[rank], &slot.context);
  if (code == -FI_EAGAIN) {
    return false;
  }
  check_fabric(domain_->library(), base::cat(domain_->text(), ", fi_send to rank ", rank), code);
  free_.pop_back();
  ++under_way_[rank];
  ++leaving;
  ++counts_.sent;
  counts_.sent_bytes += sizeof head + bytes.size();
  return true;
}

bool FabricFrames::progress(const Arrived& arrived) {
  const ssize_t count = ::fi_cq_read(endpoint_.completions(), entries_.data(), entries_.size());
  if (count == -FI_EAGAIN) {
    return false;
  }
  if (count == -FI_EAVAIL) {
    end_failed();
    return true;
  }
  check_fabric(domain_->library(), domain_->text() + ", fi_cq_read", count);
  std::exception_ptr failure;
  for (const fi_cq_msg_entry& entry : std::span(entries_).first(static_cast<size_t>(count))) {
    Slot& slot = slot_of(entry.op_context);
    if (slot.rank != kReceives) {
      has_left(slot);
      continue;
    }
    try {
      take(slot, entry.len, arrived);
    } catch (...) {  // what else has come, and left, has all the same
      failure = failure ? failure : std::current_exception();
    }
    post(slot);
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
  return true;
}

void FabricFrames::take(const Slot& slot, size_t bytes, const Arrived& arrived) {
  messages::FrameHead head{};
  ++counts_.received;
  counts_.received_bytes += bytes;
  if (bytes >= sizeof head && bytes <= kFrameBytes) {
    std::memcpy(&head, slot.room, sizeof head);
    if (head.bytes == bytes - sizeof head) {
      arrived(head, {slot.room + sizeof head, static_cast<size_t>(head.bytes)});
    }
  }
}

FabricFrames::Slot& FabricFrames::slot_of(void* context) {
  const auto index = static_cast<size_t>(static_cast<Slot*>(context) - slots_.data());
  GEAR_CHECK(index < slots_.size());
  return slots_[index];
}

void FabricFrames::has_left(Slot& slot) {
  --under_way_[slot.rank];
  --*slot.leaving;
  free_.push_back(&slot);
}

void FabricFrames::post(Slot& slot) {
  ssize_t code = -FI_EAGAIN;
  for (int tries = 0; code == -FI_EAGAIN && tries < 1000; ++tries) {
    code = ::fi_recv(endpoint_.endpoint(), slot.room, kFrameBytes, descriptor_, FI_ADDR_UNSPEC,
                     &slot.context);
  }
  check_fabric(domain_->library(), domain_->text() + ", fi_recv", code);
}

void FabricFrames::end_failed() {
  fi_cq_err_entry failed{};
  check_fabric(domain_->library(), domain_->text() + ", fi_cq_readerr",
               ::fi_cq_readerr(endpoint_.completions(), &failed, 0));
  const std::string words =
      base::cat(domain_->library().strerror(failed.err), " (", failed.err, ")");
  if (failed.op_context == nullptr) {
    throw base::TransportError(base::cat("[transport] ", domain_->text(), ": ", words));
  }
  Slot& slot = slot_of(failed.op_context);
  if (slot.rank == kReceives) {  // whoever sent it tells what became of it, or is missed
    post(slot);
    return;
  }
  has_left(slot);
  if (slot.control) {  // it is past hearing
    return;
  }
  throw base::TransportError(base::cat("[transport] a message to rank ", slot.rank, " by ",
                                       domain_->text(), " did not leave: ", words,
                                       ": it has ended, or the link is down: look at its output"));
}

}  // namespace gear::transport::fabric
