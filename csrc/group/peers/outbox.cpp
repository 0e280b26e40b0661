#include "group/peers/outbox.h"

#include <exception>
#include <utility>

#include "base/errors.h"
#include "base/gpu/devices.h"
#include "base/log.h"
#include "store/id.h"
#include "store/index/update_check.h"
#include "transport/typed.h"

namespace gear::group {

Outbox::Outbox(std::shared_ptr<store::Shard> shard, std::vector<uint64_t> slots)
    : shard_(std::move(shard)), slots_(std::move(slots)), to_(slots_.size()) {
  for (const uint64_t one : slots_) {
    most_kept_ += 2 * one;
  }
}

void Outbox::update(std::span<const int64_t> ids, std::span<const float> priorities) {
  shard_->check_process("update");
  GEAR_CHECK(ids.size() == priorities.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint32_t owner = store::StepId::unpack(ids[i]).owner;
    store::check_update(ids[i], priorities[i], i, owner, owner < slots_.size() ? slots_[owner] : 0);
  }
  auto lock = shard_->lock();
  shard_->wait_for_gpu(lock, [this] { return !device_updates_ || device_updates_->has_room(); });
  if (!device_updates_) {
    check_room(ids.size(), num_to_);
    put(ids, priorities);
    return;
  }
  device_updates_->raise_failed();
  check_room(ids.size(), device_updates_->kept());
  device_updates_->keep(ids.data(), priorities.data(), ids.size(), false, 0);
}

void Outbox::update_from_device(const int64_t* ids, const float* priorities, uint64_t count,
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

void Outbox::check_room(uint64_t count, uint64_t kept) const {
  if (count <= most_kept_ && kept <= most_kept_ - count) {
    return;
  }
  throw base::OutOfMemory(
      base::cat("[group] ", count, " more priorities beside ", kept,
                " that other ranks have yet to hear ", "of: ", most_kept_,
                " at most are kept; call next of a loader that all ranks draw with, which ",
                "tells them (one of remote='pull' does not), on every rank between updates"));
}

void Outbox::put(std::span<const int64_t> ids, std::span<const float> priorities) {
  num_to_ += ids.size();
  for (size_t i = 0; i < ids.size(); ++i) {
    to_[store::StepId::unpack(ids[i]).owner].push_back({ids[i], priorities[i]});
  }
}

void Outbox::set_device_updates(std::shared_ptr<DeviceUpdates> updates) {
  const auto lock = shard_->lock();
  GEAR_CHECK(!device_updates_);
  std::vector<int64_t> ids;
  std::vector<float> priorities;
  for (std::vector<Update>& to_owner : to_) {
    for (const Update& one : to_owner) {
      ids.push_back(one.id);
      priorities.push_back(one.priority);
    }
    to_owner.clear();
  }
  num_to_ = 0;
  device_updates_ = std::move(updates);
  device_updates_->keep(ids.data(), priorities.data(), ids.size(), false, 0);
}

uint64_t Outbox::num_kept() {
  const auto lock = shard_->lock();
  return num_to_ + (device_updates_ ? device_updates_->kept() : 0);
}

std::vector<store::KeptUpdate> Outbox::kept() {
  const auto lock = shard_->lock();
  std::vector<Update> kept;
  for (const std::vector<Update>& to_owner : to_) {
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

void Outbox::exchange(transport::Transport& control) {
  std::vector<std::vector<Update>> sent(slots_.size());
  std::exception_ptr error;  // of a GPU: the others wait for this rank's part all the same
  try {
    const auto lock = shard_->lock();
    if (device_updates_) {
      std::vector<int64_t> ids;
      std::vector<float> priorities;
      device_updates_->take(ids, priorities);
      put(ids, priorities);
    }
    sent.swap(to_);
    num_to_ = 0;
  } catch (...) {
    error = std::current_exception();
  }
  const auto arrived = transport::exchange_lists(control, sent);
  for (uint32_t r = 0; r < slots_.size(); ++r) {
    apply(r, arrived[r]);
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

void Outbox::apply(uint32_t from, std::span<const Update> updates) {
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
