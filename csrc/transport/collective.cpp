#include "transport/collective.h"

#include <unistd.h>

#include <algorithm>

#include "base/errors.h"

namespace gear::transport {
namespace {

constexpr uint32_t kMaxRanks = 65536;
constexpr double kMaxTimeout = 1e8;  // some years: sums with the clock stay in range
constexpr size_t kMaxNamed = 8;

}  // namespace

void check_membership(uint32_t rank, uint32_t size, double timeout_s) {
  if (size == 0 || size > kMaxRanks) {
    throw base::InvalidArgument(
        base::cat("[transport] ", size, " ranks: 1 to ", kMaxRanks, " ranks are allowed"));
  }
  if (rank >= size) {
    throw base::InvalidArgument(base::cat("[transport] rank ", rank, " of ", size, " ranks: 0 to ",
                                          size - 1, " is allowed"));
  }
  check_timeout(timeout_s);
}

void check_timeout(double timeout_s) {
  if (!(timeout_s > 0 && timeout_s <= kMaxTimeout)) {
    throw base::InvalidArgument(base::cat("[transport] a time-out of ", timeout_s,
                                          " s: more than 0, at most ", kMaxTimeout,
                                          " s are allowed"));
  }
}

void check_allgather(uint32_t size, ConstBytes mine, Bytes all) {
  if (all.size() != size * mine.size()) {
    throw base::InvalidArgument(base::cat("[transport] allgather of ", mine.size(),
                                          " bytes a rank into ", all.size(), " bytes: give ", size,
                                          " times as many"));
  }
}

void check_exchange(uint32_t rank, uint32_t size, std::span<const ConstBytes> to,
                    std::span<const uint64_t> sizes) {
  if (to.size() != size || (!sizes.empty() && sizes.size() != size)) {
    throw base::InvalidArgument(
        base::cat("[transport] exchange with ", to.size(), " entries to send and ", sizes.size(),
                  " sizes: give an entry for each of ", size, " ranks, and as many sizes or none"));
  }
  if (!is_expected(sizes, rank, to[rank].size())) {
    throw base::InvalidArgument(base::cat("[transport] exchange: rank ", rank, " sends itself ",
                                          to[rank].size(), " bytes and expects ", sizes[rank],
                                          ": give the size of its entry"));
  }
}

void check_sparse(uint32_t rank, uint32_t size, std::span<const ConstBytes> to,
                  std::span<const uint8_t> from) {
  if (to.size() != size || from.size() != size) {
    throw base::InvalidArgument(base::cat("[transport] exchange_sparse with ", to.size(),
                                          " entries to send and ", from.size(),
                                          " ranks to hear of: give one for each of ", size,
                                          " ranks, of which this one is rank ", rank));
  }
}

std::vector<uint64_t> some_sizes(uint32_t rank, std::span<const ConstBytes> to,
                                 std::span<const uint8_t> from) {
  std::vector<uint64_t> sizes(from.size());
  for (uint32_t r = 0; r < from.size(); ++r) {
    sizes[r] = from[r] != 0 ? kSome : 0;
  }
  sizes[rank] = to[rank].size();
  return sizes;
}

std::string ranks_text(std::span<const uint32_t> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const size_t named = ranks.size() > kMaxNamed + 1 ? kMaxNamed : ranks.size();
  for (size_t i = 0; i < named; ++i) {
    const bool last = i + 1 == ranks.size();
    text += base::cat(i == 0 ? "" : last ? " and " : ", ", ranks[i]);
  }
  return named == ranks.size() ? text : base::cat(text, " and ", ranks.size() - named, " more");
}

std::string_view call_name(Call call) {
  switch (call) {
    case Call::kStart:
      return "the start of the transport";
    case Call::kAllgather:
      return "allgather";
    case Call::kExchange:
      return "exchange";
    case Call::kDuplicate:
      return "duplicate";
    case Call::kGaveUp:
      return "no call, since it has given up";
  }
  return "a call that this version does not know";
}

std::string late_text(std::span<const uint32_t> missing, std::string_view call, double timeout_s) {
  return base::cat("[transport] ", ranks_text(missing), " did not take part in ", call, " within ",
                   timeout_s, " s: see what ", missing.size() == 1 ? "it does" : "they do",
                   ", or set a longer time-out");
}

std::string left_text(std::string_view who, std::string_view call) {
  return base::cat("[transport] ", who, " closed its loader or ended while others wait for it in ",
                   call, ": look at its output");
}

std::string ended_text(std::string_view who, uint32_t rank, std::string_view call) {
  return base::cat("[transport] ", who, " has ended: rank ", rank, " waits for it in ", call,
                   "; its own output says why");
}

std::string interrupted_text(uint32_t rank, std::string_view call) {
  return base::cat("[transport] rank ", rank, " (pid ", ::getpid(), ") was interrupted in ", call,
                   ": start the run again from its last checkpoint");
}

std::string no_memory_text(uint32_t rank, std::string_view call) {
  return base::cat("[transport] rank ", rank, " (pid ", ::getpid(), ") has no memory left for ",
                   call, ": give it more, or send less at a time");
}

std::string other_call_text(uint32_t other, std::string_view its_call, uint32_t rank,
                            std::string_view call) {
  return base::cat("[transport] rank ", other, " is in ", its_call, " while rank ", rank, " is in ",
                   call, ": all ranks must make the same calls in the same order");
}

std::string other_size_text(uint32_t sender, uint64_t sent, uint32_t receiver, uint64_t expected,
                            std::string_view call) {
  return other_size_text(sender, std::to_string(sent), receiver, expected, call);
}

std::string other_size_text(uint32_t sender, std::string_view sent, uint32_t receiver,
                            uint64_t expected, std::string_view call) {
  return base::cat("[transport] ", call, ": rank ", sender, " gives ", sent, " bytes, rank ",
                   receiver, " expects ", expected == kSome ? "some" : std::to_string(expected),
                   " of it: both must know the same size");
}

}  // namespace gear::transport
