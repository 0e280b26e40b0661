#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/errors.h"
#include "expect_message.h"
#include "index_view.h"
#include "store/checkpoint/index_check.h"
#include "store/index/index.h"

using namespace gear::store;
using gear::testing::expect_message;

namespace {

IndexOptions options_of(uint64_t pages, uint64_t page_steps, Evict evict = Evict::kFifo,
                        uint32_t max_times_sampled = 0) {
  return {pages, page_steps, 5, evict, max_times_sampled};
}

// Appends steps as a writer does; returns their ids.
std::vector<int64_t> append(Index& index, uint32_t& e, const std::vector<float>& priorities) {
  std::vector<int64_t> ids;
  for (const float priority : priorities) {
    if (!has_room(index, e)) {
      index.next_page(e);
      index.attach_page(e);
    }
    index.append(e, {&priority, 1});
    const uint32_t tail = index.episode(e).tail;
    ids.push_back(index.id({tail, index.page(tail).rows - 1U}, Unit::kStep));
  }
  return ids;
}

void end(Index& index, uint32_t e, double weight = -1.0) {
  index.end_episode(e, EpisodeState::kTerminated, weight, 0);
}

// A whole episode; returns its steps' ids.
std::vector<int64_t> add_episode(Index& index, uint64_t steps, float priority = 1.0F) {
  uint32_t e = kNone;
  const auto ids = append(index, e, std::vector<float>(steps, priority));
  end(index, e);
  return ids;
}

bool stored(const Index& index, int64_t id) {
  try {
    index.resolve(id);
    return true;
  } catch (const gear::base::InvalidArgument&) {
    return false;
  }
}

uint64_t total(Index& index) { return index.steps().counts().total(); }

int64_t episode_id(int64_t step_id) { return step_id | int64_t{1} << 62; }

}  // namespace

TEST_CASE("ids carry slot, generation, owner and the episode bit") {
  const StepId id{0xfedcba98U, 0x2abcdU, 0xabcU, true};
  const StepId back = StepId::unpack(id.pack());
  CHECK(id.pack() > 0);
  CHECK(back.slot == id.slot);
  CHECK(back.generation == id.generation);
  CHECK(back.owner == id.owner);
  CHECK(back.episode);
  CHECK(id.pack() == ((int64_t{1} << 62) | (int64_t{0xabc} << 50) | (int64_t{0x2abcd} << 32) |
                      int64_t{0xfedcba98}));
}

TEST_CASE("options out of range are refused") {
  CHECK_THROWS_AS(Index(options_of(0, 4)), gear::base::InvalidArgument);
  expect_message<gear::base::InvalidArgument>(
      [] { check_options(options_of(uint64_t{1} << 31, 2)); }, "[buffer]",
      "2147483648 pages of 2 steps", "capacity");
  CHECK_NOTHROW(check_options(options_of((uint64_t{1} << 31) - 1, 2)));
  CHECK_THROWS_AS(check_options(options_of(1, 1, Evict::kFifo, 65536)),
                  gear::base::InvalidArgument);
}

TEST_CASE("a step is offered once the lookahead follows it or its episode ends") {
  Index index(options_of(8, 2));
  const std::shared_ptr<Drawable> three = index.steps(3);
  uint32_t e = kNone;
  append(index, e, {1, 1, 1});
  CHECK(three->counts().total() == 0);
  append(index, e, {1});
  CHECK(three->counts().total() == 1);
  append(index, e, {1, 1});
  CHECK(three->counts().total() == 3);
  CHECK(three->contains({1, 0}));
  CHECK(!three->contains({1, 1}));
  const std::shared_ptr<Drawable> hundred = index.steps(100);
  CHECK(hundred->counts().total() == 0);
  CHECK(index.steps(5)->counts().total() == 1);
  CHECK(three->counts().total() == 3);  // what others need is nothing to it
  CHECK(total(index) == 6);
  CHECK(index.drawables().heads().total() == 0);
  const uint64_t version = three->version();
  uint32_t other = kNone;
  append(index, other, {1, 1});
  CHECK(three->version() == version);
  end(index, e);
  CHECK(three->version() != version);
  CHECK(three->counts().total() == 6);
  CHECK(hundred->counts().total() == 6);
  CHECK(total(index) == 8);
  CHECK(index.drawables().heads().total() == 1);
}

TEST_CASE("a tree of episodes that nobody holds is kept up to date no longer") {
  Index index(options_of(4, 2));
  uint32_t e = kNone;
  const std::vector<int64_t> ids = append(index, e, {1, 1, 1});
  end(index, e);
  const uint64_t before = index.bytes();
  std::shared_ptr<const WeightTree> tree = index.head_weights(0.5);
  CHECK(index.bytes() > before);
  const float priority = 2;
  index.update({ids.data(), 1}, {&priority, 1});
  CHECK(index.bytes() > before);
  tree.reset();
  index.update({ids.data(), 1}, {&priority, 1});
  CHECK(index.bytes() == before);
  CHECK(index.head_weights(0.5)->sums.total() > 0);
}

TEST_CASE("what mirrors give back does not lower the largest priority of all ranks") {
  Index index(options_of(4, 2));
  uint32_t e = kNone;
  append(index, e, {1, 1});
  index.raise_largest(9, 0);
  index.settle(std::vector<double>{-1.0}, 3, 0, 0);
  CHECK(index.state().max_priority == 9);
  index.settle(std::vector<double>{-1.0}, 12, 0, 0);
  CHECK(index.state().max_priority == 12);
}

TEST_CASE("a closing step is stored, never offered and has no id") {
  Index index(options_of(4, 2));
  uint32_t e = kNone;
  const auto ids = append(index, e, {1});
  index.end_episode(e, EpisodeState::kTruncated, -1.0, 0b10);
  CHECK(index.page(0).rows == 2);
  CHECK(total(index) == 1);
  CHECK(index.state().num_steps == 1);
  CHECK(!stored(index, ids[0] + 1));
  CHECK(index.episode(e).closing_columns == 0b10);
}

TEST_CASE("an episode without a step disappears, with a closing step too") {
  Index index(options_of(2, 2));
  uint32_t e = kNone;
  index.attach_page(e);
  end(index, e);
  CHECK(index.state().num_episodes == 0);
  e = kNone;
  index.attach_page(e);
  index.end_episode(e, EpisodeState::kTerminated, -1.0, 1);
  CHECK(index.state().num_episodes == 0);
  CHECK(index.state().free_pages.size() == 2);
  CHECK(index.state().next_uid == 3);
}

TEST_CASE("fifo gives up the page of the oldest step, of whatever episode") {
  Index index(options_of(4, 2));
  uint32_t a = kNone;
  uint32_t b = kNone;
  const auto a0 = append(index, a, {1, 1});     // page 0
  const auto b0 = append(index, b, {1});        // page 1
  const auto a2 = append(index, a, {1, 1});     // page 2
  const auto b1 = append(index, b, {1, 1, 1});  // page 1, then 3
  const auto c = add_episode(index, 1);
  CHECK(!stored(index, a0[0]));
  CHECK(index.episode(a).begin == 2);
  const auto a4 = append(index, a, {1});
  CHECK(!stored(index, b0[0]));  // older than a2, though its episode is younger
  CHECK(index.episode(b).begin == 2);
  CHECK(stored(index, a2[0]));
  end(index, b);
  append(index, a, {1, 1});
  CHECK(!stored(index, a2[0]));
  add_episode(index, 1);
  CHECK(!stored(index, b1[2]));
  CHECK(stored(index, c[0]));
  CHECK(stored(index, a4[0]));
}

TEST_CASE("the last page of an open episode stays, and goes in its turn once it may") {
  Index index(options_of(3, 2));
  uint32_t open = kNone;
  const auto first = append(index, open, {1, 1});
  std::vector<int64_t> last;
  for (int i = 0; i < 4; ++i) {
    last = add_episode(index, 2);
    CHECK(stored(index, first[0]));
  }
  end(index, open);
  add_episode(index, 1);
  CHECK(!stored(index, first[0]));
  CHECK(stored(index, last[0]));
}

TEST_CASE("lifo gives up the newest ended episode, oldest page first") {
  Index index(options_of(4, 2, Evict::kLifo));
  uint32_t open = kNone;
  append(index, open, {1});
  const auto older = add_episode(index, 2);
  const auto newer = add_episode(index, 4);
  append(index, open, {1, 1});
  CHECK(stored(index, older[0]));
  CHECK(!stored(index, newer[1]));
  CHECK(stored(index, newer[2]));
}

TEST_CASE("lowest_priority gives up the ended episode of the lowest priority, ties oldest") {
  Index index(options_of(3, 2, Evict::kLowestPriority));
  const auto a = add_episode(index, 2, 3.0F);
  const auto b = add_episode(index, 2, 2.0F);
  const auto c = add_episode(index, 2, 2.0F);
  const auto d = add_episode(index, 2, 9.0F);
  CHECK((stored(index, a[0]) && !stored(index, b[0]) && stored(index, c[0])));
  index.update(std::vector<int64_t>{a[0], a[1]}, std::vector<float>{1.0F, 2.0F});  // mean 1.5
  const auto e = add_episode(index, 2, 9.0F);
  CHECK((!stored(index, a[0]) && stored(index, c[0])));
  index.update(std::vector<int64_t>{episode_id(d[0])}, std::vector<float>{0.5F});
  add_episode(index, 2, 0.0F);
  CHECK((!stored(index, d[0]) && stored(index, c[0]) && stored(index, e[0])));
}

TEST_CASE("pages that open episodes write to cannot be evicted") {
  for (const Evict evict : {Evict::kFifo, Evict::kLifo, Evict::kLowestPriority}) {
    Index index(options_of(2, 2, evict));
    uint32_t a = kNone;
    uint32_t b = kNone;
    append(index, a, {1});
    append(index, b, {1});
    expect_message<gear::base::OutOfMemory>([&] { index.next_page(kNone); }, "each of the 2 pages",
                                            "raise capacity");
    const auto ids = append(index, b, {1});
    CHECK_THROWS_AS(index.next_page(kNone), gear::base::OutOfMemory);  // full, and still its own
    const auto next = append(index, b, {1});
    CHECK(!stored(index, ids[0]));
    CHECK(stored(index, next[0]));
    CHECK(index.episode(b).begin == 2);
    CHECK(index.episode(b).head == 1);
    end(index, a);
    uint32_t c = kNone;
    CHECK(stored(index, append(index, c, {1})[0]));
  }
}

TEST_CASE("an episode that empties its only page keeps it while it waits to fill it") {
  for (const Evict evict : {Evict::kFifo, Evict::kLifo, Evict::kLowestPriority}) {
    Index index(options_of(2, 2, evict));
    uint32_t a = kNone;
    uint32_t b = kNone;
    append(index, a, {1, 1});
    append(index, b, {1, 1});
    CHECK(index.next_page(a) == 0);
    CHECK(index.episode(a).head == 0);
    CHECK(index.page(0).rows == 0);
    CHECK(index.next_page(b) == 1);
    CHECK_THROWS_AS(index.next_page(kNone), gear::base::OutOfMemory);
    CHECK(index.next_page(a) == 0);
    CHECK(index.attach_page(a) == 0);
    CHECK_NOTHROW(check_index(index));
    append(index, a, {1});
    CHECK(index.episode(a).begin == 2);
    CHECK(index.episode(a).end == 3);
    CHECK(index.state().num_steps == 1);
  }
}

TEST_CASE("ids of evicted steps are stale, even when their page is in use again") {
  Index index(options_of(1, 4));
  const auto old = add_episode(index, 4);
  const auto young = add_episode(index, 4);
  CHECK(old[0] != young[0]);
  CHECK(StepId::unpack(old[0]).slot == StepId::unpack(young[0]).slot);
  CHECK(index.update(std::vector<int64_t>{old[0], young[1], old[2]}, std::vector<float>{5, 6, 7}) ==
        1);
  CHECK(index.state().counters.stale_updates == 2);
  CHECK(index.priority({0, 0}) == 1.0F);
  CHECK(index.priority({0, 1}) == 6.0F);
  CHECK(index.state().max_priority == 6.0F);
  expect_message<gear::base::InvalidArgument>([&] { index.resolve(old[0]); }, "evicted");
}

TEST_CASE("an update with one wrong pair changes nothing") {
  Index index(options_of(2, 4));
  const auto ids = add_episode(index, 4);
  const auto expect_refused = [&](int64_t id, float priority, const char* part) {
    expect_message<gear::base::InvalidArgument>(
        [&] { index.update(std::vector<int64_t>{ids[0], id}, std::vector<float>{8.0F, priority}); },
        "position 1", part, "nothing was updated");
    CHECK(index.priority({0, 0}) == 1.0F);
  };
  expect_refused(ids[1], std::numeric_limits<float>::quiet_NaN(), "nan");
  expect_refused(ids[1], std::numeric_limits<float>::infinity(), "inf");
  expect_refused(ids[1], -1.0F, "-1");
  expect_refused(-1, 1.0F, "not of this buffer");
  expect_refused(ids[1] ^ int64_t{1} << 50, 1.0F, "not of this buffer");  // another owner
  expect_refused(ids[1] + 8, 1.0F, "not of this buffer");                 // beyond the slots
  CHECK(index.update({}, {}) == 0);
}

TEST_CASE("priorities that are not given are the largest so far") {
  Index index(options_of(4, 4));
  uint32_t e = kNone;
  append(index, e, {-1, 3, -1, 0.5F, -1});
  const float wanted[] = {1, 3, 3, 0.5F, 3};
  for (uint32_t i = 0; i < 5; ++i) {
    CHECK(index.priority({i / 4, i % 4}) == wanted[i]);
  }
}

TEST_CASE("a priority of -0.0 is a priority of 0") {
  const IndexOptions options = options_of(2, 4);
  Index index(options);
  uint32_t e = kNone;
  append(index, e, {-0.0F, -0.0F});
  CHECK(!std::signbit(index.slots().priorities[1]));
  CHECK_NOTHROW(check_index(index));
}

TEST_CASE("an episode's priority is its weight, or the mean of its stored steps") {
  Index index(options_of(3, 2));
  uint32_t e = kNone;
  const auto ids = append(index, e, {1, 2, 3, 6});
  CHECK(episode_priority(index.state(), index.episode(e)) == 3.0);
  end(index, e);
  add_episode(index, 4);
  CHECK(episode_priority(index.state(), index.episode(e)) == 4.5);
  index.update(std::vector<int64_t>{ids[3]}, std::vector<float>{0});
  CHECK(episode_priority(index.state(), index.episode(e)) == 1.5);
  const auto held = index.head_weights(1.0);
  const SumTree& weights = held->sums;
  const auto weight = [&] {
    return std::ldexp(weights[index.episode(e).head], -held->scale.shift);
  };
  CHECK(weight() == 1.5);
  CHECK(index.update(std::vector<int64_t>{episode_id(ids[0])}, std::vector<float>{7}) == 0);
  CHECK(index.update(std::vector<int64_t>{episode_id(ids[3])}, std::vector<float>{7}) == 0);
  CHECK(index.update(std::vector<int64_t>{episode_id(ids[2])}, std::vector<float>{7}) == 1);
  CHECK(episode_priority(index.state(), index.episode(e)) == 7.0);
  CHECK(weight() == 7.0);
}

TEST_CASE("a step drawn max_times_sampled times is offered no more, a spent episode is freed") {
  Index index(options_of(4, 2, Evict::kFifo, 2));
  const auto held = index.steps(0)->weights(0.6);
  const SumTree& weights = held->sums;
  add_episode(index, 3);
  CHECK(index.steps().nth(0, 0) == 0);
  index.mark_sampled({0, 0}, Unit::kStep);
  CHECK(total(index) == 3);
  index.mark_sampled({0, 0}, Unit::kStep);
  CHECK(total(index) == 2);
  CHECK(weights[0] == 0);
  CHECK(!index.steps().contains(Anchor{0, 0}));
  CHECK(index.steps().nth(0, 0) == 1);
  for (int i = 0; i < 2; ++i) {
    index.mark_sampled({0, 1}, Unit::kStep);
  }
  for (int i = 0; i < 2; ++i) {
    index.mark_sampled({1, 0}, Unit::kStep);
  }
  CHECK(index.state().num_episodes == 1);  // a plan may still need its pages
  index.deliver(index.take_draws());
  CHECK(index.state().num_episodes == 0);
  CHECK(index.state().free_pages.size() == 4);
  CHECK(weights.total() == 0);
}

TEST_CASE("an open episode is freed when it ends with every step spent") {
  Index index(options_of(4, 2, Evict::kLowestPriority, 1));
  uint32_t e = kNone;
  append(index, e, {1, 1, 1});
  for (const Anchor anchor : {Anchor{0, 0}, Anchor{0, 1}, Anchor{1, 0}}) {
    index.mark_sampled(anchor, Unit::kStep);
  }
  index.deliver(index.take_draws());
  CHECK(index.state().num_episodes == 1);
  end(index, e);
  CHECK(index.state().num_episodes == 0);
  add_episode(index, 2);
  index.mark_sampled({index.episode(0).head, 0}, Unit::kEpisode);
  CHECK(index.drawables().heads().total() == 0);
  index.deliver(index.take_draws());
  CHECK(index.state().free_pages.size() == 4);
}

TEST_CASE("an episode whose last unspent step is evicted is freed") {
  Index index(options_of(3, 2, Evict::kFifo, 1));
  add_episode(index, 4);
  for (const uint32_t row : {0U, 1U}) {
    index.mark_sampled({1, row}, Unit::kStep);
  }
  index.deliver(index.take_draws());
  add_episode(index, 4);  // takes the head page; what is left of the first episode is spent
  CHECK(index.state().num_episodes == 1);
}

TEST_CASE("what a batch gives back is drawn again in its place, and delivered it is spent") {
  Index index(options_of(6, 2, Evict::kFifo, 1));
  const auto held = index.steps(0)->weights(0.6);
  const SumTree& weights = held->sums;
  add_episode(index, 6);
  const uint64_t weight = weights.total();
  const auto draw = [&](uint32_t page) {
    index.mark_sampled({page, 0}, Unit::kStep);
    index.mark_sampled({page, 1}, Unit::kStep);
    return index.take_draws();
  };
  // Of the pages in time order the middle one comes back last, between the two others.
  const TakenDraws first = draw(0);
  const TakenDraws second = draw(1);
  const TakenDraws third = draw(2);
  CHECK(total(index) == 0);
  CHECK(index.drawables().heads().total() == 0);
  CHECK(index.drawables().draws().times_delivered(0) == 0);
  for (const TakenDraws& draws : {third, first, second}) {
    index.give_back(draws);
  }
  CHECK(total(index) == 6);
  CHECK(weights.total() == weight);
  CHECK(index.drawables().heads().total() == 1);
  CHECK(index.state().counters.steps_sampled == 0);
  const Drawable& steps = index.steps();
  CHECK(steps.first(0) == 0);
  CHECK(steps.next(0) == 1);
  CHECK(steps.next(1) == 2);
  CHECK(steps.next(2) == kNone);
  CHECK(steps.previous(1) == 0);
  CHECK(steps.last(0) == 2);
  // Taken again by the names that a loader's state keeps; two of the six are not there any more.
  std::vector<uint64_t> names;
  for (const Use& use : first.uses) {
    names.push_back(use.name);
  }
  names.push_back(uint64_t{1} << 40);
  names.push_back(~uint64_t{0});
  const TakenDraws again = index.take_again(names, 2, Unit::kStep);
  CHECK(again.uses.size() == 2);
  CHECK(total(index) == 4);
  index.deliver(again);
  CHECK(index.state().counters.steps_sampled == 2);
  CHECK(index.drawables().draws().times_delivered(0) == 1);
  index.deliver(draw(1));
  const TakenDraws rest = draw(2);
  CHECK(index.state().num_episodes == 1);  // it may come back yet
  index.deliver(rest);
  CHECK(index.state().num_episodes == 0);
}

TEST_CASE("what is given back after its page went, or a whole episode, is told apart") {
  Index index(options_of(3, 2, Evict::kFifo, 1));
  add_episode(index, 2);
  add_episode(index, 4);
  index.mark_sampled({index.episode(0).head, 0}, Unit::kEpisode);
  const TakenDraws whole = index.take_draws();
  index.mark_sampled({index.episode(1).head, 0}, Unit::kEpisode);
  const TakenDraws other = index.take_draws();
  CHECK(index.drawables().heads().total() == 0);
  add_episode(index, 2);  // takes the page of the first
  index.give_back(whole);
  index.give_back(other);
  CHECK(index.drawables().heads().total() == 2);
  CHECK(index.state().num_episodes == 2);
  const uint64_t uid = index.episode(1).uid;
  const TakenDraws again = index.take_again(std::vector<uint64_t>{uid, 99}, 1, Unit::kEpisode);
  CHECK(again.uses.size() == 1);
  CHECK(index.drawables().heads().total() == 1);
  index.deliver(again);
  CHECK(index.state().num_episodes == 1);
}

TEST_CASE("an episode that comes back whole, with every step spent meanwhile, is freed") {
  Index index(options_of(3, 2, Evict::kFifo, 1));
  add_episode(index, 2);
  index.mark_sampled({0, 0}, Unit::kEpisode);
  const TakenDraws whole = index.take_draws();
  index.mark_sampled({0, 0}, Unit::kStep);
  index.mark_sampled({0, 1}, Unit::kStep);
  index.deliver(index.take_draws());
  CHECK(index.state().num_episodes == 1);  // it may come back yet
  index.give_back(whole);
  CHECK(index.state().num_episodes == 0);
  CHECK(index.state().free_pages.size() == 3);
}

TEST_CASE("an episode that loses a page with spent steps lives until its last step is spent") {
  Index index(options_of(3, 2, Evict::kFifo, 1));
  add_episode(index, 4);
  index.mark_sampled({0, 1}, Unit::kStep);
  add_episode(index, 4);  // takes the head page, of whose steps one was spent
  for (const uint32_t row : {0U, 1U}) {
    CHECK(index.state().num_episodes == 2);
    index.mark_sampled({1, row}, Unit::kStep);
    index.deliver(index.take_draws());
  }
  CHECK(index.state().num_episodes == 1);
}

TEST_CASE("an open episode without a writer is adopted once") {
  Index index(options_of(4, 2));
  uint32_t e = kNone;
  append(index, e, {1});
  expect_message<gear::base::InvalidArgument>([&] { index.adopt_episode(1); }, "has a writer");
  IndexState saved = index.state();
  saved.episodes[e].has_writer = false;  // as a checkpoint has it
  Index loaded(index.options(), std::move(saved), saved_slots(index));
  CHECK(loaded.adopt_episode(1) == e);
  CHECK_THROWS_AS(loaded.adopt_episode(1), gear::base::InvalidArgument);
  end(loaded, e);
  expect_message<gear::base::InvalidArgument>([&] { loaded.adopt_episode(1); }, "has ended");
  expect_message<gear::base::InvalidArgument>([&] { loaded.adopt_episode(9); }, "no episode 9");
}
