#pragma once

#include <mpi.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "memory/rooms.h"
#include "mpi/requests.h"
#include "transport/messages/frames.h"

namespace gear::transport::mpi {

/// Frames by MPI, one message each.
///
/// MPI takes back no message that is matched and half done, so that those of a failed call may come
/// and go as long as the process lives: their rooms stay for ever then, and MPI is not finalised.
class MpiFrames final : public messages::Frames {
 public:
  /// communicator: of these frames alone; freed with them unless something may still be under way.
  MpiFrames(MPI_Comm communicator, uint32_t size, uint64_t payload_bytes);
  ~MpiFrames() override;

  std::string_view name() const noexcept override { return "mpi"; }
  uint64_t payload_bytes() const noexcept override { return payload_bytes_; }
  /// MPI moves bytes while it is called: some milliseconds without a pause.
  messages::Patience patience() const noexcept override { return {5'000, 50e-6}; }
  /// Open MPI keeps what comes for a communicator that is gone, for the next one of its number.
  bool may_go_unread() const noexcept override { return false; }
  bool send(uint32_t rank, const messages::FrameHead& head, ConstBytes bytes,
            uint32_t& leaving) override;
  uint32_t under_way(uint32_t rank) const override { return under_way_[rank]; }
  bool progress(const Arrived& arrived) override;

 private:
  static constexpr uint32_t kReceives = UINT32_MAX;
  struct Moving {
    uint32_t rank;  ///< to which it goes; kReceives: it comes
    uint64_t bytes;
    memory::Room room;
    uint32_t* leaving;  ///< null: it comes
  };

  void make_place();
  void begin_to_receive();
  void give_up_failed() noexcept;
  void take(const Moving& come, const Arrived& arrived);
  void heed(messages::FrameKind kind) noexcept;

  MPI_Comm communicator_;
  uint64_t payload_bytes_;
  pid_t pid_;  ///< a forked child has no part in MPI
  bool may_be_freed_ = true;
  memory::Rooms rooms_;
  gear::mpi::Requests requests_;
  std::vector<MPI_Request> open_;
  std::vector<Moving> moving_;  ///< as open_
  std::vector<Moving> ended_;
  std::vector<uint32_t> under_way_;
};

}  // namespace gear::transport::mpi
