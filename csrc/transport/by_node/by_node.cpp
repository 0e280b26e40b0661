#include "transport/by_node/by_node.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <utility>

#include "base/errors.h"
#include "base/threads/interrupt.h"
#include "transport/by_node/node_places.h"
#include "transport/by_node/roll_call.h"
#include "transport/collective.h"
#include "transport/on_all.h"

namespace gear::transport {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// Of more ranks, not each asks for all; they hear from the head of their node.
constexpr uint32_t kAskAll = 64;
constexpr double kRollCallLasts = 5;    // s
constexpr double kRollCallShare = 0.5;  // of the time-out, that it begins earlier

Clock::duration in_clock(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
}

void copy_to(ConstBytes source, Bytes target) {
  if (!source.empty()) {
    std::memcpy(target.data(), source.data(), source.size());
  }
}

class ByNode final : public Transport {
 public:
  ByNode(std::unique_ptr<Transport> near, std::unique_ptr<Transport> far,
         std::shared_ptr<const NodePlaces> places, double timeout_s,
         std::shared_ptr<Failure> failure)
      : near_(std::move(near)),
        far_(std::move(far)),
        places_(std::move(places)),
        timeout_s_(timeout_s),
        failure_(std::move(failure)),
        roll_call_(far_->roll_call()),
        look_([this] { look_around(); }),
        node_(places_->node_of(far_->rank())),
        spans_(far_->size()) {}

  std::string_view name() const noexcept override { return far_->name(); }
  uint32_t rank() const noexcept override { return far_->rank(); }
  uint32_t size() const noexcept override { return far_->size(); }
  double timeout_s() const noexcept override { return timeout_s_; }
  void set_timeout_s(double timeout_s) override;

  void look() override {
    far_->look();  // lets its messages leave first
    if (near_) {
      near_->look();
    }
  }

  void allgather(ConstBytes mine, Bytes all) override;
  using Transport::exchange;
  std::span<const ConstBytes> exchange(std::span<const ConstBytes> to,
                                       std::span<const uint64_t> sizes) override;
  std::span<const ConstBytes> exchange_sparse(std::span<const ConstBytes> to,
                                              std::span<const uint8_t> from) override;
  std::unique_ptr<Transport> duplicate() override;
  std::vector<uint32_t> awaited() override;

 private:
  /// In which part a call waits, and whether it can only for ranks that have not come to it.
  enum class Waits { kNearForAll, kNear, kFarForAll, kFar };

  bool is_head() const { return places_->place_of(rank()) == 0; }
  std::span<const uint32_t> own_ranks() const { return places_->ranks_of(node_); }

  template <class Body>
  void run(Call call, const Body& body);
  void look_around();

  void gather_between_nodes(ConstBytes mine, Bytes all);
  template <class Expected, class By>
  void pass(std::span<const ConstBytes> to, std::span<const Expected> expected, const By& by);
  std::vector<uint64_t> told_sizes(std::span<const ConstBytes> to);
  std::vector<uint64_t> exchange_blocks(std::span<const uint64_t> rows);

  std::unique_ptr<Transport> near_;
  std::unique_ptr<Transport> far_;
  std::shared_ptr<const NodePlaces> places_;
  double timeout_s_;
  std::shared_ptr<Failure> failure_;
  std::unique_ptr<RollCall> roll_call_;
  std::function<void()> look_;
  uint32_t node_;  ///< of this rank
  std::vector<ConstBytes> spans_;
  std::vector<std::byte> room_;

  // Of the call.
  Call call_ = Call::kStart;
  Clock::time_point begun_;
  Waits waits_ = Waits::kFar;
};

void ByNode::set_timeout_s(double timeout_s) {
  check_timeout(timeout_s);
  timeout_s_ = timeout_s;
  far_->set_timeout_s(by_node_limit_s(timeout_s));
  if (near_) {
    near_->set_timeout_s(by_node_limit_s(timeout_s));
  }
}

template <class Body>
void ByNode::run(Call call, const Body& body) {
  failure_->check();
  call_ = call;
  begun_ = Clock::now();
  const base::LooksInWaits looks(look_);
  if (roll_call_) {
    roll_call_->come();
  }
  try {
    body();
  } catch (const base::TransportError& error) {
    failure_->tell(error.what());
    throw;
  } catch (...) {
    failure_->tell_interrupted(rank(), call_name(call));
    throw;
  }
  if (roll_call_) {
    roll_call_->go();
  }
}

void ByNode::look_around() {
  far_->look();
  if (!roll_call_) {
    return;
  }
  roll_call_->wait_for(awaited());
  const auto lasts = in_clock(std::min(kRollCallLasts, timeout_s_ * kRollCallShare));
  const auto ends = begun_ + in_clock(timeout_s_);
  const auto now = Clock::now();
  const bool heads_first = size() > kAskAll && !is_head();
  if (now < (heads_first ? ends : ends - lasts)) {
    return;
  }
  const std::vector<uint32_t> silent = roll_call_->ask();
  if (now >= ends && !silent.empty()) {
    failure_->tell(late_text(silent, call_name(call_), timeout_s_));
    failure_->check();
  }
}

std::vector<uint32_t> ByNode::awaited() {
  const bool for_all = waits_ == Waits::kNearForAll || waits_ == Waits::kFarForAll;
  const bool near = waits_ == Waits::kNearForAll || waits_ == Waits::kNear;
  std::vector<uint32_t> ranks;
  if (for_all && size() <= kAskAll) {
    for (uint32_t r = 0; r < size(); ++r) {
      ranks.push_back(r);
    }
  } else if (near) {
    for (const uint32_t place : near_->awaited()) {
      ranks.push_back(own_ranks()[place]);
    }
  } else {
    ranks = far_->awaited();
  }
  return ranks;
}

void ByNode::allgather(ConstBytes mine, Bytes all) {
  check_allgather(size(), mine, all);
  run(Call::kAllgather, [&] {
    if (places_->num_nodes() > 1) {
      gather_between_nodes(mine, all);
    } else if (near_) {
      waits_ = Waits::kNearForAll;
      near_->allgather(mine, all);
    } else {
      copy_to(mine, all);
    }
  });
}

// blocks: of the nodes, each with room for the ranks of the widest.
void ByNode::gather_between_nodes(ConstBytes mine, Bytes all) {
  const uint64_t bytes = mine.size();
  const uint64_t block_bytes = places_->widest() * bytes;
  Bytes blocks = all;
  if (!places_->in_order() || all.size() != places_->num_nodes() * block_bytes) {
    room_.resize(places_->num_nodes() * block_bytes);
    blocks = room_;
  }
  std::vector<std::byte> block(block_bytes);
  if (near_) {
    waits_ = Waits::kNearForAll;
    near_->gather_to(0, mine, is_head() ? Bytes(block).first(own_ranks().size() * bytes) : Bytes());
  } else {
    copy_to(mine, block);
  }
  waits_ = Waits::kFarForAll;
  if (is_head()) {
    far_->allgather_among(places_->heads(), block, blocks);
  } else {
    far_->allgather_among(places_->heads(), {}, {});
  }
  if (near_) {
    waits_ = Waits::kNear;
    near_->broadcast(0, blocks);
  }
  if (blocks.data() == all.data()) {
    return;
  }
  for (uint32_t r = 0; r < size(); ++r) {
    copy_to(blocks.subspan(places_->node_of(r) * block_bytes + places_->place_of(r) * bytes, bytes),
            all.subspan(r * bytes, bytes));
  }
}

std::span<const ConstBytes> ByNode::exchange(std::span<const ConstBytes> to,
                                             std::span<const uint64_t> sizes) {
  check_exchange(rank(), size(), to, sizes);
  run(Call::kExchange, [&] {
    std::vector<uint64_t> told;
    if (sizes.empty() && places_->num_nodes() > 1) {
      told = told_sizes(to);
      sizes = told;
    }
    pass(to, sizes, [](Transport& by, std::span<const ConstBytes> part_to, auto part_sizes) {
      return by.exchange(part_to, part_sizes);
    });
  });
  return spans_;
}

std::span<const ConstBytes> ByNode::exchange_sparse(std::span<const ConstBytes> to,
                                                    std::span<const uint8_t> from) {
  check_sparse(rank(), size(), to, from);
  run(Call::kExchange, [&] {
    pass(to, from, [](Transport& by, std::span<const ConstBytes> part_to, auto part_from) {
      return by.exchange_sparse(part_to, part_from);
    });
  });
  return spans_;
}

// What each rank sends each, inside the node and beyond it, where `by` exchanges it. `expected`: of
// every rank, or of none.
template <class Expected, class By>
void ByNode::pass(std::span<const ConstBytes> to, std::span<const Expected> expected,
                  const By& by) {
  std::ranges::fill(spans_, ConstBytes());
  if (near_) {
    std::vector<ConstBytes> near_to;
    std::vector<Expected> near_expected;
    for (const uint32_t r : own_ranks()) {
      near_to.push_back(to[r]);
      if (!expected.empty()) {
        near_expected.push_back(expected[r]);
      }
    }
    waits_ = Waits::kNear;
    const auto came = by(*near_, near_to, std::span<const Expected>(near_expected));
    for (size_t place = 0; place < came.size(); ++place) {
      spans_[own_ranks()[place]] = came[place];
    }
  }
  if (places_->num_nodes() > 1) {
    std::vector<ConstBytes> far_to(to.begin(), to.end());
    std::vector<Expected> far_expected(expected.begin(), expected.end());
    for (const uint32_t r : own_ranks()) {
      far_to[r] = {};
      far_expected[r] = 0;
    }
    waits_ = Waits::kFar;
    const auto came = by(*far_, far_to, std::span<const Expected>(far_expected));
    for (uint32_t r = 0; r < size(); ++r) {
      if (places_->node_of(r) != node_) {
        spans_[r] = came[r];
      }
    }
  }
  spans_[rank()] = to[rank()];
}

// How many bytes every rank has for this one. Near ones go by way of the head too.
std::vector<uint64_t> ByNode::told_sizes(std::span<const ConstBytes> to) {
  std::vector<uint64_t> rows;  // of the node's ranks, each with one entry a rank
  rows.reserve(is_head() ? own_ranks().size() * size() : size());
  for (const ConstBytes one : to) {
    rows.push_back(one.size());
  }
  const uint64_t row_bytes = size() * sizeof(uint64_t);
  std::vector<ConstBytes> near_to(own_ranks().size());
  std::vector<uint64_t> near_sizes(own_ranks().size(), is_head() ? row_bytes : 0);
  if (near_) {
    near_to[0] = std::as_bytes(std::span(rows));
    waits_ = Waits::kNearForAll;
    const std::span<const ConstBytes> came = near_->exchange(near_to, near_sizes);
    if (is_head()) {
      std::vector<uint64_t> all(own_ranks().size() * size());
      for (size_t place = 0; place < came.size(); ++place) {
        copy_to(came[place],
                std::as_writable_bytes(std::span(all)).subspan(place * row_bytes, row_bytes));
      }
      rows = std::move(all);
    }
  }
  waits_ = Waits::kFarForAll;
  std::vector<uint64_t> columns = exchange_blocks(rows);
  if (!near_) {
    return columns;
  }
  std::ranges::fill(near_to, ConstBytes());
  std::ranges::fill(near_sizes, 0);
  near_sizes[0] = row_bytes;
  for (size_t place = 0; is_head() && place < near_to.size(); ++place) {
    near_to[place] = std::as_bytes(std::span(columns).subspan(place * size(), size()));
  }
  waits_ = Waits::kNear;
  const ConstBytes came = near_->exchange(near_to, near_sizes)[0];
  std::vector<uint64_t> column(size());
  copy_to(came, std::as_writable_bytes(std::span(column)));
  return column;
}

// Bruck's, of the heads: block j of a node is first for the j-th node behind it, one row a rank of
// this node, and travels 2^k nodes in each round k in which bit k of j is set; then it is from the
// j-th node before it. Returns a column a rank of this node: an entry of every rank.
std::vector<uint64_t> ByNode::exchange_blocks(std::span<const uint64_t> rows) {
  const uint32_t num_nodes = places_->num_nodes();
  const auto behind = [&](uint32_t node, uint32_t distance) {
    return (node + num_nodes - distance) % num_nodes;
  };
  std::vector<std::vector<uint64_t>> blocks(is_head() ? num_nodes : 0);
  for (uint32_t j = 0; j < blocks.size(); ++j) {
    for (size_t place = 0; place < own_ranks().size(); ++place) {
      for (const uint32_t r : places_->ranks_of((node_ + j) % num_nodes)) {
        blocks[j].push_back(rows[place * size() + r]);
      }
    }
  }
  std::vector<ConstBytes> to(size());
  std::vector<uint64_t> sizes(size());
  for (uint32_t distance = 1; distance < num_nodes; distance *= 2) {
    if (!is_head()) {
      far_->exchange(to, sizes);  // all ranks are in all calls
      continue;
    }
    const uint32_t source_node = behind(node_, distance);
    const uint32_t target = places_->heads()[(node_ + distance) % num_nodes];
    const uint32_t source = places_->heads()[source_node];
    std::vector<uint64_t> going;
    std::vector<uint64_t> counts(num_nodes);
    for (uint32_t j = distance; j < num_nodes; ++j) {
      if ((j & distance) == 0) {
        continue;
      }
      going.insert(going.end(), blocks[j].begin(), blocks[j].end());
      const uint32_t origin = behind(source_node, j & (distance - 1));
      counts[j] =
          places_->ranks_of(origin).size() * places_->ranks_of((origin + j) % num_nodes).size();
      sizes[source] += counts[j] * sizeof(uint64_t);
    }
    to[target] = std::as_bytes(std::span(going));
    ConstBytes came = far_->exchange(to, sizes)[source];
    to[target] = {};
    sizes[source] = 0;
    for (uint32_t j = distance; j < num_nodes; ++j) {
      if ((j & distance) != 0) {
        blocks[j].resize(counts[j]);
        const uint64_t bytes = counts[j] * sizeof(uint64_t);
        copy_to(came.first(bytes), std::as_writable_bytes(std::span(blocks[j])));
        came = came.subspan(bytes);
      }
    }
  }
  const size_t width = own_ranks().size();
  std::vector<uint64_t> columns(is_head() ? width * size() : 0);
  for (uint32_t r = 0; r < size() && is_head(); ++r) {
    const uint32_t j = (node_ + num_nodes - places_->node_of(r)) % num_nodes;
    for (size_t place = 0; place < width; ++place) {
      columns[place * size() + r] = blocks[j][places_->place_of(r) * width + place];
    }
  }
  return columns;
}

std::unique_ptr<Transport> ByNode::duplicate() {
  std::unique_ptr<Transport> near;
  std::exception_ptr no_memory;  // on all of this node, which the others learn
  run(Call::kDuplicate, [&] {
    waits_ = Waits::kNearForAll;
    try {
      near = near_ ? near_->duplicate() : nullptr;
    } catch (const base::OutOfMemory&) {
      no_memory = std::current_exception();
    }
  });
  on_all(*this, [&] {
    if (no_memory) {
      std::rethrow_exception(no_memory);
    }
  });
  std::unique_ptr<Transport> far;
  run(Call::kDuplicate, [&] {
    waits_ = Waits::kFarForAll;
    far = far_->duplicate();
  });
  return std::make_unique<ByNode>(std::move(near), std::move(far), places_, timeout_s_, failure_);
}

}  // namespace

std::unique_ptr<Transport> make_by_node(std::unique_ptr<Transport> near,
                                        std::unique_ptr<Transport> far,
                                        std::span<const uint32_t> nodes, double timeout_s,
                                        std::shared_ptr<Failure> failure) {
  check_membership(far->rank(), far->size(), timeout_s);
  const bool fits = nodes.size() == far->size();
  auto places = std::make_shared<const NodePlaces>(nodes);
  const auto own = fits ? places->ranks_of(places->node_of(far->rank())) : nodes;
  const uint32_t near_size = near ? near->size() : 1;
  const uint32_t near_rank = near ? near->rank() : 0;
  if (!fits || own.size() != near_size || own[near_rank] != far->rank()) {
    throw base::InvalidArgument(base::cat(
        "[transport] by node: rank ", far->rank(), " of ", far->size(), ", ", near_rank, " of ",
        near_size, " on its node, of ", nodes.size(),
        " ranks whose node is known: give the node of every rank, and a transport between those of "
        "this one"));
  }
  return std::make_unique<ByNode>(std::move(near), std::move(far), std::move(places), timeout_s,
                                  or_own(std::move(failure)));
}

double by_node_limit_s(double timeout_s) { return 1.5 * timeout_s + kRollCallLasts; }

}  // namespace gear::transport
