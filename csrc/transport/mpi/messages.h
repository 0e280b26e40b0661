#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "transport/collective.h"
#include "transport/failure.h"
#include "transport/inbox.h"
#include "transport/mpi/rooms.h"
#include "transport/transport.h"

namespace gear::transport::mpi {

/// The tag of the words with which a rank gives up; of no words, if it had no memory for them.
constexpr int kGaveUpTag = static_cast<int>(Call::kGaveUp);
/// What every MPI sends at once: who hears more waits until the teller, who may be gone, is in MPI.
constexpr size_t kMostWords = 1000;

/// The words of a rank that has given up, if they have come; empty: none have.
std::string words_of_any(MPI_Comm communicator);

/// The messages of one collective call of one rank: all are under way together, so that no order of
/// the ranks can block it.
///
/// MPI touches rooms of this object and never the caller's memory: it takes back no message that is
/// matched and half done, so that those of a failed call may come and go as long as the process
/// lives. Their rooms stay for ever. What has come is looked at before a byte of it is received:
/// Open MPI 4.1 writes a message that is longer than its room past the end of that, between
/// processes of one node.
///
/// An entry is cut into pieces of message_bytes, a few of which are under way at a time; each says
/// how many there are from it on:
///
///     entry  ->  room, room, .. at the sender  ->  MPI  ->  room, .. at the receiver  ->  entry
class Messages {
 public:
  Messages(MPI_Comm communicator, uint32_t rank, uint32_t size, uint64_t message_bytes,
           Failure& failure)
      : communicator_(communicator),
        rank_(rank),
        size_(size),
        message_bytes_(message_bytes),
        failure_(failure),
        inbox_(size) {}

  void begin(Call call);
  /// What is sent and where it is to go must stay until wait() returns or throws.
  void send(uint32_t target, ConstBytes bytes);
  void receive(uint32_t source, Bytes bytes);
  /// Into inbox(); null: as many bytes as its sender says.
  void receive(uint32_t source, std::optional<uint64_t> bytes);
  Inbox& inbox() { return inbox_; }

  /// Throws TransportError that names the ranks whose messages have not come within timeout_s, or
  /// which did not take theirs, and for messages of another call or size; with the words of a rank
  /// that has given up, whether this one waits for it or not, if not all is there without it; and
  /// with what the rank's group has failed with. What base::check_interrupt throws ends the wait
  /// too.
  void wait(double timeout_s);

  /// Throws TransportError with the words of a rank that has given up, if there is one.
  void hear();

 private:
  struct Incoming {
    std::byte* target = nullptr;  // null: the inbox
    std::optional<uint64_t> bytes;
    uint64_t begun = 0;
    bool awaited = false;  // pieces that have not begun
    uint32_t under_way = 0;

    bool open() const { return awaited || under_way > 0; }
  };
  struct Outgoing {
    ConstBytes bytes;
    uint64_t begun = 0;
    bool unposted = false;
    uint32_t under_way = 0;

    bool open() const { return unposted || under_way > 0; }
  };
  struct Piece {
    uint32_t peer;
    bool receives;
    uint64_t begin;
    uint64_t bytes;
    std::unique_ptr<std::byte[]> room;
  };
  /// A message that has come and has not been received.
  struct Arrival {
    MPI_Message message;
    uint32_t peer;
    int tag;
    uint64_t bytes;
  };

  /// Begins to send what may be sent; whether that was anything.
  bool post();
  void post(uint32_t target);
  /// The first message with `tag`, or any; whether there was one.
  bool find(int tag, Arrival& arrival) const;
  /// Begins to receive what has come; whether that was anything.
  bool look();
  void take(Arrival arrival);
  void check_expected(const Arrival& arrival, const Incoming& entry) const;
  /// Whether any has ended.
  bool test();
  void settle(Piece& piece);
  [[noreturn]] void fail_with_words(Arrival arrival) const;
  [[noreturn]] void fail_late(double timeout_s) const;
  void abandon() noexcept;

  MPI_Comm communicator_;
  uint32_t rank_;
  uint32_t size_;
  uint64_t message_bytes_;
  Failure& failure_;
  Call call_ = Call::kAllgather;
  std::vector<Incoming> from_;  // by rank
  std::vector<Outgoing> to_;
  Inbox inbox_;
  uint32_t unposted_ = 0;       // entries
  uint32_t open_ = 0;           // entries, both ways
  std::vector<Arrival> early_;  // of ranks that are in a later call
  std::optional<Arrival> gave_up_;
  std::vector<Piece> pieces_;  // under way, as requests_
  std::vector<MPI_Request> requests_;
  std::vector<int> ended_;
  std::vector<MPI_Status> statuses_;
  Rooms rooms_;
};

}  // namespace gear::transport::mpi
