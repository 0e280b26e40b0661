#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/region.h"
#include "transport/failure.h"
#include "transport/one_sided/device.h"
#include "transport/one_sided/remote_memory.h"

namespace gear::transport {

/// Reads by chains over lanes:
///
///     lane 0 of rank 1   [read → read → ... → read]   [read → ... → read]
///     lane 1 of rank 1   [read → ... → read]
///     lane 0 of rank 2   ...
///
/// into memory of its own, which grows with what is asked for.
class RunReader final : public RemoteReader {
 public:
  static constexpr uint32_t kChain = 32;  ///< reads

  struct Options {
    uint32_t rank = 0;
    double timeout_s = 300;
    std::string kind;  ///< "verbs"
    std::string tool;  ///< as Device has it
    std::shared_ptr<Failure> failure;
    std::shared_ptr<Transport> messages;  ///< by which it hears that the group has failed
  };

  /// What every rank exposes, as of the last time that they told.
  using Shards = std::shared_ptr<const std::vector<ChunkedMemory>>;

  /// `lanes` are connected with `shards`.
  RunReader(std::unique_ptr<Lanes> lanes, Shards shards, Options options);

  ConstBytes read(std::span<const RemoteRead> reads, uint64_t bytes) override;

 private:
  using Clock = std::chrono::steady_clock;

  /// What is yet to be posted of the reads from one owner.
  struct Rest {
    uint32_t owner;
    std::span<const RemoteRead> reads;
    uint64_t done = 0;  ///< bytes of the first one

    void skip(uint64_t bytes);
  };

  void look() const;
  void make_room(uint64_t bytes);
  void post_all(std::span<const RemoteRead> reads, Clock::time_point start);
  bool post_chain(Rest& rest);
  void fill_chain(Rest rest, uint32_t most);
  bool take_ended();
  bool find_lane(uint32_t owner, uint32_t& lane);
  [[noreturn]] void fail(const Ended& ended);
  [[noreturn]] void fail_late(std::span<const Rest> rests);

  Shards shards_;
  Options options_;
  std::unique_ptr<memory::Region> landing_;
  std::unique_ptr<Lanes> lanes_;  ///< gone before what their reads fill
  ChunkedMemory landing_chunks_;
  std::vector<uint32_t> under_way_;  ///< reads, by lane
  std::vector<uint32_t> next_lane_;  ///< by owner
  std::vector<Piece> chain_;
  uint32_t open_ = 0;   ///< reads under way
  std::string failed_;  ///< why this is of no use any more
};

}  // namespace gear::transport
