#include "transport/emulated.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/threads/interrupt.h"
#include "transport/by_node/roll_call.h"
#include "transport/one_sided/forwarding.h"
#include "transport/one_sided/remote_memory.h"

namespace gear::transport {
namespace {

using base::Curve;

// What a rank has to do with others in a call, in one direction.
struct Load {
  uint64_t messages = 0;
  uint64_t bytes = 0;

  void add(uint64_t more) {
    ++messages;
    bytes += more;
  }
};

// How the calls of one transport, and of what comes of it, are counted.
class Meter {
 public:
  Meter(EmulatedOptions options, uint32_t ranks) : options_(std::move(options)), ranks_(ranks) {}

  const EmulatedOptions& options() const { return options_; }

  // In each round a rank passes on what it has, twice as much as in the one before.
  Load passed_on(uint64_t each) const {
    Load load;
    for (uint64_t distance = 1; distance < ranks_; distance *= 2) {
      load.add(std::min(distance, ranks_ - distance) * each);
    }
    return load;
  }

  Curve::Reading all_gather(uint64_t each) const {
    const Curve::Reading among_all = options_.curves.all_gather.at(each * ranks_);
    Curve::Reading in_turn;
    for (uint64_t distance = 1; distance < ranks_; distance *= 2) {
      const Curve::Reading one =
          options_.curves.send.at(std::min(distance, ranks_ - distance) * each);
      in_turn = {in_turn.seconds + one.seconds, std::max(in_turn.basis, one.basis)};
    }
    return sooner(in_turn, among_all);
  }

  // Of an all_to_all a rank keeps a part: OPERATIONS counts that, too.
  Curve::Reading exchange(const Load& load) const {
    if (load.messages == 0) {
      return {};
    }
    const uint64_t others = ranks_ - 1;
    const uint64_t whole = load.bytes + (load.bytes + others - 1) / others;
    const Curve::Reading among_all = options_.curves.all_to_all.at(whole);
    if (load.messages == others) {
      return among_all;
    }
    Curve::Reading in_turn = options_.curves.send.at(load.bytes / load.messages);
    in_turn.seconds *= static_cast<double>(load.messages);
    return sooner(in_turn, among_all);
  }

  void count(Counted call, const Load& given, const Curve::Reading& takes, Transport& inner) const {
    options_.traffic->add(call, given.messages, given.bytes, takes);
    if (options_.hold && takes.seconds > 0) {
      options_.hold(inner, takes.seconds);
    }
  }

 private:
  static Curve::Reading sooner(const Curve::Reading& one, const Curve::Reading& other) {
    return other.seconds < one.seconds ? other : one;
  }

  EmulatedOptions options_;
  uint64_t ranks_;
};

class EmulatedReader final : public RemoteReader {
 public:
  EmulatedReader(std::unique_ptr<RemoteReader> inner, std::shared_ptr<Transport> transport,
                 const Meter& meter)
      : inner_(std::move(inner)), transport_(std::move(transport)), meter_(meter) {}

  ConstBytes read(std::span<const RemoteRead> reads, uint64_t bytes) override {
    const ConstBytes came = inner_->read(reads, bytes);
    Load taken;
    for (size_t i = 0; i < reads.size(); ++i) {
      taken.messages += i == 0 || reads[i].owner != reads[i - 1].owner ? 1 : 0;
      taken.bytes += reads[i].bytes;
    }
    meter_.count(Counted::kRead, taken, meter_.exchange(taken), *transport_);
    return came;
  }

 private:
  std::unique_ptr<RemoteReader> inner_;
  std::shared_ptr<Transport> transport_;
  Meter meter_;
};

class EmulatedMemory final : public RemoteMemory {
 public:
  EmulatedMemory(std::unique_ptr<RemoteMemory> inner, std::shared_ptr<Transport> transport,
                 const Meter& meter)
      : inner_(std::move(inner)), transport_(std::move(transport)), meter_(meter) {}

  std::unique_ptr<RemoteReader> connect(Transport& control,
                                        std::span<const uint8_t> from) override {
    return std::make_unique<EmulatedReader>(inner_->connect(control, from), transport_, meter_);
  }
  void renew(Bytes memory) override { inner_->renew(memory); }

 private:
  std::unique_ptr<RemoteMemory> inner_;
  std::shared_ptr<Transport> transport_;
  Meter meter_;
};

// What the transport is made of others for (gather_to and the like) goes by its own allgather and
// exchange, as transport.cpp has it.
class Emulated final : public Forwarding {
 public:
  Emulated(std::shared_ptr<Transport> inner, EmulatedOptions options)
      : Forwarding(*inner), owned_(std::move(inner)), meter_(std::move(options), owned_->size()) {}

  std::string_view name() const noexcept override { return "emulated"; }

  void allgather(ConstBytes mine, Bytes all) override {
    inner_.allgather(mine, all);
    meter_.count(Counted::kAllgather, meter_.passed_on(mine.size()), meter_.all_gather(mine.size()),
                 inner_);
  }

  using Transport::exchange;
  std::span<const ConstBytes> exchange(std::span<const ConstBytes> to,
                                       std::span<const uint64_t> sizes) override {
    return counted(to, inner_.exchange(to, sizes), sizes.empty());
  }

  std::span<const ConstBytes> exchange_sparse(std::span<const ConstBytes> to,
                                              std::span<const uint8_t> from) override {
    return counted(to, inner_.exchange_sparse(to, from), false);
  }

  std::unique_ptr<Transport> duplicate() override {
    std::shared_ptr<Transport> twin = inner_.duplicate();
    meter_.count(Counted::kDuplicate, {}, {}, inner_);
    return std::make_unique<Emulated>(std::move(twin), meter_.options());
  }

  std::unique_ptr<RemoteMemory> expose(Bytes memory) override {
    std::unique_ptr<RemoteMemory> exposed = inner_.expose(memory);
    if (!exposed) {
      return nullptr;
    }
    return std::make_unique<EmulatedMemory>(std::move(exposed), owned_, meter_);
  }

  std::vector<uint32_t> present(double wait_s) override { return inner_.present(wait_s); }
  std::vector<uint32_t> awaited() override { return inner_.awaited(); }
  std::unique_ptr<RollCall> roll_call() override { return inner_.roll_call(); }

 private:
  std::span<const ConstBytes> counted(std::span<const ConstBytes> to,
                                      std::span<const ConstBytes> came, bool sends_each) {
    const Load given = load_of(to, sends_each);
    const Curve::Reading giving = meter_.exchange(given);
    const Curve::Reading getting = meter_.exchange(load_of(came, sends_each));
    meter_.count(Counted::kExchange, given, getting.seconds > giving.seconds ? getting : giving,
                 inner_);
    return came;
  }

  // Of entries by rank, without the own one.
  Load load_of(std::span<const ConstBytes> entries, bool sends_each) const {
    Load load;
    for (uint32_t r = 0; r < entries.size(); ++r) {
      if (r != rank() && (sends_each || !entries[r].empty())) {
        load.add(entries[r].size());
      }
    }
    return load;
  }

  std::shared_ptr<Transport> owned_;
  Meter meter_;
};

}  // namespace

Tally Traffic::of(Counted call) const {
  const std::lock_guard lock(mutex_);
  return tallies_[static_cast<size_t>(call)];
}

void Traffic::add(Counted call, uint64_t messages, uint64_t bytes,
                  const base::Curve::Reading& takes) {
  const std::lock_guard lock(mutex_);
  Tally& tally = tallies_[static_cast<size_t>(call)];
  ++tally.calls;
  tally.messages += messages;
  tally.bytes += bytes;
  if (takes.basis >= 0) {
    tally.seconds[static_cast<size_t>(takes.basis)] += takes.seconds;
  }
}

std::unique_ptr<Transport> make_emulated(std::shared_ptr<Transport> inner,
                                         EmulatedOptions options) {
  return std::make_unique<Emulated>(std::move(inner), std::move(options));
}

void wait_out(Transport& inner, double seconds) {
  using Clock = std::chrono::steady_clock;
  // A sleeper wakes so much late, or more: see process_group/src/emu/wakes.h.
  constexpr std::chrono::microseconds kSpin{50};
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
  for (auto now = Clock::now(); now < end; now = Clock::now()) {
    if (end - now <= kSpin) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(
        std::min<Clock::duration>(end - now - kSpin, base::kInterruptEvery));
    inner.look();
  }
}

}  // namespace gear::transport
