#include "store/checkpoint/share.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/errors.h"
#include "base/files/crc32c.h"
#include "store/checkpoint/index_check.h"
#include "store/index/update_check.h"

namespace gear::store {
namespace {

void check_alike(std::span<const SavedIndex> parts) {
  const SavedIndex& first = parts[0];
  for (const SavedIndex& part : parts) {
    const bool alike = part.schema_text == first.schema_text &&
                       part.options.page_steps == first.options.page_steps &&
                       part.options.evict == first.options.evict &&
                       part.options.max_times_sampled == first.options.max_times_sampled;
    if (!alike) {
      throw base::CorruptData(
          "[checkpoint] the parts have different schemas or options, so that they are of several "
          "buffers: give a directory that one save has written");
    }
  }
}

// What lies where in one part.
struct Layout {
  explicit Layout(const SavedIndex& part) : nth(part.options.num_pages), now(nth.size(), kNone) {
    uint64_t i = 0;
    for (const uint32_t p : used_pages(part.state)) {
      nth[p] = i++;
    }
  }

  std::vector<uint64_t> nth;  // by page: its place in the file
  std::vector<uint32_t> now;  // by page: its number in the share; kNone: not of it
};

struct Piece {
  uint32_t part;
  uint32_t episode;
  uint32_t first_page;  // the lowest
  uint64_t num_pages;
  uint32_t rank = 0;
};

class Division {
 public:
  Division(std::span<const SavedIndex> parts, uint32_t rank, uint32_t size)
      : parts_(parts), rank_(rank), size_(size) {
    for (uint32_t part = 0; part < parts.size(); ++part) {
      layouts_.emplace_back(parts[part]);
      list(part);
    }
    assign();
  }

  Share make() {
    Share share;
    set_options(share.saved);
    take_pages(share);
    take_episodes(share);
    order_pages(share.saved.state);
    set_counters(share.saved);
    return share;
  }

 private:
  const Episode& episode_of(const Piece& piece) const {
    return parts_[piece.part].state.episodes[piece.episode];
  }

  void list(uint32_t part) {
    const IndexState& state = parts_[part].state;
    for (uint32_t e = state.oldest; e != kNone; e = state.episodes[e].newer) {
      Piece piece{part, e, kNone, 0};
      for (uint32_t p = state.episodes[e].head; p != kNone; p = state.pages[p].next) {
        piece.first_page = std::min(piece.first_page, p);
        ++piece.num_pages;
      }
      pieces_.push_back(piece);
    }
  }

  // Runs of about equal length, of the order in which pages lie.
  void assign() {
    const auto order = [](const Piece& piece) { return std::tie(piece.part, piece.first_page); };
    std::sort(pieces_.begin(), pieces_.end(),
              [&](const Piece& a, const Piece& b) { return order(a) < order(b); });
    uint64_t all = 0;
    for (const Piece& piece : pieces_) {
      all += episode_of(piece).ended() ? piece.num_pages : 0;
    }
    uint64_t before = 0;
    for (Piece& piece : pieces_) {
      if (episode_of(piece).ended()) {
        piece.rank = static_cast<uint32_t>((2 * before + piece.num_pages) * size_ / (2 * all));
        before += piece.num_pages;
      } else {
        piece.rank = piece.part % size_;
      }
    }
  }

  void set_options(SavedIndex& saved) const {
    saved.schema_text = parts_[0].schema_text;
    saved.options = parts_[0].options;
    uint64_t room = 0;
    uint64_t sampled = 0;
    uint64_t inserted = 0;
    for (const SavedIndex& part : parts_) {
      room += part.options.num_pages;
      sampled += part.rate_limiter.num_sampled();
      inserted += part.rate_limiter.num_inserted();
    }
    saved.options.num_pages = (room + size_ - 1) / size_;
    const RateLimiter& limiter = parts_[0].rate_limiter;
    const uint64_t min_steps = (limiter.min_steps() * parts_.size() + size_ - 1) / size_;
    saved.rate_limiter = RateLimiter(limiter.samples_per_insert(), min_steps, limiter.slack());
    saved.rate_limiter.restore(share_of_count(sampled), share_of_count(inserted));
  }

  uint64_t share_of_count(uint64_t count) const {
    return count / size_ + (rank_ < count % size_ ? 1 : 0);
  }

  // In the order in which they lay.
  void take_pages(Share& share) {
    std::vector<std::pair<uint32_t, uint32_t>> pages;  // part, page
    for (const Piece& piece : pieces_) {
      const IndexState& from = parts_[piece.part].state;
      if (piece.rank != rank_) {
        continue;
      }
      for (uint32_t p = episode_of(piece).head; p != kNone; p = from.pages[p].next) {
        pages.emplace_back(piece.part, p);
      }
    }
    std::sort(pages.begin(), pages.end());
    uint64_t& num_pages = share.saved.options.num_pages;
    num_pages = std::max<uint64_t>(num_pages, pages.size());
    check_options(share.saved.options);
    IndexState& to = share.saved.state;
    to.pages.resize(num_pages);
    for (uint32_t p = 0; p < pages.size(); ++p) {
      layouts_[pages[p].first].now[pages[p].second] = p;
    }
    for (auto p = static_cast<uint32_t>(pages.size()); p < num_pages; ++p) {
      to.free_pages.push_back(p);
    }
  }

  // In the order in which they were begun.
  void take_episodes(Share& share) {
    const auto order = [&](const Piece& piece) {
      return std::tuple(episode_of(piece).uid, piece.part);
    };
    std::sort(pieces_.begin(), pieces_.end(),
              [&](const Piece& a, const Piece& b) { return order(a) < order(b); });
    IndexState& to = share.saved.state;
    for (const Piece& piece : pieces_) {
      const uint64_t uid = to.next_uid++;
      if (piece.rank == rank_) {
        take(piece, uid, share);
      }
    }
  }

  // Parts filled their pages at the same time.
  void order_pages(IndexState& to) const {
    std::vector<std::tuple<uint64_t, uint32_t, uint32_t>> filled;  // when, part, page in the share
    for (uint32_t part = 0; part < parts_.size(); ++part) {
      const std::vector<uint32_t>& now = layouts_[part].now;
      for (uint32_t p = 0; p < now.size(); ++p) {
        if (now[p] != kNone) {
          filled.emplace_back(parts_[part].state.arrived[p], part, now[p]);
        }
      }
    }
    std::ranges::sort(filled);
    to.arrived.assign(to.pages.size(), 0);
    for (uint64_t i = 0; i < filled.size(); ++i) {
      to.arrived[std::get<2>(filled[i])] = i + 1;
    }
  }

  void take(const Piece& piece, uint64_t uid, Share& share) {
    const SavedIndex& part = parts_[piece.part];
    const Layout& layout = layouts_[piece.part];
    IndexState& to = share.saved.state;
    const auto e = static_cast<uint32_t>(to.episodes.size());
    Episode episode = episode_of(piece);
    episode.uid = uid;
    episode.older = to.newest;
    episode.newer = kNone;
    (e == 0 ? to.oldest : to.episodes[e - 1].newer) = e;
    to.newest = e;
    ++to.num_episodes;
    to.num_steps += episode.end - episode.begin;
    const auto now = [&](uint32_t p) { return p == kNone ? kNone : layout.now[p]; };
    for (uint32_t p = episode.head; p != kNone; p = part.state.pages[p].next) {
      const uint32_t q = layout.now[p];
      Page& page = to.pages[q] = part.state.pages[p];
      page.generation = 0;
      page.episode = e;
      page.previous = now(page.previous);
      page.next = now(page.next);
      share.origins.push_back({piece.part, layout.nth[p]});
      append_slots(part.slots.priorities, layout.nth[p], share.saved.slots.priorities);
      if (part.options.max_times_sampled > 0) {
        append_slots(part.slots.times_sampled, layout.nth[p], share.saved.slots.times_sampled);
      }
    }
    episode.head = now(episode.head);
    episode.tail = now(episode.tail);
    to.episodes.push_back(episode);
  }

  template <class Values>
  void append_slots(const Values& from, uint64_t nth, Values& to) const {
    const auto page_steps = static_cast<ptrdiff_t>(parts_[0].options.page_steps);
    const auto first = from.begin() + static_cast<ptrdiff_t>(nth) * page_steps;
    to.insert(to.end(), first, first + page_steps);
  }

  // Steps that are gone count where the rest of their episode is, and rank 0 counts all others.
  void set_counters(SavedIndex& saved) const {
    IndexState& to = saved.state;
    Counters all;
    uint64_t gone_of_stored = 0;
    for (const SavedIndex& part : parts_) {
      const Counters& counters = part.state.counters;
      all.steps_evicted += counters.steps_evicted;
      all.steps_sampled += counters.steps_sampled;
      all.stale_updates += counters.stale_updates;
      all.saturated_weights += counters.saturated_weights;
      to.max_priority = std::max(to.max_priority, part.state.max_priority);
      to.max_weight = std::max(to.max_weight, part.state.max_weight);
      if (const uint32_t identity = part.state.identity; identity != 0) {
        to.identity = base::crc32c(&identity, sizeof identity, to.identity);
      }
      to.seeds_given = std::max(to.seeds_given, part.state.seeds_given);
    }
    for (const Piece& piece : pieces_) {
      gone_of_stored += episode_of(piece).begin;
      to.counters.steps_evicted += piece.rank == rank_ ? episode_of(piece).begin : 0;
    }
    if (rank_ == 0) {
      to.counters.steps_evicted += std::max(all.steps_evicted, gone_of_stored) - gone_of_stored;
      to.counters.steps_sampled = all.steps_sampled;
      to.counters.stale_updates = all.stale_updates;
      to.counters.saturated_weights = all.saturated_weights;
    }
    to.counters.steps_inserted = to.counters.steps_evicted + to.num_steps;
  }

  std::span<const SavedIndex> parts_;
  uint32_t rank_;
  uint32_t size_;
  std::vector<Layout> layouts_;  // of parts_
  std::vector<Piece> pieces_;
};

void apply(const KeptUpdate& update, SavedIndex& part, const Layout& layout) {
  const StepId id = StepId::unpack(update.id);
  const uint64_t page_steps = part.options.page_steps;
  IndexState& state = part.state;
  const auto p = static_cast<uint32_t>(id.slot / page_steps);
  const auto row = static_cast<uint32_t>(id.slot % page_steps);
  const Page& page = state.pages[p];
  if (!is_stored(id, row, page)) {
    ++state.counters.stale_updates;
    return;
  }
  if (id.episode) {
    state.episodes[page.episode].weight = static_cast<double>(update.priority);
    state.max_weight = std::max(state.max_weight, update.priority);
    return;
  }
  float& stored = part.slots.priorities[layout.nth[p] * page_steps + row];
  stored = std::fabs(update.priority);
  state.max_priority = std::max(state.max_priority, stored);
}

}  // namespace

void apply_kept_updates(std::span<SavedIndex> parts) {
  const std::vector<Layout> layouts(parts.begin(), parts.end());
  for (const SavedIndex& from : parts) {
    for (const KeptUpdate& update : from.kept_updates) {
      const uint32_t owner = StepId::unpack(update.id).owner;
      if (owner >= parts.size() || !is_id_of(update.id, owner, parts[owner].options.num_slots())) {
        throw base::CorruptData(base::cat("[checkpoint] the priority of id ", update.id,
                                          " is to be told to no rank of these parts"));
      }
      apply(update, parts[owner], layouts[owner]);
    }
  }
}

Share share_of(std::span<const SavedIndex> parts, uint32_t rank, uint32_t size) {
  check_alike(parts);
  Share share = Division(parts, rank, size).make();
  check_saved(share.saved.options, share.saved.state, share.saved.slots);
  return share;
}

}  // namespace gear::store
