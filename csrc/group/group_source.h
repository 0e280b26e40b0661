#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "deliver/batch_source.h"
#include "group/global_draw.h"
#include "group/mover.h"
#include "group/page_access.h"
#include "group/peers.h"
#include "group/read_board.h"

namespace gear::group {

struct GroupOptions {
  Locality locality = Locality::kFirst;
  bool nccl =
      false;  ///< rows between GPUs that are not mapped travel by NCCL, not through the host
  std::optional<double> timeout_s = std::nullopt;  ///< of the calls of next(): to be the same
};

/// Delivers batches that all ranks of a group draw together, as if their shards were one buffer.
///
///   next(), on every rank at the same place:
///     updates to their owners ─ offers of the shards ─ own draws ─ who consumes which ─ parcels
///   own thread, batch after batch:
///     parcels to their consumers ─ rows: own and mapped pages by pointer, others by message
///
/// The first line is collective on `control`, the second on `data`: two transports, since the
/// threads have no order between them. options.batch_size is the rank's. A collector of every rank
/// is made, asked and closed in the same order.
class GroupCollector final : public deliver::BatchSource {
 public:
  /// Collective. Throws InvalidArgument, on all ranks alike, where their options differ.
  GroupCollector(std::shared_ptr<Peers> peers, deliver::CollectorOptions options,
                 GroupOptions group);
  /// Waits for the batches in flight, for which other ranks are needed.
  ~GroupCollector() override;

  Next next(std::optional<double> timeout_s, plan::Batch& out) override;
  void set_beta(double beta) override;
  uint64_t batches_per_epoch() override;
  State state() override;
  void restore(const State& state) override;
  Stats stats() override;

 private:
  struct Job;
  /// Of a batch that is being gathered, by this rank and by others.
  struct Reading {
    uint64_t number;
    uint64_t ticket;
    std::vector<uint32_t> readers;  ///< ranks that read this one's pages
  };

  std::unique_ptr<GroupMover> make_mover();

  /// One collective attempt to draw a batch.
  GlobalDraw::Round issue(GlobalDraw::Terms terms);
  bool allowed(double within_s);
  bool wait_to_issue(std::optional<double> timeout_s);
  void run();
  void end_reading(const Reading& read);
  void prepare(Job& job);
  void launch(Job& job);
  void finish(Job& job);
  [[noreturn]] void refuse_to_draw() const;
  void count(const Job& job);
  std::unique_ptr<Job> idle_job();
  void drop_pending();

  std::shared_ptr<Peers> peers_;
  store::Shard& shard_;
  deliver::CollectorOptions options_;
  GroupOptions group_;
  std::unique_ptr<transport::Transport> control_;
  std::unique_ptr<transport::Transport> data_;
  std::shared_ptr<const plan::BatchLayout> layout_;
  std::unique_ptr<GroupMover> mover_;
  bool by_kernels_ = false;  ///< a GPU gathers
  PageAccess access_;
  std::shared_ptr<ReadBoard> board_;
  std::unique_ptr<GlobalDraw> draw_;

  /// Of the caller's thread:
  uint64_t issued_ = 0;
  /// Of the own thread:
  std::deque<Reading> reading_;
  std::vector<std::shared_ptr<const ReadersEnd>> ends_;
  std::exception_ptr failure_;  ///< the first, which ends the collector's part in the group
  std::deque<std::unique_ptr<Job>> pending_;  ///< in delivery order
  std::vector<std::unique_ptr<Job>> idle_;

  std::mutex mutex_;  ///< of what follows, and of Job::prepared and Job::error
  std::condition_variable changed_;
  std::deque<Job*> queue_;
  bool stop_ = false;
  Stats stats_;
  std::thread thread_;
};

}  // namespace gear::group
