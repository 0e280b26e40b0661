#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

#include "transport/collective.h"
#include "transport/failure.h"
#include "transport/transport.h"

namespace gear::transport::mpi {

/// The tag of the words with which a rank has given up. They follow its Call::kGaveUp, which has
/// the size of no message and so fits whatever is waited for.
constexpr int kWordsTag = 64;

/// The words of a rank that has given up, if they have come; empty: none have.
std::string words_of_any(MPI_Comm communicator);

/// The messages of one collective call of one rank: all are posted, then waited for together, so
/// that no order of the ranks can block it.
class Messages {
 public:
  Messages(MPI_Comm communicator, uint32_t rank, uint64_t message_bytes, Failure& failure)
      : communicator_(communicator),
        rank_(rank),
        message_bytes_(message_bytes),
        failure_(failure) {}

  void begin(Call call);
  /// Entries of no bytes need no message. The bytes must stay until wait() returns.
  void receive(uint32_t source, Bytes bytes);
  void send(uint32_t target, ConstBytes bytes);

  /// Throws TransportError that names the ranks whose messages have not come within timeout_s, or
  /// which did not take theirs, and for messages of another call or size; what the rank's group has
  /// failed with, or base::check_interrupt throws, ends the wait too. Cancels what is left.
  void wait(double timeout_s);

 private:
  struct Post {
    uint32_t peer;
    uint64_t bytes;
    bool receives;
    bool done;
  };

  /// Looks once; returns how many ended.
  int test();
  void check_received(const Post& post, const MPI_Status& status) const;
  /// With which `peer` has given up; made here where they do not come.
  std::string words_of(uint32_t peer) const;
  [[noreturn]] void fail_late(double timeout_s);
  void cancel() noexcept;

  MPI_Comm communicator_;
  uint32_t rank_;
  uint64_t message_bytes_;
  Failure& failure_;
  Call call_ = Call::kAllgather;
  size_t num_open_ = 0;
  std::vector<Post> posts_;
  std::vector<MPI_Request> requests_;
  std::vector<int> ended_;
  std::vector<MPI_Status> statuses_;
};

/// Waiting for MPI means calling it again and again: without a pause at first, then rarely, so that
/// threads that compute keep the CPU.
class Backoff {
 public:
  void pause() noexcept;

 private:
  uint32_t turn_ = 0;
};

}  // namespace gear::transport::mpi
