#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "transport/fabric/fabric_endpoint.h"
#include "transport/fabric/life_lines.h"
#include "transport/messages/frames.h"

namespace gear::transport::fabric {

/// A frame fits the buffers that providers keep for what comes unasked for.
constexpr uint64_t kFrameBytes = uint64_t{16} << 10;

/// Frames by a connectionless endpoint of libfabric: whatever it needs to reach a rank is made when
/// the first frame goes there, and kept.
///
/// Frames are copied into and out of memory of the endpoint, some 2 MiB, of which only what is used
/// is touched. libfabric does not tell a rank that has ended from one that does not answer: it
/// tries to connect again for ever. Life lines do, where addresses are those of IP.
class FabricFrames final : public messages::Frames {
 public:
  /// Throws TransportError.
  explicit FabricFrames(std::shared_ptr<const FabricDomain> domain);

  /// For the other ranks' know().
  Opaque address() const;
  /// By rank; once, before any frame. Throws TransportError where one is of another network.
  void know(std::vector<Opaque> addresses);

  std::string_view name() const noexcept override { return "libfabric"; }
  uint64_t payload_bytes() const noexcept override {
    return kFrameBytes - sizeof(messages::FrameHead);
  }
  messages::Patience patience() const noexcept override { return {32, 0.02}; }
  bool may_go_unread() const noexcept override { return true; }
  bool send(uint32_t rank, const messages::FrameHead& head, ConstBytes bytes,
            uint32_t& leaving) override;
  uint32_t under_way(uint32_t rank) const override { return under_way_[rank]; }
  bool progress(const Arrived& arrived) override;
  void watch(uint32_t rank) override;
  bool has_ended(uint32_t rank) override { return lines_ && lines_->has_ended(rank); }
  int wait_file() const override { return wait_file_; }
  bool may_sleep() const override { return endpoint_.may_sleep(); }

 private:
  struct Slot {
    fi_context2 context;  // first: completions give its address
    std::byte* room;
    uint32_t rank;      // kReceives
    bool control;       // no part of a message
    uint32_t* leaving;  // of what is sent
  };
  static constexpr uint32_t kReceives = UINT32_MAX;

  Slot& slot_of(void* context);
  void take(const Slot& slot, size_t bytes, const Arrived& arrived);
  void has_left(Slot& slot);
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
  std::optional<LifeLines> lines_;
  std::vector<uint16_t> line_ports_;  ///< by rank; 0: none
  std::vector<Opaque> names_;
  std::vector<fi_addr_t> numbers_;
  std::vector<uint32_t> under_way_;
  std::vector<fi_cq_msg_entry> entries_;
};

}  // namespace gear::transport::fabric
