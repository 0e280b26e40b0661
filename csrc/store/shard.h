#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/threads/blocking.h"
#include "memory/region.h"
#include "store/index/index.h"
#include "store/mirror/mirror.h"
#include "store/page_layout.h"
#include "store/rate_limiter.h"
#include "store/schema.h"

namespace gear::store {

struct ShardOptions {
  uint64_t capacity = 0;  ///< steps, rounded up to whole pages
  uint64_t page_steps = PageLayout::kDefaultPageSteps;
  memory::Tier tier = memory::Tier::kHost;
  int device = -1;   ///< of tier kDevice: which GPU; -1: the current one
  std::string name;  ///< of a shared or pinned region
  Evict evict = Evict::kFifo;
  uint32_t max_times_sampled = 0;
  uint32_t owner = 0;
  RateLimiter rate_limiter;
};

/// When a read ends that no thread waits for: that of a GPU.
class ReadEnd {
 public:
  virtual ~ReadEnd() = default;
  /// From any thread. True on a lost GPU too.
  virtual bool done() const noexcept = 0;
  /// A writer waits for it: a read that was put off is to begin. From that writer's thread, which
  /// does not hold the shard's lock; must not call the shard.
  virtual void hurry() const noexcept {}
};

/// One rank's part of the buffer: the pages in a region, the index over them, the lock, and the
/// mirrors of the index on GPUs that select or plan.
///
/// Readers and pages: a batch is planned under the lock and copied without it. Between the two it
/// holds a *read ticket*; a page evicted meanwhile is reused only after every ticket issued before
/// the eviction is given back, so a copy never races a writer. On tier kDevice there are no
/// tickets: reads and writes of the pages follow each other on the stream of the home mirror, which
/// is that on the pages' own GPU.
///
/// Draws over many shards: every rank says what it offers, and its index stands still until the
/// draw is resolved. Nobody holds the lock meanwhile:
///
///   lock_between_draws() ── begin_draw() ── offer ── without the lock: exchange
///                                                   └─ under it: resolve ── end_draw()
///
/// In between anybody may look at the index; Python may run in the drawing thread itself (handlers
/// of signals, finalisers). What append(), end_episode() and update() are to change waits in the
/// intake until end_draw(), which takes it in, in the order in which it came. Only who needs a page
/// has to wait, since a page may take an eviction.
class Shard {
 public:
  /// Throws InvalidArgument for a capacity below one page, OutOfMemory when the tier has no room.
  Shard(Schema schema, const ShardOptions& options);

  /// As above, taking over a saved index; the pages' bytes are the caller's to fill.
  Shard(Schema schema, const ShardOptions& options, IndexState state);

  const Schema& schema() const { return *schema_; }
  /// For who outlives the shard: batches.
  std::shared_ptr<const Schema> shared_schema() const { return schema_; }
  const PageLayout& layout() const { return layout_; }
  const ShardOptions& options() const { return options_; }
  memory::Region& region() { return *region_; }
  std::byte* data() { return region_->data(); }

  /// The lock is for index() and rate_limiter(); hold it for microseconds.
  /// A thread that has to wait for it does so as base::Blocking says, and never holds it while it
  /// takes back what it gave up: who has that meanwhile may want the lock.
  std::unique_lock<std::mutex> lock() {
    for (;;) {
      std::unique_lock held(mutex_, std::try_to_lock);
      if (held) {
        return held;
      }
      const base::Blocking waiting;
      mutex_.lock();
      mutex_.unlock();
    }
  }
  /// The lock when no draw is out, to begin one or to change otherwise what the index offers. Waits
  /// for that; throws InvalidArgument in the thread that has the draw out.
  std::unique_lock<std::mutex> lock_between_draws();
  Index& index() { return index_; }
  const Index& index() const { return index_; }
  RateLimiter& rate_limiter() { return rate_limiter_; }

  /// Bytes held: region, index and trees.
  uint64_t bytes();

  /// ---- under the lock ----
  uint64_t begin_read();
  /// Appends a page to `episode`, evicting if need be, and returns it. Gives the lock up while
  /// readers of the page finish, and while a draw is out; throws InvalidArgument in the thread that
  /// has it out.
  uint32_t attach_page(std::unique_lock<std::mutex>& lock, uint32_t episode);
  /// Waits until the rate limiter lets `steps` in and counts them as inserted; false when timeout_s
  /// (none: for ever) passed first.
  bool reserve_insert(std::unique_lock<std::mutex>& lock, uint64_t steps,
                      std::optional<double> timeout_s);
  /// Waits until `count` samples are allowed and something may be drawn. The caller counts what it
  /// draws (rate_limiter().sampled) before it gives up the lock.
  bool wait_sample(std::unique_lock<std::mutex>& lock, uint64_t count, Unit unit,
                   std::optional<double> timeout_s);
  /// The same where what is drawn may lie in other shards: waits for the rate limiter alone.
  bool wait_sample_elsewhere(std::unique_lock<std::mutex>& lock, uint64_t count,
                             std::optional<double> timeout_s);
  /// This thread's draw is out from here on, until it is resolved or given up: see above.
  void begin_draw();
  void end_draw();
  /// As those of Index; while a draw is out they apply when it ends.
  void append(uint32_t episode, std::span<const float> priorities);
  void end_episode(uint32_t episode, EpisodeState state, double weight, uint64_t closing_columns);
  /// The mirror on that GPU; made, empty until its sync(), by the first call.
  Mirror& mirror(int device);
  /// Takes back the priorities that mirrors are ahead with; does nothing if none is, nor while a
  /// draw is out. Comes before the index's priorities are looked at.
  void settle();
  /// As Index::update, with a mirror that holds priorities there.
  uint64_t update(std::span<const int64_t> ids, std::span<const float> priorities);
  /// The same of arrays on a GPU, see Mirror::update: a mirror that holds priorities is sent them,
  /// and this returns at once; else it waits for them.
  void update_from_device(const int64_t* ids, const float* priorities, uint64_t count,
                          uintptr_t stream);
  /// Copies bytes of rows to the region; `source` null: zeros. On tier kDevice always under the
  /// lock, else also without it, to a page that the caller alone fills.
  void write_rows(uint64_t offset, const std::byte* source, uint64_t bytes);
  /// Whether write_rows takes the lock.
  bool writes_locked() const { return rows_ != nullptr; }
  /// Returns when the region holds the rows written.
  void finish_rows();
  /// Wakes who waits in reserve_insert or wait_sample, after the counts or the index changed.
  void notify_progress() { progress_.notify_all(); }

  /// ---- with or without the lock ----
  void end_read(uint64_t ticket);
  /// The ticket is given back by the first poll_reads() after the read has ended; a writer that
  /// needs the page polls too.
  void end_read_when(uint64_t ticket, std::shared_ptr<const ReadEnd> end);
  void poll_reads();

 private:
  void open_rows();
  /// Returns when no draw is out; gives the lock up meanwhile.
  void wait_for_draw(std::unique_lock<std::mutex>& lock);
  uint64_t update_index(std::span<const int64_t> ids, std::span<const float> priorities);
  bool mirrors_hold_priorities() const;
  void raise_failed_updates();
  void release_ended_reads();
  template <class Unread>
  void wait_for_readers(std::unique_lock<std::mutex>& reading, Unread unread);
  template <class Allowed>
  bool wait(std::unique_lock<std::mutex>& lock, std::optional<double> timeout_s, Allowed allowed);

  std::shared_ptr<const Schema> schema_;
  ShardOptions options_;
  PageLayout layout_;
  std::unique_ptr<memory::Region> region_;
  Index index_;
  std::mutex mutex_;
  std::condition_variable progress_;
  RateLimiter rate_limiter_;
  bool draw_is_out_ = false;
  std::thread::id drawing_;                    ///< the thread that has it out
  std::vector<std::function<void()>> intake_;  ///< what is to change when it ends
  /// Apart from the lock, so that a gather that ends need not wait for a selection: taken inside
  /// it.
  std::mutex reading_mutex_;
  std::condition_variable reads_done_;
  std::vector<uint64_t> reading_;  ///< tickets not given back, ascending
  std::vector<std::pair<uint64_t, std::shared_ptr<const ReadEnd>>> ending_;  ///< of those
  std::vector<std::unique_ptr<Mirror>> mirrors_;
  std::unique_ptr<RowSink> rows_;  ///< tier kDevice
};

}  // namespace gear::store
