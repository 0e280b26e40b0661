#pragma once

#include <cstdint>
#include <string_view>

#include "transport/collective.h"

namespace gear::transport::messages {

/// What a frame is of. The first ones are calls of all ranks.
enum class FrameKind : uint16_t {
  kAllgather = static_cast<uint16_t>(Call::kAllgather),
  kExchange = static_cast<uint16_t>(Call::kExchange),
  kDuplicate = static_cast<uint16_t>(Call::kDuplicate),
  kGaveUp = 16,  ///< words that end the group
  kAsk = 17,     ///< of a rank that waits in call `call`: are you in one, and for whom do you wait?
  kAnswer = 18,  ///< yes, for these ranks (uint32_t each)
  kLeft = 19,    ///< this rank makes no more calls
};

/// Of a call.
inline std::string_view frame_name(FrameKind kind) { return call_name(static_cast<Call>(kind)); }

/// What every message of the engine begins with. A message of a rank to another is cut into frames:
///
///     [FrameHead | bytes offset .. offset + bytes of the message]
///
/// which may come in any order. Native byte order: all ranks are of one build and kind of machine.
struct FrameHead {
  static constexpr uint16_t kVersion = 1;

  uint64_t token;  ///< of the launch: what has another one is dropped
  uint16_t version;
  FrameKind kind;
  uint32_t source;   ///< the sender's rank
  uint64_t channel;  ///< of one transport of each rank
  uint64_t call;     ///< of the channel: 1, 2, ..
  uint64_t offset;
  uint64_t total;  ///< bytes of the message
  uint32_t round;  ///< of the call
  uint32_t bytes;  ///< behind this head
};
static_assert(sizeof(FrameHead) == 56);

}  // namespace gear::transport::messages
