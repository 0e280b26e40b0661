#include "group/peers/peers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "memory/shared/made_up_name.h"
#include "store/id.h"
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
      known_(control_->size()) {
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
  std::vector<memory::RegionAddress> addresses;
  std::vector<uint64_t> num_pages;
  std::vector<uint64_t> slots;
  for (const Known& one : known_) {
    addresses.push_back(one.region);
    num_pages.push_back(one.num_pages);
    slots.push_back(one.num_pages * one.page_steps);
  }
  mappings_.emplace(shard_->region(), rank_, std::move(addresses), std::move(num_pages), nodes_);
  outbox_.emplace(shard_, std::move(slots));
  if (shard_->options().tier != memory::Tier::kDevice) {
    static_cast<void>(mappings_->pages(-1));
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

// Ranks of one node alone may map each other's pages.
PageAccess Peers::agree_on_access(int device, transport::Transport& control) {
  PageAccess access;
  transport::on_all(control, [&] { access.pages = mappings_->pages(device); });
  std::vector<uint8_t> maps(size());
  std::vector<transport::ConstBytes> to(size());
  std::vector<uint64_t> sizes(size());
  for (uint32_t r = 0; r < size(); ++r) {
    maps[r] = access.pages[r].mapped() ? 1 : 0;
    if (nodes_[r] == nodes_[rank_]) {
      to[r] = std::as_bytes(std::span(&maps[r], 1));
      sizes[r] = 1;
    }
  }
  access.mapped_by.resize(size());
  const std::span<const transport::ConstBytes> told = control.exchange(to, sizes);
  for (uint32_t r = 0; r < size(); ++r) {
    access.mapped_by[r] = !told[r].empty() && told[r][0] != std::byte{0} ? 1 : 0;
  }
  const auto all = [](const std::vector<uint8_t>& ranks) {
    return std::ranges::all_of(ranks, [](uint8_t one) { return one != 0; });
  };
  if (all(transport::allgather(control, static_cast<uint8_t>(all(maps))))) {
    return access;
  }
  access.others = remote_ != nullptr && device < 0 ? Way::kRead : Way::kMessage;
  for (uint32_t r = 0; r < size() && access.others == Way::kRead; ++r) {
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

}  // namespace gear::group
