#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "base/threads/thread_pool.h"
#include "deliver/source.h"
#include "group/assignment.h"
#include "group/parcel_writer.h"
#include "group/peers.h"
#include "select/group/group_sampler.h"

namespace gear::group {

/// Draws batches over all ranks of a group, as if their shards were one buffer. What a rank does in
/// the thread of next(); every call is collective over `control`, in the same order on every rank.
class GlobalDraw {
 public:
  enum class Round : uint8_t {
    kDrawn,
    kNotAllowed,  ///< not yet: some rank's rate limiter
    kNothing,     ///< no rank offers anything, and none has a rate limiter that says to wait
    kOutOfTime,   ///< not yet, and some rank waits no longer
  };
  /// What this rank has to say to a batch: whether its rate limiter allows one, and whether it
  /// waits no longer for the others'.
  struct Terms {
    bool allowed;
    bool out_of_time;
  };

  /// `by_pointer`: [consumer, owner], whether it reads the owner's pages. Throws as
  /// make_group_sampler, and for a batch over all ranks of 2^32 items or more.
  GlobalDraw(Peers& peers, const deliver::CollectorOptions& options, Locality locality,
             std::shared_ptr<const plan::BatchLayout> layout, std::vector<uint8_t> by_pointer,
             transport::Transport& control);

  /// Draws a batch if every rank is allowed to and one offers anything. Ends on all ranks alike; so
  /// does the InvalidArgument that GroupSampler::select throws.
  Round draw(Terms terms, DrawnBatch& out);

  void set_beta(double beta);
  select::SamplerPosition position() const;
  void restore(const select::SamplerPosition& position);
  uint64_t batches_per_epoch();

 private:
  uint64_t offered() const;
  void offer();
  void take_offers(store::Index& index);
  void resolve(std::unique_lock<std::mutex>& lock, DrawnBatch& out);
  void sort_own_draws();
  void write_parcels(DrawnBatch& out);

  Peers& peers_;
  store::Shard& shard_;
  select::SamplerOptions sampler_options_;
  uint64_t items_;  ///< of all ranks
  std::vector<uint8_t> by_pointer_;
  transport::Transport& control_;
  std::shared_ptr<const plan::BatchLayout> layout_;
  std::unique_ptr<select::GroupSampler> sampler_;
  Assignment assignment_;
  ParcelWriter writer_;
  /// Of one draw, kept for their memory.
  std::vector<std::byte> offer_;
  std::vector<std::byte> offers_;
  select::GroupDraw draw_;
  /// Of a part of the draws: the own ones among them, and where they go.
  struct Part {
    std::vector<uint32_t> draws;
    std::vector<uint32_t> next;  ///< by consumer: how many go there, then the place of the first
    uint32_t first = 0;          ///< number of the first one among this rank's
    float least = 0;             ///< probability
  };
  base::ThreadPool& pool_;
  std::vector<Part> parts_;
  std::vector<std::vector<uint32_t>> which_;   ///< by consumer: its items among this rank's draws
  std::vector<std::vector<uint32_t>> places_;  ///< likewise: in its batch
};

/// Throws InvalidArgument, on all ranks alike, unless the loaders that they make are the same.
void check_same_loader(const deliver::CollectorOptions& options, Locality locality, bool nccl,
                       std::optional<double> timeout_s, transport::Transport& control);

}  // namespace gear::group
