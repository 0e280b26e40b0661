#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/threads/thread_pool.h"
#include "group/pull/published_masses.h"
#include "group/pull/published_steps.h"
#include "plan/packed_rows.h"
#include "plan/plan.h"

namespace gear::group {

/// Draws the items of a batch from all ranks' shards as published, and reads their rows, while the
/// owners go on writing. In rounds, each of all items that are not whole yet:
///
///     draw ── page ── episode ── pages of the windows ── rows ── are the pages still in that use?
///      ▲                                                              │ no: read again, or
///      └──────────────────────────────────────────────────────────────┘ the step is gone
///
/// A page is published as given up before other steps are written into it: if it is in the same
/// use after its rows came as before, then they are whole and of that use. Pages of this rank's
/// own are kept while their rows are copied, behind those of the others: no writer of this rank
/// waits for another rank.
class PulledItems {
 public:
  struct Options {
    uint64_t seed = 0;
    uint64_t lookahead = 0;
    double timeout_s = 300;
  };

  /// What was counted since the start.
  struct Counts {
    uint64_t repeated = 0;  ///< items whose rows were read again, as a page of theirs was reused
    uint64_t stale = 0;     ///< items drawn anew, as their step went while they were read
  };

  /// All are the caller's and outlive it. `rank`: this one.
  PulledItems(PublishedShards& shards, store::Shard& own, uint32_t rank,
              const plan::BatchLayout& layout, const Options& options);

  /// Whether any rank has published a step that may be drawn. Throws TransportError.
  bool any();

  /// Draws batch `number` and reads its rows: layout.batch_size items. Throws InvalidArgument where
  /// nothing may be drawn, TransportError where an owner cannot be read, or not within timeout_s;
  /// and as base::check_stopped().
  void fetch(uint64_t number);

  /// Fills in `batch`, which has memory, from what was fetched.
  void fill(plan::Batch& batch, base::ThreadPool& pool);

  const Counts& counts() const { return counts_; }
  /// Of the rows of the last batch filled, by owner.
  const std::vector<uint64_t>& bytes() const { return bytes_; }

 private:
  /// A page that a window shows.
  struct Shown {
    uint32_t page = store::kNone;
    store::PublishedPage found;
  };

  struct Item {
    PublishedPlace place{};
    uint32_t repeats = 0;   ///< rounds in a row that its step was chosen and failed
    uint64_t use = 0;       ///< of the anchor's page, once `anchored`
    bool anchored = false;  ///< the step is chosen; if not, it is drawn in the next round
    bool failed = false;    ///< in this round
    store::PublishedEpisode episode;
    uint64_t first_page = 0;  ///< of the episode, by number, that `pages` begins with
    size_t anchor_page = 0;   ///< in `pages`
    std::vector<Shown> pages;
  };

  using Part = PublishedShards::Part;
  using Clock = std::chrono::steady_clock;

  void draw();
  void give_up_steps();
  void read_anchors();
  void read_episodes();
  bool settle_anchor(Item& item);
  void set_extents(size_t number);
  void read_neighbours();
  void read_rows();
  void read_own_rows();
  void copy_rows(bool own);
  void check_uses(bool own);
  uint64_t step_of(const Item& item) const;
  plan::Extent& extent(size_t item, size_t window) {
    return extents_[item * layout_.windows.size() + window];
  }
  void fill_window(size_t window, plan::Batch& batch);
  /// What is left for this round.
  template <class What>
  void for_each_open(const What& what);

  PublishedShards& shards_;
  store::Shard& own_;
  uint32_t rank_;
  const store::PageLayout& pages_;
  const plan::BatchLayout& layout_;
  Options options_;
  PublishedMasses masses_;
  PublishedSteps steps_;
  bool by_steps_ = false;  ///< the next draws are of steps_: by masses they were in vain
  Counts counts_;
  std::vector<uint64_t> bytes_;
  uint64_t total_ = 0;  ///< steps offered
  uint64_t batch_ = 0;
  uint32_t drawn_ = 0;  ///< for this batch, repeated draws among them
  std::vector<Item> items_;
  std::vector<plan::Extent> extents_;  ///< by item and window
  std::vector<uint32_t> open_;         ///< items that are not whole yet
  std::vector<uint64_t> row_of_window_;
  plan::PackedRows rows_;  ///< every item has room for whole windows
  std::unique_ptr<std::byte[]> landed_;
  plan::Plan plan_;
  plan::Plan padding_;
  std::vector<PublishedShards::Read> reads_;
  std::vector<uint64_t> targets_;
  std::vector<PublishedPlace> places_;
  std::vector<uint64_t> uses_;
};

}  // namespace gear::group
