#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "base/names.h"
#include "base/numbers/curve.h"
#include "transport/transport.h"

namespace gear::transport {

/// What of a transport is counted.
enum class Counted : uint8_t { kAllgather, kExchange, kRead, kDuplicate };
inline constexpr base::Names<Counted, 4> kCounted{"[emu] call",
                                                  {"allgather", "exchange", "read", "duplicate"}};

/// What the calls of one kind came to, on the ranks that share a Traffic.
///
/// Messages and bytes are those that a rank gives others. An allgather has ceil(log2 R) messages,
/// by which messages/ has all ranks' bytes passed on; an exchange one for each other rank where
/// nobody knows the sizes, else one for each that gets anything. A read has one for each owner,
/// whose bytes it takes.
struct Tally {
  uint64_t calls = 0;
  uint64_t messages = 0;
  uint64_t bytes = 0;
  std::array<double, base::Curve::kNumBases> seconds{};  ///< that the curves say, by basis
};

/// The tallies of one emulated transport, its duplicates and its reads, or of several. Any thread.
class Traffic {
 public:
  Tally of(Counted call) const;
  void add(Counted call, uint64_t messages, uint64_t bytes, const base::Curve::Reading& takes);

 private:
  mutable std::mutex mutex_;
  std::array<Tally, 4> tallies_;
};

/// What operations take among the ranks of a transport, by bytes as gear.emu.OPERATIONS counts
/// them. One of nothing takes no time.
struct EmulatedCurves {
  base::Curve all_gather;
  base::Curve all_to_all;
  base::Curve send;
};

struct EmulatedOptions {
  EmulatedCurves curves;
  std::shared_ptr<Traffic> traffic;
  /// What a call does with its seconds before it returns, beside counting them: wait_out, or what a
  /// test has in its place. Empty: nothing. Duplicates take it along.
  std::function<void(Transport& inner, double seconds)> hold = nullptr;
};

/// "emulated": the calls of `inner`, which are counted, and what they take by the curves: as if the
/// ranks lay on other links. Who calls gets what `inner` gives, to the bit.
///
///     allgather     an all_gather of the bytes of all ranks
///     exchange      an all_to_all of ranks that give as much as this one gives or gets, whichever
///       and read    is more
///     duplicate     nothing
///
/// or the messages of the call one behind the other, by send, where that is less: of an exchange or
/// a read that has fewer than one for each other rank.
///
/// What `inner` takes itself is not taken off. The first rank to come waits in `inner` for the
/// last; a hold begins when that is over, so that calls of all ranks end together where they give
/// alike.
std::unique_ptr<Transport> make_emulated(std::shared_ptr<Transport> inner, EmulatedOptions options);

/// Returns when so many seconds are over, and some microseconds. Throws TransportError where the
/// group has failed. An interrupt is heard behind it: the others have had this call, and go on.
void wait_out(Transport& inner, double seconds);

}  // namespace gear::transport
