#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>

#include "deliver/pipeline.h"
#include "group/agreement.h"
#include "group/assignment.h"
#include "group/peers/page_access.h"
#include "group/peers/peers.h"

namespace gear::group {

struct GroupOptions {
  Locality locality = Locality::kFirst;
  bool nccl =
      false;  ///< rows between GPUs that are not mapped travel by NCCL, not through the host
  std::optional<double> timeout_s = std::nullopt;  ///< of the calls of next(): to be the same
};

/// What the ranks agree on before a loader of all of them is made; a source keeps it.
struct LoaderParts {
  std::shared_ptr<Peers> peers;
  deliver::LoaderOptions options;
  GroupOptions group;
  std::unique_ptr<transport::Transport> control;  ///< of the caller's thread
  std::shared_ptr<const plan::BatchLayout> layout;
  uint64_t number = 0;      ///< of the loader, the same on all ranks
  bool by_kernels = false;  ///< a GPU gathers
  PageAccess access;
  uint64_t pack_below = 0;  ///< as Peers::pack_below; 0 where nothing is read one-sided
};

/// Collective. Throws InvalidArgument, on all ranks alike, where their requests differ, and where
/// some rank's does not go with a group.
LoaderParts agree_on_loader(std::shared_ptr<Peers> peers, deliver::Request request,
                            const GroupOptions& group);

/// The form of a group's source that draws on GPUs, where it fits; null on all ranks alike where it
/// does not. Collective. Takes of `parts` what it needs where it is not null.
std::unique_ptr<deliver::Source> make_device_group_source(LoaderParts& parts);

/// Collective; what a loader over a group holds.
std::unique_ptr<deliver::Pipeline> make_pipeline(std::shared_ptr<Peers> peers,
                                                 deliver::Request request,
                                                 const GroupOptions& group);

/// Draws by attempts, which are collective: no rank waits where the others cannot hear of it for
/// longer than a moment. None is made again in vain where batches are ahead. False when there was
/// nothing to draw in time; throws InvalidArgument where no rank offers anything.
bool draw_by_attempts(const Peers& peers, const deliver::LoaderOptions& options, bool ahead,
                      std::optional<double> timeout_s, const std::exception_ptr& error,
                      const std::function<Agreement::Round(const Agreement::Terms&)>& attempt);

/// Batches of an epoch over all ranks. Collective.
uint64_t batches_per_epoch(const Peers& peers, const deliver::LoaderOptions& options,
                           transport::Transport& control);

}  // namespace gear::group
