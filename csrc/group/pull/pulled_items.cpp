#include "group/pull/pulled_items.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/numbers/philox.h"
#include "base/threads/interrupt.h"
#include "base/threads/spin.h"
#include "gather/gather_cpu.h"
#include "plan/window_runs.h"
#include "store/id.h"

namespace gear::group {
namespace {

constexpr uint64_t kMostDraws = uint64_t{1} << 32;  // of a batch
// So many draws in a row that fall on nothing that may be drawn, and all pages are read: that costs
// less than to go on, and tells whether there is anything.
constexpr uint64_t kMostInVain = 4096;
// So often a step is read again: an owner that is stopped may have stopped in the midst of a
// record.
constexpr uint32_t kMostRepeats = 16;

template <class Record>
PublishedShards::Read read_of(uint32_t owner, uint64_t from, Record& to) {
  return {owner, from, sizeof(Record), reinterpret_cast<std::byte*>(&to)};
}

// No page of the own shard that is in use now is written again before it ends.
store::Read own_read(store::Shard& shard) {
  const auto lock = shard.lock();
  return shard.begin_read();
}

}  // namespace

PulledItems::PulledItems(PublishedShards& shards, store::Shard& own, uint32_t rank,
                         const plan::BatchLayout& layout, const Options& options)
    : shards_(shards),
      own_(own),
      rank_(rank),
      pages_(own.layout()),
      layout_(layout),
      options_(options),
      masses_(shards),
      steps_(shards, own.layout().page_steps, options.lookahead),
      items_(layout.batch_size),
      extents_(layout.batch_size * layout.windows.size()) {
  for (const plan::BatchLayout::SharedWindow& window : layout.windows) {
    row_of_window_.push_back(layout.batch_size * window.window.length());
  }
  rows_ = {layout, pages_, row_of_window_};
  landed_ = std::make_unique_for_overwrite<std::byte[]>(rows_.bytes);
}

bool PulledItems::any() { return masses_.look() > 0; }

template <class What>
void PulledItems::for_each_open(const What& what) {
  for (const uint32_t number : open_) {
    if (!items_[number].failed) {
      what(number, items_[number]);
    }
  }
}

uint64_t PulledItems::step_of(const Item& item) const {
  return item.pages[item.anchor_page].found.first_step + item.place.nth;
}

void PulledItems::fetch(uint64_t number) {
  const Clock::time_point start = Clock::now();
  batch_ = number;
  drawn_ = 0;
  by_steps_ = false;
  open_.clear();
  for (uint32_t i = 0; i < items_.size(); ++i) {
    items_[i].anchored = false;
    open_.push_back(i);
  }
  uint64_t in_vain = 0;
  while (!open_.empty()) {
    base::check_stopped();
    for (const uint32_t i : open_) {
      items_[i].failed = false;
    }
    draw();
    read_anchors();
    read_episodes();
    const auto chosen = static_cast<uint64_t>(
        std::ranges::count_if(open_, [this](uint32_t i) { return items_[i].anchored; }));
    in_vain = chosen > 0 ? 0 : in_vain + open_.size();
    if (in_vain > kMostInVain) {
      in_vain = 0;
      steps_.look();
      by_steps_ = steps_.count() > 0;
      if (!by_steps_ && steps_.read_all()) {
        throw base::InvalidArgument(base::cat(
            "[sampler] nothing to sample: ", total_, " steps are published by ", shards_.size(),
            " ranks, and none of them may be drawn; a step of an open episode is offered once ",
            options_.lookahead, " steps follow it: append more or end the episode"));
      }
    }
    read_neighbours();
    read_rows();
    read_own_rows();
    std::erase_if(open_, [this](uint32_t i) { return !items_[i].failed; });
    give_up_steps();
    if (!open_.empty() && base::seconds_since(start) >= options_.timeout_s) {
      throw base::TransportError(
          base::cat("[loader] ", open_.size(), " of ", items_.size(),
                    " items could not be read whole within ", options_.timeout_s,
                    " s: their owners reuse pages faster than this rank reads them; ",
                    "raise capacity, or read smaller windows"));
    }
  }
}

void PulledItems::give_up_steps() {
  for (const uint32_t i : open_) {
    Item& item = items_[i];
    if (item.anchored && ++item.repeats > kMostRepeats) {
      item.anchored = false;
      ++counts_.stale;
    }
  }
}

void PulledItems::draw() {
  targets_.clear();
  std::vector<uint32_t> drawing;
  for (const uint32_t i : open_) {
    if (!items_[i].anchored) {
      drawing.push_back(i);
    }
  }
  if (drawing.empty()) {
    return;
  }
  total_ = masses_.look();
  if (total_ == 0) {
    throw base::InvalidArgument(base::cat("[sampler] nothing to sample: none of the ",
                                          shards_.size(), " ranks has published a step"));
  }
  for (size_t i = 0; i < drawing.size(); ++i) {
    // A stream of the rank's own: ranks of one seed draw different items.
    const base::Draw128 bits =
        base::philox(options_.seed, (uint64_t{1} << 32) + rank_, batch_ * kMostDraws + drawn_++);
    targets_.push_back(base::scale_to(bits, by_steps_ ? steps_.count() : total_));
  }
  places_.resize(targets_.size());
  if (by_steps_) {
    std::ranges::transform(targets_, places_.begin(),
                           [this](uint64_t target) { return steps_.at(target); });
    by_steps_ = false;
  } else {
    masses_.find(targets_, places_);
  }
  for (size_t i = 0; i < drawing.size(); ++i) {
    Item& item = items_[drawing[i]];
    item.place = places_[i];
    item.repeats = 0;
    item.failed = item.place.page == store::kNone;
  }
}

void PulledItems::read_anchors() {
  reads_.clear();
  for_each_open([this](uint32_t, Item& item) {
    item.pages.resize(1);
    item.anchor_page = 0;
    item.pages[0].page = item.place.page;
    reads_.push_back(read_of(item.place.owner,
                             shards_.layout(item.place.owner).page(item.place.page),
                             item.pages[0].found));
  });
  shards_.read(Part::kIndex, reads_);
  for_each_open([this](uint32_t, Item& item) {
    const store::PublishedPage& page = item.pages[0].found;
    if (!whole(page)) {
      item.failed = true;
      return;
    }
    if (item.anchored && page.use() != item.use) {
      ++counts_.stale;
      item.anchored = false;
      item.failed = true;
    }
    item.failed = item.failed || page.uid == 0;
    item.use = page.use();
  });
}

void PulledItems::read_episodes() {
  reads_.clear();
  for_each_open([this](uint32_t, Item& item) {
    reads_.push_back(read_of(item.place.owner,
                             shards_.layout(item.place.owner).episode(item.pages[0].found.episode),
                             item.episode));
  });
  shards_.read(Part::kIndex, reads_);
  for_each_open([this](uint32_t number, Item& item) {
    if (!settle_anchor(item)) {
      item.failed = true;
      return;
    }
    item.anchored = true;
    set_extents(number);
  });
}

// Whether the step is there, and may be drawn.
bool PulledItems::settle_anchor(Item& item) {
  const store::PublishedEpisode& episode = item.episode;
  const uint64_t step = step_of(item);
  if (!whole(episode) || episode.uid != item.pages[0].found.uid || step < episode.begin) {
    return false;
  }
  const uint64_t after = episode.ended() ? 0 : options_.lookahead;
  return item.anchored || (item.place.nth < pages_.page_steps && step + after < episode.end);
}

// And which pages they lie in.
void PulledItems::set_extents(size_t number) {
  Item& item = items_[number];
  const uint64_t step = step_of(item);
  uint64_t first = step;
  uint64_t last = step;
  for (size_t w = 0; w < layout_.windows.size(); ++w) {
    const plan::PlanWindow& window = layout_.windows[w].window;
    const plan::Extent found = plan::extent_of(item.episode.begin, item.episode.end,
                                               item.episode.closing_columns, step, window);
    extent(number, w) = found;
    if (found.count > 0) {
      first = std::min(first, found.first);
      last = std::max(last, found.first + found.count - 1);
    }
  }
  const store::PublishedPage anchor = item.pages[0].found;
  item.first_page = first / pages_.page_steps;
  item.anchor_page = anchor.first_step / pages_.page_steps - item.first_page;
  item.pages.assign(last / pages_.page_steps - item.first_page + 1, Shown{});
  item.pages[item.anchor_page] = {item.place.page, anchor};
}

// Outwards from the anchor's page, one page in either direction a round.
void PulledItems::read_neighbours() {
  for (size_t away = 1;; ++away) {
    reads_.clear();
    const auto each_side = [away](Item& item, const auto& what) {
      if (item.anchor_page >= away) {
        what(item.pages[item.anchor_page - away], item.pages[item.anchor_page - away + 1], true);
      }
      if (item.anchor_page + away < item.pages.size()) {
        what(item.pages[item.anchor_page + away], item.pages[item.anchor_page + away - 1], false);
      }
    };
    for_each_open([&](uint32_t, Item& item) {
      each_side(item, [&](Shown& shown, const Shown& nearer, bool back) {
        shown.page = back ? nearer.found.previous : nearer.found.next;
        if (shown.page == store::kNone) {
          item.failed = true;
        } else {
          reads_.push_back(read_of(item.place.owner,
                                   shards_.layout(item.place.owner).page(shown.page), shown.found));
        }
      });
    });
    if (reads_.empty()) {
      return;
    }
    shards_.read(Part::kIndex, reads_);
    for_each_open([&](uint32_t, Item& item) {
      each_side(item, [&](Shown& shown, const Shown&, bool) {
        const auto number = static_cast<uint64_t>(&shown - item.pages.data());
        const uint64_t first_step = (item.first_page + number) * pages_.page_steps;
        item.failed = item.failed || !whole(shown.found) || shown.found.uid != item.episode.uid ||
                      shown.found.first_step != first_step;
      });
    });
  }
}

void PulledItems::read_rows() {
  copy_rows(false);
  check_uses(false);
}

void PulledItems::read_own_rows() {
  const store::Read own = own_read(own_);
  check_uses(true);
  copy_rows(true);
}

// Of the items of this rank's own, or of those of the others.
void PulledItems::copy_rows(bool own) {
  reads_.clear();
  for_each_open([this, own](uint32_t number, Item& item) {
    if ((item.place.owner == rank_) != own) {
      return;
    }
    for (size_t w = 0; w < layout_.windows.size(); ++w) {
      const plan::Extent& shown = extent(number, w);
      const std::vector<size_t>& outputs = layout_.windows[w].outputs;
      for (auto output = outputs.begin(); output != outputs.end(); ++output) {
        const size_t column = layout_.outputs[*output].column;
        // Outputs that show the same column share its rows.
        if (std::any_of(outputs.begin(), output, [&](size_t earlier) {
              return layout_.outputs[earlier].column == column;
            })) {
          continue;
        }
        const uint64_t step_bytes = pages_.step_bytes[column];
        std::byte* to = landed_.get() + rows_.offset[*output] +
                        number * layout_.windows[w].window.length() * step_bytes;
        for (uint64_t done = 0; done < shown.count;) {
          const uint64_t step = shown.first + done;
          const Shown& page = item.pages[step / pages_.page_steps - item.first_page];
          const uint64_t row = step % pages_.page_steps;
          const uint64_t count = std::min(shown.count - done, pages_.page_steps - row);
          reads_.push_back(
              {item.place.owner, pages_.offset(page.page, column, row), count * step_bytes, to});
          to += count * step_bytes;
          done += count;
        }
      }
    }
  });
  shards_.read(Part::kPages, reads_);
}

void PulledItems::check_uses(bool own) {
  const auto each = [this, own](const auto& what) {
    for_each_open([&](uint32_t, Item& item) {
      if ((item.place.owner == rank_) == own) {
        what(item);
      }
    });
  };
  size_t pages = 0;
  each([&](Item& item) { pages += item.pages.size(); });
  uses_.assign(pages, 0);
  reads_.clear();
  each([this](Item& item) {
    for (const Shown& shown : item.pages) {
      reads_.push_back(read_of(item.place.owner, shards_.layout(item.place.owner).page(shown.page),
                               uses_[reads_.size()]));
    }
  });
  shards_.read(Part::kIndex, reads_);
  size_t next = 0;
  each([&](Item& item) {
    bool same = true;
    for (const Shown& shown : item.pages) {
      same &= uses_[next++] == shown.found.use();
    }
    if (!same) {
      ++counts_.repeated;
      item.failed = true;
    }
  });
}

void PulledItems::fill(plan::Batch& batch, base::ThreadPool& pool) {
  const uint64_t items = items_.size();
  batch.items = items;
  batch.bytes = 0;
  batch.rows.clear();
  bytes_.assign(shards_.size(), 0);
  auto* const ids = batch.at<int64_t>(layout_.ids);
  const auto probability = static_cast<float>(1.0 / static_cast<double>(total_));
  std::fill_n(batch.at<float>(layout_.probabilities), items, probability);
  std::fill_n(batch.at<float>(layout_.weights), items, 1.0F);
  for (uint64_t i = 0; i < items; ++i) {
    const Item& item = items_[i];
    const uint64_t slot = item.place.page * pages_.page_steps + item.place.nth;
    const uint32_t generation = item.pages[item.anchor_page].found.generation;
    ids[i] = store::StepId{static_cast<uint32_t>(slot), generation & store::StepId::kGenerationMask,
                           item.place.owner, false}
                 .pack();
  }
  plan_.reset();
  padding_.reset();
  for (size_t w = 0; w < layout_.windows.size(); ++w) {
    fill_window(w, batch);
  }
  for (const plan::BatchLayout::DerivedOutput& derived : layout_.derived) {
    for (uint64_t i = 0; i < items; ++i) {
      const plan::Extent& shown = extent(i, derived.window);
      const store::PublishedEpisode& episode = items_[i].episode;
      plan::write_derived(
          derived,
          plan::standing_of(shown, episode.end, static_cast<store::EpisodeState>(episode.state)),
          shown.place, shown.count, i, batch);
    }
  }
  gather::unpack_cpu(landed_.get(), rows_, pages_, plan_, batch, pool);
  gather::gather_cpu(nullptr, pages_, padding_, batch, pool);
}

// Lengths, masks or cu_seqlens, and the runs from where the rows landed.
void PulledItems::fill_window(size_t w, plan::Batch& batch) {
  const plan::BatchLayout::SharedWindow& shared = layout_.windows[w];
  const auto length = static_cast<uint32_t>(shared.window.length());
  auto* const lengths = batch.at<int32_t>(shared.lengths);
  auto* const cu_seqlens = layout_.packed ? batch.at<int32_t>(shared.cu_seqlens) : nullptr;
  bool* const mask = layout_.packed ? nullptr : batch.at<bool>(shared.mask);
  uint64_t row_bytes = 0;
  for (const size_t output : shared.outputs) {
    row_bytes += pages_.step_bytes[layout_.outputs[output].column];
  }
  const auto items = static_cast<uint32_t>(items_.size());
  plan_.begin_window(items);
  padding_.begin_window(2 * uint64_t{items});
  plan::Run* zeros = padding_.room();
  uint32_t packed_rows = 0;
  for (uint32_t i = 0; i < items; ++i) {
    const plan::Extent& shown = extent(i, w);
    lengths[i] = static_cast<int32_t>(shown.count);
    if (layout_.packed) {
      cu_seqlens[i] = static_cast<int32_t>(packed_rows);
    } else {
      plan::write_mask(length, shown.place, shown.count, mask + uint64_t{i} * length);
      if (shown.count != length) {
        zeros = plan::add_zeros(length, shown.place, shown.count, i * length, zeros);
      }
    }
    if (shown.count > 0) {
      plan_.add(
          {0, i * length, shown.count, layout_.packed ? packed_rows : i * length + shown.place});
    }
    packed_rows += shown.count;
    bytes_[items_[i].place.owner] += shown.count * row_bytes;
  }
  padding_.fill(static_cast<uint64_t>(zeros - padding_.room()));
  if (layout_.packed) {
    cu_seqlens[items] = static_cast<int32_t>(packed_rows);
  }
  batch.rows.push_back(layout_.packed ? packed_rows : uint64_t{items} * length);
  batch.bytes += packed_rows * row_bytes;
}

}  // namespace gear::group
