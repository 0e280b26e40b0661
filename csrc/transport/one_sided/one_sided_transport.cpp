#include "transport/one_sided/one_sided_transport.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "transport/on_all.h"
#include "transport/one_sided/forwarding.h"
#include "transport/one_sided/remote_memory.h"
#include "transport/one_sided/run_reader.h"
#include "transport/typed.h"

namespace gear::transport {
namespace {

// What every rank gives to all. Collective.
template <class T>
std::vector<std::vector<T>> gather_lists(Transport& messages, const std::vector<T>& mine) {
  return exchange_lists(messages, std::vector<std::vector<T>>(messages.size(), mine));
}

// What a rank says of itself is as long as what this one does; of `ranks`, or where that is empty
// of all.
void check_lengths(const std::vector<Opaque>& all, size_t own, std::span<const uint8_t> ranks) {
  for (uint32_t r = 0; r < all.size(); ++r) {
    if ((ranks.empty() || ranks[r] != 0) && all[r].size() != own) {
      throw base::TransportError(base::cat("rank ", r, " introduces itself in ", all[r].size(),
                                           " bytes, this one in ", own, ": ranks of one group ",
                                           "must run the same build, with the same options"));
    }
  }
}

// A connection has two ends: both are made where either rank reads of the other.
std::vector<uint8_t> partners_of(Transport& control, std::span<const uint8_t> from) {
  GEAR_CHECK(from.empty() || from.size() == control.size());
  std::vector<uint8_t> partners(control.size(), from.empty() ? 1 : 0);
  std::ranges::copy(from, partners.begin());
  partners[control.rank()] = 0;
  const std::vector<uint8_t> readers = alltoall(control, partners);
  for (uint32_t r = 0; r < partners.size(); ++r) {
    partners[r] |= readers[r];
  }
  return partners;
}

class OneSidedMemory final : public RemoteMemory {
 public:
  // Collective over `messages`.
  OneSidedMemory(std::shared_ptr<const Device> device, std::unique_ptr<Exposed> exposed,
                 std::shared_ptr<Failure> failure, std::shared_ptr<Transport> messages)
      : device_(std::move(device)),
        failure_(std::move(failure)),
        messages_(std::move(messages)),
        exposed_(std::move(exposed)) {
    addresses_ = gather_lists(*messages_, exposed_->address());
    hear_of_chunks();
  }

  std::unique_ptr<RemoteReader> connect(Transport& control,
                                        std::span<const uint8_t> from) override {
    const std::vector<uint8_t> partners = partners_of(control, from);
    std::unique_ptr<Lanes> lanes;
    agree(control, device_->kind(),
          failure_of([&] { lanes = device_->lanes(control.timeout_s(), addresses_, partners); }));
    std::vector<Opaque> introductions(control.size());
    size_t length = 0;
    for (uint32_t r = 0; r < control.size(); ++r) {
      if (partners[r] != 0) {
        introductions[r] = lanes->introduction(r);
        length = introductions[r].size();
      }
    }
    const auto others = exchange_lists(control, introductions);
    // Once all have connected, reads may come.
    agree(control, device_->kind(), failure_of([&] {
            check_lengths(others, length, partners);
            lanes->connect(others);
          }));
    return std::make_unique<RunReader>(
        std::move(lanes), shards_,
        RunReader::Options{control.rank(), control.timeout_s(), std::string(device_->kind()),
                           std::string(device_->tool()), failure_, messages_});
  }

  void renew(Bytes memory) override {
    agree(*messages_, device_->kind(), failure_of([&] { exposed_->renew(memory); }));
    hear_of_chunks();
  }

 private:
  void hear_of_chunks() {
    const auto chunks = gather_lists(*messages_, exposed_->chunked().chunks());
    agree(*messages_, device_->kind(), failure_of([&] {
      shards_->clear();
      for (uint32_t r = 0; r < chunks.size(); ++r) {
        shards_->push_back(memory_of(r, chunks[r]));
      }
    }));
  }

  std::shared_ptr<const Device> device_;
  std::shared_ptr<Failure> failure_;
  std::shared_ptr<Transport> messages_;
  std::unique_ptr<Exposed> exposed_;
  std::vector<Opaque> addresses_;  // by rank
  std::shared_ptr<std::vector<ChunkedMemory>> shards_ =
      std::make_shared<std::vector<ChunkedMemory>>();  // likewise; readers have it
};

class OneSidedTransport final : public Forwarding {
 public:
  OneSidedTransport(std::shared_ptr<Transport> messages, std::shared_ptr<const Device> device,
                    std::shared_ptr<Failure> failure, bool required)
      : Forwarding(*messages),
        messages_(std::move(messages)),
        device_(std::move(device)),
        failure_(std::move(failure)),
        required_(required) {}

  std::string_view name() const noexcept override { return device_->kind(); }

  std::unique_ptr<Transport> duplicate() override {
    return std::make_unique<OneSidedTransport>(messages_->duplicate(), device_, failure_,
                                               required_);
  }

  std::unique_ptr<RemoteMemory> expose(Bytes memory) override {
    std::unique_ptr<Exposed> exposed;
    const std::string failed =
        failures(*messages_, name(), failure_of([&] { exposed = device_->expose(memory); }));
    if (failed.empty()) {
      return std::make_unique<OneSidedMemory>(device_, std::move(exposed), failure_, messages_);
    }
    if (required_) {
      throw base::TransportError(failed);
    }
    base::log(base::Level::kWarning, base::cat(failed, ": nobody reads that memory one-sided"));
    return nullptr;
  }

 private:
  std::shared_ptr<Transport> messages_;
  std::shared_ptr<const Device> device_;
  std::shared_ptr<Failure> failure_;
  bool required_;
};

}  // namespace

std::unique_ptr<Transport> make_one_sided(
    std::shared_ptr<Transport> messages, std::string_view kind,
    const std::function<std::shared_ptr<const Device>()>& open, std::shared_ptr<Failure> failure,
    bool required) {
  std::shared_ptr<const Device> device;
  agree(*messages, kind, failure_of([&] { device = open(); }));
  const auto addresses = gather_lists(*messages, device->address());
  std::string obstacle;
  const std::string failed = failure_of([&] {
    check_lengths(addresses, device->address().size(), {});
    for (uint32_t r = 0; r < addresses.size() && obstacle.empty(); ++r) {
      obstacle = device->obstacle(r, addresses[r]);
    }
  });
  agree(*messages, kind, failed.empty() ? obstacle : failed);
  return std::make_unique<OneSidedTransport>(std::move(messages), std::move(device),
                                             std::move(failure), required);
}

}  // namespace gear::transport
