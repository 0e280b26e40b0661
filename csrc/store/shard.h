#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/threads/origin.h"
#include "memory/region.h"
#include "store/forked.h"
#include "store/index/index.h"
#include "store/mirror/mirrors.h"
#include "store/pages.h"
#include "store/publish/index_publisher.h"
#include "store/read_tickets.h"
#include "store/schema.h"
#include "store/shard_lock.h"
#include "store/writing/intake.h"
#include "store/writing/rate_limiter.h"
#include "store/writing/short_episodes.h"

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

/// One rank's part of the buffer: the pages in a region, the index over them, the lock, and the
/// mirrors of the index on GPUs that select or plan.
//
/// Readers and pages: a batch is planned under the lock and copied without it. Between the two it
/// holds a *read ticket* (ReadTickets), so a copy never races a writer. On tier kDevice there are
/// none: reads and writes of the pages follow each other on the stream of the row sink, which the
/// mirror on the pages' own GPU shares.
///
/// Draws over many shards: every rank says what it offers, and its index stands still until the
/// draw is resolved. Nobody holds the lock meanwhile:
///
///   lock_between_draws() ── begin_draw() ── offer ── without the lock: exchange
///                                                   └─ under it: resolve ── end_draw()
///
/// In between anybody may look at the index; Python may run in the drawing thread itself (handlers
/// of signals, finalisers). What publish() and update() are to change waits in the intake until
/// end_draw(), which takes it in, in the order in which it came. Only who needs a page has to wait,
/// since a page may take an eviction. So the intake is bounded: a writer puts into it the steps
/// that its page has room for and the end of that episode; over a group updates are kept by
/// group::Peers, and reach the shard between draws.
///
/// A forked child has a copy of the index, and of the pages if they lie in memory of this process
/// alone (tier kHost). The copy is whole: the process is forked while nobody holds the lock. What
/// it held then may be read; a change would reach nobody, or would write into the parent's pages,
/// and is refused. Made by base::make_shared_here() where a process may be forked.
class Shard {
 public:
  /// Throws InvalidArgument for a capacity below one page, OutOfMemory when the tier has no room.
  /// `saved` and `slots`: takes over that index, as Index does; the pages' bytes are the caller's
  /// to fill.
  Shard(Schema schema, const ShardOptions& options, IndexState saved = {}, const Slots& slots = {});

  const Schema& schema() const { return *schema_; }
  /// For who outlives the shard: batches.
  std::shared_ptr<const Schema> shared_schema() const { return schema_; }
  const ShardOptions& options() const { return options_; }
  Pages& pages() { return pages_; }
  const PageLayout& layout() const { return pages_.layout(); }
  memory::Region& region() { return pages_.region(); }
  std::byte* data() { return pages_.region().data(); }

  /// The lock is for index() and rate_limiter(); hold it for microseconds, and never while calling
  /// Python or while a GPU comes to the end of something: see wait_for_gpu(). As ShardLock::lock().
  std::unique_lock<std::mutex> lock() { return lock_.lock(); }
  /// The lock when no draw is out, to begin one or to change otherwise what the index offers. Waits
  /// for that; throws InvalidArgument in the thread that has the draw out.
  std::unique_lock<std::mutex> lock_between_draws();
  /// The same, with the priorities settled.
  std::unique_lock<std::mutex> lock_settled();
  /// For what a GPU has to do first, which may be a whole training step: as
  /// ShardLock::wait_for_gpu(), without the lock meanwhile.
  void wait_for_gpu(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done) {
    lock_.wait_for_gpu(lock, done);
  }
  Index& index() { return index_; }
  const Index& index() const { return index_; }
  const RateLimiter& rate_limiter() const { return rate_limiter_; }

  /// Bytes held: region, index, trees, and what is published.
  uint64_t bytes();

  /// A limit in place of the one that it was made with: counts from here on, with the steps that
  /// were ever stored for min_steps. Before anybody reads or writes.
  void set_rate_limiter(const RateLimiter& limiter);

  // ---- updates of priorities; take the lock ----
  /// As Index::update, with the mirrors that hold priorities. Waits, without the lock, for one that
  /// has no room. Updates of one thread keep their order. Throws as check_process().
  uint64_t update(std::span<const int64_t> ids, std::span<const float> priorities);
  /// The same of arrays on a GPU, see Mirror::update: mirrors that hold priorities are sent them,
  /// and this returns at once. Where none does it waits, without the lock, until the stream has
  /// made them.
  void update_from_device(const int64_t* ids, const float* priorities, uint64_t count,
                          uintptr_t stream);

  // ---- under the lock ----
  /// A read that is planned. Pages that go later wait for its end.
  Read begin_read();
  /// Waits until `count` samples are allowed and something is `offered` (null: what is drawn may
  /// lie in other shards).
  bool wait_sample(std::unique_lock<std::mutex>& lock, uint64_t count, const SumTree* offered,
                   std::optional<double> timeout_s);
  /// What was drawn of the index since the last of these, as a batch of so many items: taken from
  /// the rate limiter too, until it is delivered or given back. Ends the caller's hold of the lock,
  /// and wakes who waits for the limiter. The pages that the items lie in are kept until `read`
  /// ends; null: nobody reads them but on the stream that writes them.
  TakenDraws commit(std::unique_lock<std::mutex>& lock, uint64_t items, Read* read);
  /// Nothing of that was drawn.
  void undraw() { index_.give_back(index_.take_draws()); }
  /// While it lives, its thread gathers a batch and waits for other ranks meanwhile, where a signal
  /// handler may call in that very thread: what would wait for this batch's reads throws
  /// InvalidArgument then. Without the lock.
  class Gathers {
   public:
    explicit Gathers(Shard& shard) : shard_(shard) {
      shard_.gathering_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    }
    ~Gathers() { shard_.gathering_.store({}, std::memory_order_relaxed); }
    Gathers(const Gathers&) = delete;
    Gathers& operator=(const Gathers&) = delete;

   private:
    Shard& shard_;
  };

  /// This thread's draw is out from here on, until it is resolved or given up: see above.
  void begin_draw();
  void end_draw();
  /// The mirror on that GPU; made, empty until its sync(), by the first call. Forgotten by a later
  /// call once nobody holds it.
  std::shared_ptr<Mirror> mirror(int device);
  const Mirrors& mirrors() const { return mirrors_; }
  /// One that was made elsewhere, as if mirror() had made it: for tests, which have no GPU.
  void add_mirror(std::shared_ptr<Mirror> mirror) { mirrors_.add(std::move(mirror)); }
  /// Takes back the priorities that mirrors are ahead with. Comes before the index's priorities are
  /// looked at. False, and nothing is done, while a draw is out: then the index may be behind what
  /// GPUs were given.
  ///
  /// Waits for the GPUs that are ahead, without `lock`, until they have done what they were given
  /// so far; then under it for what others gave them meanwhile, as a rule nothing. Throws
  /// InvalidArgument in a forked child of a process that has mirrors: a GPU is its parent's.
  [[nodiscard]] bool settle(std::unique_lock<std::mutex>& lock);
  /// A batch's draws count from here on; or they never did, and may be made again. Both take the
  /// lock. While a draw is out, they wait in the intake.
  void deliver(TakenDraws draws);
  void give_back(TakenDraws draws);
  /// Takes them again, as Index::take_again(); takes the lock, between draws.
  TakenDraws take_again(std::span<const uint64_t> uses, uint64_t draws, uint64_t items, Unit unit);
  /// Wakes who waits in wait_insert() or wait_sample(), after the counts or the index changed.
  void notify_progress() { lock_.notify(); }
  /// From here on every change of the index is published into `memory`: see IndexPublisher. A page
  /// is published as given up before it is written again. Once, before others know this shard.
  void publish_index(std::shared_ptr<memory::Region> memory);

  // ---- under the lock: what an Appender works with ----
  /// Where a writer is: its open episode (kNone: none), the episode's last page and the next row to
  /// fill there.
  struct Place {
    uint32_t episode = kNone;
    uint64_t uid = 0;
    uint32_t page = kNone;
    uint64_t row = 0;
  };
  /// Returns when no draw is out; gives the lock up meanwhile. Throws as lock_between_draws().
  void wait_for_draw(std::unique_lock<std::mutex>& lock);
  /// For how many steps the rate limiter has room; waits until it has for one, and is 0 where it
  /// has none for timeout_s.
  uint64_t wait_insert(std::unique_lock<std::mutex>& lock, std::optional<double> timeout_s);
  /// So many steps are written, or about to be: they take of the rate limiter's room.
  void count_inserted(uint64_t steps) { rate_limiter_.inserted(steps); }
  /// How many episodes are open, each of which keeps a page.
  uint64_t num_open_episodes() const { return index_.chains_.num_open(); }
  /// The episode's next page, at whose begin `at` is then; opens an episode where there is none.
  /// `closing`: for a closing step. Throws as Index::next_page(). Gives the lock up while it waits:
  /// for the end of a draw that is out, for priorities that decide which page goes, for readers of
  /// the page.
  void attach_page(std::unique_lock<std::mutex>& lock, Place& at, bool closing);
  /// Comes before steps that take the largest priority seen so far: while all that the index has
  /// seen are 0, a GPU may know of a larger one. Gives the lock up while it waits for that.
  void settle_largest(std::unique_lock<std::mutex>& lock, std::span<const float> priorities);
  /// The `count` rows behind `at`, in its page, hold steps. `priorities`: one a step, or empty for
  /// the largest seen so far. Readers of the index see them, and who waits is woken, as by the
  /// next two.
  void publish(Place& at, uint64_t count, std::span<const float> priorities);
  /// The same of one step behind each place.
  void publish(std::span<Place* const> places, std::span<const float> priorities);
  /// How an episode ends, and its closing step.
  struct End {
    Place* at;
    uint64_t row;  ///< among the rows of closing steps
    EpisodeState state;
    double weight;
  };
  /// The episodes end, as Index::end_episode(), and their places have none.
  void publish(std::span<const End> ends, uint64_t closing_columns);

  // ---- with or without the lock ----
  /// Whether this is a copy, in a forked child of the process that made the shard.
  bool forked() const noexcept { return origin_.forked(); }
  /// Throws InvalidArgument in a forked child: what `call` changes is the parent's.
  void check_process(std::string_view call) const {
    if (forked()) {
      refuse_change(origin_, call);
    }
  }
  /// Throws InvalidArgument in a forked child, where `call` reads rows and the pages are memory
  /// that the parent goes on writing, or a GPU's.
  void check_rows(std::string_view call) const;
  /// The same where it draws too, and draws are counted for a limit.
  void check_draws(std::string_view call) const;

 private:
  /// The mirrors that hold priorities, all with room for an update; gives the lock up meanwhile.
  /// Throws where an earlier one was refused.
  std::vector<std::shared_ptr<Mirror>> mirrors_to_update(std::unique_lock<std::mutex>& lock);
  /// As Mirrors::give(); those that fail catch up, once no draw is out.
  void give(std::span<const std::shared_ptr<Mirror>> mirrors,
            const std::function<void(Mirror&)>& update);
  uint64_t update_index(std::span<const int64_t> ids, std::span<const float> priorities);
  void add(Place& at, uint64_t count, std::span<const float> priorities);
  /// Behind a change, or several.
  void tell();
  void tell_readers();

  std::shared_ptr<const Schema> schema_;
  ShardOptions options_;
  Pages pages_;
  Index index_;
  RateLimiter rate_limiter_;
  bool draw_is_out_ = false;
  std::thread::id drawing_;                 // the thread that has it out
  std::atomic<std::thread::id> gathering_;  // see Gathers
  Intake intake_;                           // what is to change when it ends
  ReadTickets tickets_;
  Mirrors mirrors_;                            // one uses the row sink of pages_
  std::unique_ptr<IndexPublisher> publisher_;  // null: nobody reads the index but by its lock
  std::vector<float> default_priorities_;      // of a page of steps that were given none
  ShortEpisodes short_episodes_;
  base::Origin origin_;
  ShardLock lock_;
};

}  // namespace gear::store
