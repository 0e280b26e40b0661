#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "transport/fabric/fabric_endpoint.h"
#include "transport/fabric/messages/frame.h"

namespace gear::transport::fabric {

/// What has gone and come, heads of frames included.
struct FrameCounts {
  uint64_t sent = 0;
  uint64_t sent_bytes = 0;
  uint64_t received = 0;
  uint64_t received_bytes = 0;
};

/// Where frames begin and arrive. A connectionless endpoint of libfabric: whatever it needs to
/// reach a rank is made when the first frame goes there, and kept.
///
/// Frames are copied into and out of memory of the endpoint, some 2 MiB, of which only what is used
/// is touched. A rank that has ended is not told from one that does not answer: libfabric tries to
/// connect again for ever. One thread at a time.
class FrameEndpoint {
 public:
  using Arrived = std::function<void(const FrameHead& head, ConstBytes bytes)>;

  /// Throws TransportError.
  explicit FrameEndpoint(std::shared_ptr<const FabricDomain> domain);

  /// For the other ranks' know().
  Opaque address() const;
  /// By rank. Throws TransportError where one is of another network.
  void know(std::vector<Opaque> addresses);

  /// Begins to send; false: not now. Throws TransportError where the rank cannot be reached.
  bool send(uint32_t rank, const FrameHead& head, ConstBytes bytes);
  /// Frames that have not left.
  uint32_t under_way(uint32_t rank) const { return under_way_[rank]; }

  /// Lets the provider work and hands over what has come: that is whether anything happened. Throws
  /// TransportError where a frame could not be sent.
  bool progress(const Arrived& arrived);

  /// A file that is readable once progress() may have something to do; -1: there is none.
  int wait_file() const { return wait_file_; }
  bool may_sleep() const { return endpoint_.may_sleep(); }

  const FabricDomain& domain() const { return *domain_; }
  const FrameCounts& counts() const { return counts_; }

 private:
  struct Slot {
    fi_context2 context;  // first: completions give its address
    std::byte* room;
    uint32_t rank;  // kReceives
  };
  static constexpr uint32_t kReceives = UINT32_MAX;

  Slot& slot_of(void* context);
  void post(Slot& slot);
  void end_failed();

  std::shared_ptr<const FabricDomain> domain_;
  std::unique_ptr<std::byte[]> rooms_;  // outlive the endpoint
  std::vector<Slot> slots_;
  std::vector<Slot*> free_;
  Fid<fid_mr> registered_;  // where the provider demands it
  FabricEndpoint endpoint_;
  void* descriptor_ = nullptr;
  int wait_file_ = -1;
  std::vector<Opaque> names_;
  std::vector<fi_addr_t> numbers_;
  std::vector<uint32_t> under_way_;
  std::vector<fi_cq_msg_entry> entries_;
  FrameCounts counts_;
};

}  // namespace gear::transport::fabric
