#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mpi/requests.h"
#include "ranks/wire.h"

namespace gear::process_group {

/// The wire over two private communicators of MPI.
class MpiWire final : public Wire {
 public:
  /// Collective over the ranks of MPI_COMM_WORLD that are given, by rank of the group. Throws
  /// TransportError where MPI has not been initialised with MPI_THREAD_MULTIPLE, and when ranks do
  /// not come within timeout_s; what was begun goes on then, in a thread that nobody waits for.
  MpiWire(const std::vector<int>& world_ranks, const std::string& name, double timeout_s);
  ~MpiWire() override;
  MpiWire(const MpiWire&) = delete;
  MpiWire& operator=(const MpiWire&) = delete;

  /// For what ranks of the group agree on before their calls.
  MPI_Comm ranks() const noexcept { return calls_; }

  Place place() const noexcept override { return place_; }
  int highest_tag() const noexcept override { return highest_tag_; }
  Request send(const Address& to, const std::byte* from, uint64_t bytes) override;
  std::optional<Arrival> look(const Address& from) override;
  Request take(const Arrival& come, std::byte* to) override;
  void read(const Arrival& come, std::byte* to) override;
  void drop(const Arrival& come) noexcept override;
  bool test(std::span<Request> open) override;
  bool settle(std::span<Request> open, bool waits) noexcept override;
  void tell(const Address& to, const void* bytes, size_t size) noexcept override;
  void abandon() noexcept override;

 private:
  MPI_Comm communicator(Line line) const noexcept {
    return line == Line::kCalls ? calls_ : messages_;
  }

  Place place_{};
  MPI_Comm calls_ = MPI_COMM_NULL;
  MPI_Comm messages_ = MPI_COMM_NULL;
  int highest_tag_ = 0;
  bool abandoned_ = false;
  // Of test().
  std::vector<MPI_Request> requests_;
  mpi::Requests test_;
};

}  // namespace gear::process_group
