#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "store/checkpoint/snapshot_index.h"
#include "store/shard.h"
#include "transport/transport.h"

namespace gear::group {

/// Priorities that a GPU keeps for the ranks whose steps they are: see UpdateExchange. Under the
/// shard's lock.
class DeviceUpdates {
 public:
  virtual ~DeviceUpdates() = default;

  /// Keeps priorities of arrays as Mirror::update has them.
  virtual void keep(const int64_t* ids, const float* priorities, uint64_t count, bool on_device,
                    uintptr_t stream) = 0;
  /// Whether keep() would not wait for the GPU.
  virtual bool has_room() const = 0;
  /// How many; of calls that were refused too.
  virtual uint64_t kept() const = 0;
  /// Appends what is kept, which it forgets. Waits for the GPU.
  virtual void take(std::vector<int64_t>& ids, std::vector<float>& priorities) = 0;
  /// As Mirror::raise_failed_update.
  virtual void raise_failed() = 0;
};

/// The priorities that this rank has yet to tell the ranks whose steps they are. Shared by the
/// buffer and its loaders.
///
/// One place keeps them: this one, until a loader's draws select on the GPUs of all ranks; from
/// there on what set_device_updates() was given, for as long as the buffer is. A draw of that kind
/// sends them from GPU to GPU; where the host must tell them (in another loader's draw), exchange()
/// takes them back first. Between draws nothing tells them: a checkpoint holds them as they are, so
/// that a run goes on from it, or beside it, as if none had been made.
class Outbox {
 public:
  static constexpr uint64_t kLeastKept = 1 << 20;

  /// `slots`: by rank, steps that its shard has room for. `shard`: this rank's.
  Outbox(std::shared_ptr<store::Shard> shard, std::vector<uint64_t> slots);

  /// Keeps priorities until the next exchange(), on whatever rank's steps they are. Throws
  /// InvalidArgument, and keeps nothing, for a priority that is negative or not finite, or an id of
  /// no rank; and OutOfMemory for more than kLeastKept and two for each step that the buffer has
  /// room for, which nobody exchanges; and as Shard::check_process(). Any thread.
  void update(std::span<const int64_t> ids, std::span<const float> priorities);
  /// The same of arrays on a GPU, see Mirror::update. Returns at once where a GPU keeps them, which
  /// finds a wrong priority or id later: then the next update raises it. Else it waits for them.
  void update_from_device(const int64_t* ids, const float* priorities, uint64_t count,
                          uintptr_t stream);
  uint64_t num_kept();
  /// A copy of what is kept, for store::save_shard(). Waits for the GPU that keeps it.
  std::vector<store::KeptUpdate> kept();
  /// Collective: what every rank kept reaches the owners, which apply it in the order of the ranks.
  /// Where this rank's GPU fails it has sent nothing, and what others sent is applied, before it
  /// throws CudaError.
  void exchange(transport::Transport& control);

  /// From here on `updates` keeps the priorities, those that are kept already among them. On all
  /// ranks at the same place.
  void set_device_updates(std::shared_ptr<DeviceUpdates> updates);
  /// Null: none.
  const std::shared_ptr<DeviceUpdates>& device_updates() const { return device_updates_; }

 private:
  using Update = store::KeptUpdate;

  void apply(uint32_t from, std::span<const Update> updates);
  void check_room(uint64_t count, uint64_t kept) const;
  void put(std::span<const int64_t> ids, std::span<const float> priorities);

  std::shared_ptr<store::Shard> shard_;
  std::vector<uint64_t> slots_;
  uint64_t most_kept_ = kLeastKept;
  /// Under the shard's lock:
  std::shared_ptr<DeviceUpdates> device_updates_;  ///< null: none
  std::vector<std::vector<Update>> to_;            ///< by owner
  uint64_t num_to_ = 0;                            ///< in it
};

}  // namespace gear::group
