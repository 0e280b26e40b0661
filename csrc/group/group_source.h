#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/threads/own_thread.h"
#include "deliver/pipeline.h"
#include "group/global_draw.h"
#include "group/group_loader.h"
#include "group/mover.h"
#include "group/peers/peers.h"
#include "group/peers/read_board.h"

namespace gear::group {

/// Batches that all ranks of a group draw together, as if their shards were one buffer.
///
///     draw(), on every rank at the same place:
///       updates to their owners ─ offers of the shards ─ own draws ─ who consumes which ─ parcels
///     own thread, batch after batch:
///       parcels to their consumers ─ rows: own and mapped pages by pointer, others by message
///                                  or read one-sided: in their owners' pages, or packed
///
/// The first line is collective on `control`, the second on `data`: two transports, since the
/// threads have no order between them. options.batch_size is the rank's. A source of every rank is
/// made, asked and closed in the same order. Batches of less than options.hand_over_bytes in the
/// host's memory are carried out by draw() itself, and there is no own thread; but where rows
/// travel and batches are drawn ahead.
///
/// The states of a batch, each left in the thread above it:
///
///            draw()             own thread: prepare()       finish(), or comes_next()
///     ready ────────► drawn ──┬──────────────────────► gathering ──────────────────────► ready
///       ▲ │ end of an epoch,  │  rows by messages that                rows exchanged       ▲
///       └─┘ failed to draw    │  the caller's stream orders                                │
///                             └────────────────────────────────────────────────────────────┘
///                                no messages, messages by the own thread, or an error
class GroupSource final : public deliver::Source {
 public:
  /// Collective.
  explicit GroupSource(LoaderParts parts);
  /// Waits for the batches in flight, for which other ranks are needed.
  ~GroupSource() override;

  std::unique_ptr<deliver::Job> make_job() override;
  bool draw(deliver::Job& job, bool ahead, std::optional<double> timeout_s) override;
  void finish(deliver::Job& job) override;
  void comes_next(deliver::Job& job) override;
  void count(deliver::Job& job) override;
  void end() override;
  bool out_of_step() const override { return lost_ || draw_->out_of_step(); }
  void fill(deliver::Job& job, std::span<const std::byte> bytes) override;
  select::Law& law() override { return draw_->law(); }
  uint64_t batches_per_epoch() override;
  void report(deliver::Stats& stats) override;

 private:
  struct Share;  ///< of a batch
  /// Of a batch that is being gathered, by this rank and by others.
  struct Reading {
    uint64_t number;
    store::Read read;
    std::vector<uint32_t> readers;  ///< ranks that read this one's pages
    bool far_readers;               ///< one-sided, and have not said that they have
  };

  std::unique_ptr<GroupMover> make_mover();
  /// One collective attempt to draw a batch.
  GlobalDraw::Round attempt(Share& job, const GlobalDraw::Terms& terms);
  void run();
  void stop();
  /// The rest of a drawn batch.
  void carry_out(Share& job);
  void end_readings(size_t but);
  bool group_has_failed();
  void end_reading(Reading& reading);
  void prepare(Share& job);

  std::shared_ptr<Peers> peers_;
  store::Shard& shard_;
  deliver::LoaderOptions options_;
  GroupOptions group_;
  std::unique_ptr<transport::Transport> control_;
  std::unique_ptr<transport::Transport> data_;
  std::unique_ptr<GroupMover> mover_;
  bool by_kernels_ = false;  ///< a GPU gathers
  bool by_caller_ = false;   ///< there is no own thread: draw() carries batches out
  PageAccess access_;
  uint64_t pack_below_;
  std::shared_ptr<ReadBoard> board_;
  std::unique_ptr<GlobalDraw> draw_;
  uint64_t drawn_ = 0;  ///< batches to gather; of the caller's thread

  /// Of the own thread, or the caller's:
  std::deque<Reading> reading_;
  std::vector<std::shared_ptr<const ReadersEnd>> ends_;
  /// True once nobody waits any more.
  std::shared_ptr<std::atomic<bool>> closed_ = std::make_shared<std::atomic<bool>>(false);
  std::exception_ptr failure_;     ///< the first, which ends the source's part in the group
  std::atomic<bool> lost_{false};  ///< there is one, and the transport does not tell the others

  std::mutex mutex_;  ///< of what follows, and of a drawn batch's state
  std::condition_variable changed_;
  std::deque<Share*> queue_;
  bool stop_ = false;
  bool ended_ = false;      ///< the own thread
  deliver::Stats counted_;  ///< gather_s, and bytes by where they came from
  base::OwnThread thread_;
};

}  // namespace gear::group
