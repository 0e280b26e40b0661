#include "group/peers.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "base/errors.h"
#include "base/gpu/devices.h"
#include "base/log.h"
#include "memory/shared/made_up_name.h"
#include "store/id.h"
#include "store/index/update_check.h"
#include "transport/on_all.h"
#include "transport/one_sided/pack_limit.h"
#include "transport/typed.h"

namespace gear::group {
Peers::Peers(std::shared_ptr<store::Shard> shard, std::shared_ptr<transport::Transport> control,
             std::vector<uint32_t> nodes, bool hide_names)
    : shard_(std::move(shard)),
      control_(std::move(control)),
      nodes_(std::move(nodes)),
      rank_(control_->rank()),
      known_(control_->size()),
      outbox_(control_->size()) {
  GEAR_CHECK(nodes_.size() == control_->size());
  if (size() > store::StepId::kMostOwners) {
    throw base::InvalidArgument(base::cat("[group] a buffer over ", size(), " ranks: at most ",
                                          store::StepId::kMostOwners,
                                          " may share one; make several groups of fewer ranks"));
  }
  const std::string hash = shard_->schema().hash();
  Known own;
  std::memset(static_cast<void*>(&own), 0, sizeof own);
  own.region = memory::address_of(shard_->region(), hash);
  own.process = memory::this_process();
  own.page_steps = shard_->layout().page_steps;
  own.num_pages = shard_->index().options().num_pages;
  memory::made_up_name().copy(own.made_up.data(), own.made_up.size() - 1);
  own.owner = shard_->options().owner;
  own.max_times_sampled = shard_->options().max_times_sampled;
  own.evict = shard_->options().evict;
  own.hides_name = hide_names ? 1 : 0;
  hash.copy(own.schema_hash.data(), own.schema_hash.size() - 1);
  known_ = transport::allgather(*control_, own);
  check_known();
  for (const Known& one : known_) {
    most_kept_ += 2 * one.num_pages * one.page_steps;
  }
  for (uint32_t r = 0; r < size(); ++r) {
    if (r != rank_ && known_[r].region.tier != memory::Tier::kDevice) {
      map(r, -1);
    }
  }
  expose();
  if (!hide_names) {
    return;
  }
  static_cast<void>(transport::allgather(*control_, uint8_t{1}));  // all have mapped
  shard_->region().hide_name();
}

// Once for all loaders, and only where some rank cannot map another's pages: all ranks see that.
void Peers::expose() {
  const bool all_mapped =
      std::ranges::all_of(nodes_, [&](uint32_t node) { return node == nodes_[0]; }) &&
      std::ranges::all_of(known_, [](const Known& one) { return memory::mappable(one.region); });
  memory::Region& region = shard_->region();
  if (size() > 1 && !all_mapped && region.host_accessible()) {
    remote_ = control_->expose({region.data(), region.bytes()});
  }
}

void Peers::check_known() const {
  const Known& first = known_[0];
  for (uint32_t r = 0; r < size(); ++r) {
    const Known& one = known_[r];
    if (one.owner != r) {
      throw base::InvalidArgument(base::cat("[group] rank ", r, " has the shard of rank ",
                                            one.owner,
                                            ": load each part on the rank that saved it"));
    }
    if (one.schema_hash != first.schema_hash) {
      throw base::InvalidArgument(
          base::cat("[group] the schema of rank ", r, " (hash ", one.schema_hash.data(),
                    ") is not that of rank 0 (", first.schema_hash.data(),
                    "): give every rank the same columns in the same order"));
    }
    if (one.region.tier != first.region.tier) {
      throw base::InvalidArgument(base::cat(
          "[group] tier '", memory::kTiers.name(one.region.tier), "' on rank ", r, ", '",
          memory::kTiers.name(first.region.tier), "' on rank 0: give every rank the same"));
    }
    if (one.max_times_sampled != first.max_times_sampled) {
      throw base::InvalidArgument(base::cat("[group] max_times_sampled ", one.max_times_sampled,
                                            " on rank ", r, ", ", first.max_times_sampled,
                                            " on rank 0: give every rank the same"));
    }
    if (one.evict != first.evict || one.hides_name != first.hides_name) {
      throw base::InvalidArgument(base::cat("[group] ", one.evict != first.evict ? "evict" : "name",
                                            " of rank ", r, " is not that of rank 0: give every ",
                                            "rank the same"));
    }
    if (one.page_steps != first.page_steps) {
      throw base::InvalidArgument(base::cat("[group] page_steps ", one.page_steps, " on rank ", r,
                                            ", ", first.page_steps,
                                            " on rank 0: give every rank the same"));
    }
  }
}

std::string Peers::shared_name(uint32_t rank, uint64_t loader) const {
  return base::cat(known_[0].made_up.data(), "-l", loader, "-r", rank);
}

std::vector<PeerPages> Peers::pages(int device) {
  std::vector<PeerPages> pages(size());
  for (uint32_t r = 0; r < size(); ++r) {
    const memory::Region* region = r == rank_ ? &shard_->region() : map(r, device);
    if (region == nullptr) {
      continue;
    }
    pages[r].host = device < 0 && region->host_accessible() ? region->data() : nullptr;
    pages[r].device = device >= 0 ? region->device_data() : nullptr;
    if (pages[r].host != nullptr || pages[r].device != nullptr) {
      pages[r].num_pages = known_[r].num_pages;
    }
  }
  return pages;
}

PageAccess Peers::agree_on_access(int device, transport::Transport& control) {
  PageAccess access;
  transport::on_all(control, [&] { access.pages = pages(device); });
  std::vector<uint8_t> own;
  own.reserve(access.pages.size());
  for (const PeerPages& one : access.pages) {
    own.push_back(one.host != nullptr || one.device != nullptr ? 1 : 0);
  }
  access.by_pointer.resize(own.size() * own.size());
  control.allgather(std::as_bytes(std::span(own)),
                    std::as_writable_bytes(std::span(access.by_pointer)));
  access.messages =
      !std::ranges::all_of(access.by_pointer, [](uint8_t reads) { return reads != 0; });
  access.one_sided = access.messages && remote_ != nullptr && device < 0;
  for (uint32_t r = 0; r < size() && access.one_sided; ++r) {
    access.pages[r].num_pages = known_[r].num_pages;
  }
  return access;
}

uint64_t Peers::pack_below(transport::Transport& control) {
  if (!pack_below_) {
    uint32_t owner = (rank_ + 1) % size();
    for (uint32_t steps = 1; steps < size() && nodes_[owner] == nodes_[rank_]; ++steps) {
      owner = (owner + 1) % size();
    }
    owner = owner == rank_ ? (rank_ + 1) % size() : owner;  // all are on one node
    pack_below_ = transport::agree_on_pack_below(control, owner);
    if (rank_ == 0) {
      base::log(base::Level::kInfo,
                base::cat("[transport] ", control.name(), ": owners pack runs of rows below ",
                          *pack_below_, " bytes (GEAR_PACK_BELOW, else measured)"));
    }
  }
  return *pack_below_;
}

// Named memory is mapped once, and page-locked when a GPU is to read it; another GPU's memory is
// mapped for each GPU that reads it.
const memory::Region* Peers::map(uint32_t rank, int device) {
  const memory::RegionAddress& address = known_[rank].region;
  if (nodes_[rank] != nodes_[rank_] || !memory::mappable(address)) {
    return nullptr;
  }
  const bool on_gpu = address.tier == memory::Tier::kDevice;
  for (Mapped& one : mapped_) {
    if (one.rank != rank || (on_gpu && one.device != device)) {
      continue;
    }
    if (!on_gpu && device >= 0 && one.region && one.region->tier() == memory::Tier::kShared) {
      one.region = memory::pin_peer_region(std::move(one.region), device);
    }
    return one.region.get();
  }
  std::unique_ptr<memory::Region> region;
  try {
    region = memory::open_peer_region(address, device);
  } catch (const base::InvalidArgument& error) {
    base::log(base::Level::kWarning,
              base::cat("[group] rank ", rank, " sends its rows to rank ", rank_,
                        ", which cannot read them in place: ", error.what()));
  }
  return mapped_.emplace_back(rank, device, std::move(region)).region.get();
}

void Peers::update(std::span<const int64_t> ids, std::span<const float> priorities) {
  shard_->check_process("update");
  GEAR_CHECK(ids.size() == priorities.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint32_t owner = store::StepId::unpack(ids[i]).owner;
    store::check_update(ids[i], priorities[i], i, owner, owner < size() ? num_slots(owner) : 0);
  }
  auto lock = shard_->lock();
  shard_->wait_for_gpu(lock, [this] { return !device_updates_ || device_updates_->has_room(); });
  if (!device_updates_) {
    check_room(ids.size(), kept_);
    put_into_outbox(ids, priorities);
    return;
  }
  device_updates_->raise_failed();
  check_room(ids.size(), device_updates_->kept());
  device_updates_->keep(ids.data(), priorities.data(), ids.size(), false, 0);
}

void Peers::update_from_device(const int64_t* ids, const float* priorities, uint64_t count,
                               uintptr_t stream) {
  shard_->check_process("update");
  {
    const auto lock = shard_->lock();
    if (device_updates_) {
      device_updates_->raise_failed();
      check_room(count, device_updates_->kept());
      device_updates_->keep(ids, priorities, count, true, stream);
      return;
    }
  }
  update(base::fetched(ids, count, stream), base::fetched(priorities, count, stream));
}

void Peers::check_room(uint64_t count, uint64_t kept) const {
  if (count <= most_kept_ && kept <= most_kept_ - count) {
    return;
  }
  throw base::OutOfMemory(
      base::cat("[group] ", count, " more priorities beside ", kept,
                " that other ranks have yet to hear ", "of: ", most_kept_,
                " at most are kept; call next of a loader that all ranks draw with, which ",
                "tells them (one of remote='pull' does not), on every rank between updates"));
}

void Peers::put_into_outbox(std::span<const int64_t> ids, std::span<const float> priorities) {
  kept_ += ids.size();
  for (size_t i = 0; i < ids.size(); ++i) {
    outbox_[store::StepId::unpack(ids[i]).owner].push_back({ids[i], priorities[i]});
  }
}

void Peers::set_device_updates(std::shared_ptr<DeviceUpdates> updates) {
  const auto lock = shard_->lock();
  GEAR_CHECK(!device_updates_);
  std::vector<int64_t> ids;
  std::vector<float> priorities;
  for (std::vector<Update>& to_owner : outbox_) {
    for (const Update& one : to_owner) {
      ids.push_back(one.id);
      priorities.push_back(one.priority);
    }
    to_owner.clear();
  }
  kept_ = 0;
  device_updates_ = std::move(updates);
  device_updates_->keep(ids.data(), priorities.data(), ids.size(), false, 0);
}

uint64_t Peers::num_kept() {
  const auto lock = shard_->lock();
  return kept_ + (device_updates_ ? device_updates_->kept() : 0);
}

std::vector<store::KeptUpdate> Peers::kept_updates() {
  const auto lock = shard_->lock();
  std::vector<Update> kept;
  for (const std::vector<Update>& to_owner : outbox_) {
    kept.insert(kept.end(), to_owner.begin(), to_owner.end());
  }
  if (device_updates_) {
    std::vector<int64_t> ids;
    std::vector<float> priorities;
    device_updates_->take(ids, priorities);
    device_updates_->keep(ids.data(), priorities.data(), ids.size(), false, 0);
    for (size_t i = 0; i < ids.size(); ++i) {
      kept.push_back({ids[i], priorities[i]});
    }
  }
  return kept;
}

void Peers::exchange_updates(transport::Transport& control) {
  std::vector<std::vector<Update>> sent(size());
  std::exception_ptr error;  // of a GPU: the others wait for this rank's part all the same
  try {
    const auto lock = shard_->lock();
    if (device_updates_) {
      std::vector<int64_t> ids;
      std::vector<float> priorities;
      device_updates_->take(ids, priorities);
      put_into_outbox(ids, priorities);
    }
    sent.swap(outbox_);
    kept_ = 0;
  } catch (...) {
    error = std::current_exception();
  }
  const auto arrived = transport::exchange_lists(control, sent);
  for (uint32_t r = 0; r < size(); ++r) {
    apply(r, arrived[r]);
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

void Peers::apply(uint32_t from, std::span<const Update> updates) {
  if (updates.empty()) {
    return;
  }
  std::vector<int64_t> ids;
  std::vector<float> priorities;
  for (const Update& one : updates) {
    ids.push_back(one.id);
    priorities.push_back(one.priority);
  }
  try {
    shard_->update(ids, priorities);
  } catch (const base::InvalidArgument& error) {
    // Of another buffer of the same size; here it would end a rank that did nothing wrong.
    base::log(base::Level::kWarning, base::cat("[group] ", updates.size(), " priorities from rank ",
                                               from, " were not applied: ", error.what()));
  }
}

}  // namespace gear::group
