#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "deliver/source.h"
#include "group/agreement.h"
#include "group/assignment.h"
#include "group/parcels/parcel_writer.h"
#include "group/peers/peers.h"
#include "select/group/group_sampler.h"

namespace gear::group {

/// Draws batches over all ranks of a group, as if their shards were one buffer. What a rank does in
/// the thread of next(); every call is collective over `control`, in the same order on every rank.
class GlobalDraw {
 public:
  using Round = Agreement::Round;
  using Terms = Agreement::Terms;

  /// `told`: by consumer, 1 where it is told where rows lie in this rank's pages. Throws as
  /// select::GroupSampler, and for a batch over all ranks of 2^32 items or more.
  GlobalDraw(Peers& peers, const deliver::LoaderOptions& options, Locality locality,
             std::shared_ptr<const plan::BatchLayout> layout, std::vector<uint8_t> told,
             transport::Transport& control);

  /// Draws a batch if every rank is allowed to, has memory for it, and one offers anything. Ends on
  /// all ranks alike; so does the InvalidArgument that GroupSampler::select throws, and that of
  /// betas which differ. Where a rank
  /// has no memory, nothing is drawn on any: it throws its error, the others an OutOfMemory that
  /// names it, and all may go on.
  ///
  /// The parcels may show rows that are on their way into the shard's region: Pages::wait()
  /// comes before anybody reads them.
  /// `taken`: what of the batch this rank's shard holds, which counts when this rank delivers.
  Round draw(const Terms& terms, DrawnBatch& out, deliver::TakenBatch& taken);

  /// Whether an error of this rank alone came behind the agreement: the others draw the batch.
  bool out_of_step() const { return out_of_step_; }

  select::Law& law() { return sampler_->law(); }

 private:
  Round resolve(DrawnBatch& out, deliver::TakenBatch& taken);
  void write_parcels(DrawnBatch& out);

  Peers& peers_;
  store::Shard& shard_;
  uint64_t items_;  ///< of all ranks
  std::vector<uint8_t> told_;
  transport::Transport& control_;
  std::shared_ptr<const plan::BatchLayout> layout_;
  std::optional<select::GroupSampler> sampler_;
  Agreement agreement_;
  bool out_of_step_ = false;
  Deal deal_;
  ParcelWriter writer_;
  /// Of one draw, kept for their memory.
  std::vector<std::byte> offers_;
  select::GroupDraw draw_;
};

/// Throws InvalidArgument, on all ranks alike, unless the loaders that they make are the same.
void check_same_loader(const deliver::LoaderOptions& options, Locality locality, bool nccl,
                       std::optional<double> timeout_s, transport::Transport& control);

}  // namespace gear::group
