#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/failure.h"
#include "transport/transport.h"

namespace gear::transport {

/// Named as `far`: control goes inside the nodes first, then between one rank a node. The first
/// rank of a node, which is its lowest, is its head:
///
///     allgather            near: all of a node to each other
///                          far:  heads to each other, ceil(log2 nodes) rounds where far
///                          disseminates near: the head's to all of its node
///     exchange             near: to ranks of the node; far: to the others, one message a pair
///       of unknown sizes   before that, near: to the head what its ranks have for whom; far: heads
///                          to heads, ceil(log2 nodes) rounds; near: to each what will come
///
/// So a rank that is no head has messages of its own rows alone, and a head 2 log2 nodes partners
/// more. Far blocks of an allgather are as wide as the largest node. A call costs R entries of 8
/// bytes or so beside what it moves.
///
/// A rank that waits looks every base::kInterruptEvery at far too, so that words of other nodes
/// reach it, and what ends one part ends all. Who is missing is found by a roll call over far
/// (Transport::roll_call), in whichever part the rank is; where far has none, the parts' own
/// time-outs find it, one node at a time.
///
/// near: between the ranks of this node, in the order of their ranks in the group, by which its
/// errors name them; null where there is one only. far: between all ranks. Both have
/// by_node_limit_s of the time-out, and `failure`. nodes: of every rank; any numbers.
///
/// Throws InvalidArgument where these do not fit together.
std::unique_ptr<Transport> make_by_node(std::unique_ptr<Transport> near,
                                        std::unique_ptr<Transport> far,
                                        std::span<const uint32_t> nodes, double timeout_s,
                                        std::shared_ptr<Failure> failure);

/// The time-out of the parts: late enough that the roll call finds out first who is missing.
double by_node_limit_s(double timeout_s);

}  // namespace gear::transport
