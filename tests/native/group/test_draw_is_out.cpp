// What reaches a shard while a draw over all ranks is out: the batch is the one that was offered,
// nobody who needs no page waits, and what came is taken in afterwards.
#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "drawing_rank.h"
#include "expect_message.h"
#include "transport/loopback.h"

using namespace gear::group;
using namespace gear::plan;
using namespace gear::store;
using namespace gear::testing;
using gear::select::Policy;
using gear::transport::Bytes;
using gear::transport::ConstBytes;
using gear::transport::Transport;

namespace {

std::vector<std::byte> bytes_of(const std::vector<Parcel>& parcels) {
  std::vector<std::byte> all;
  for (const Parcel& one : parcels) {
    all.insert(all.end(), one.bytes.begin(), one.bytes.end());
  }
  return all;
}

// Steps and episodes of a rank, in the course of one test.
struct Story {
  explicit Story(Rank& of) : rank(of) {}

  // Leaves the open episodes with room for what changes_without_a_page() appends.
  void prepare() {
    add_episode(*rank.other, rank.next_episode++, 2);
    append_to_open(steps % kPageSteps == 0 ? 1 : kPageSteps - steps % kPageSteps + 1);
    append(*rank.other, rank.next_episode, 0, 3);
  }
  void append_to_open(uint64_t count) {
    append(*rank.open, 1000, steps, count);
    steps += count;
  }
  void changes_without_a_page() {
    append_to_open(2);
    rank.other->end_episode(EpisodeState::kTruncated, 0.5, {});
    ++rank.next_episode;
    if (rank.shard->options().max_times_sampled > 0) {
      return;  // the draw itself takes steps away
    }
    const std::vector<int64_t> ids = stored_ids();
    std::vector<float> priorities;
    for (size_t i = 0; i < ids.size(); ++i) {
      priorities.push_back(static_cast<float>((steps + i) % 5));
    }
    expect(rank.shard->update(ids, priorities) == ids.size(), "updates were not applied");
  }
  void changes_with_pages() {
    Writer writer(rank.shard);
    for (int i = 0; i < 3; ++i) {
      add_episode(writer, rank.next_episode++, 5);
    }
  }

 private:
  std::vector<int64_t> stored_ids() const {
    const auto lock = rank.shard->lock();
    const Index& index = rank.shard->index();
    std::vector<int64_t> ids;
    for (uint32_t page = 0; page < kPages; ++page) {
      if (index.page(page).anchors > 0) {
        ids.push_back(index.id({page, 0}, Unit::kStep));
      }
    }
    return ids;
  }

  Rank& rank;
  uint64_t steps = 0;
};

const Law kLaws[] = {{Policy::kUniform},
                     {Policy::kUniform, Unit::kEpisode},
                     {Policy::kWeighted},
                     {Policy::kWeighted, Unit::kEpisode},
                     {Policy::kTopK},
                     {Policy::kTopK, Unit::kEpisode},
                     {Policy::kFifo, Unit::kStep, 1},
                     {Policy::kLifo, Unit::kEpisode, 2}};

// The batches of a group, one after the other, and the content at the end.
using Told = std::vector<std::vector<std::byte>>;

template <class Draw>
std::vector<Told> told_by_ranks(uint32_t size, const Law& law, const Draw& draw) {
  auto ranks = gear::transport::make_loopback(size, 200);
  std::vector<Told> told(size);
  const auto errors = errors_of(ranks, [&](Transport& control) {
    Rank rank(control, law);
    Story story(rank);
    for (int round = 0; round < 12; ++round) {
      story.prepare();
      told[control.rank()].push_back(bytes_of(draw(rank, story)));
    }
    const auto priorities = std::as_bytes(std::span(rank.shard->index().slots().priorities));
    told[control.rank()].push_back({priorities.begin(), priorities.end()});
  });
  for (const std::string& error : errors) {
    REQUIRE(error == "");
  }
  return told;
}

}  // namespace

TEST_CASE("what comes while a draw is out, from its own thread, comes after it") {
  for (const Law& law : kLaws) {
    CAPTURE(static_cast<int>(law.policy));
    CAPTURE(static_cast<int>(law.unit));
    const auto during = told_by_ranks(2, law, [](Rank& rank, Story& story) {
      rank.during([&](ConstBytes) { story.changes_without_a_page(); });
      return rank.draw();
    });
    const bool by_chance = law.policy == Policy::kUniform || law.policy == Policy::kWeighted;
    const auto later = told_by_ranks(2, law, [&](Rank& rank, Story& story) {
      rank.during([&](ConstBytes) { story.changes_without_a_page(); }, by_chance);
      return rank.draw();
    });
    const auto after = told_by_ranks(2, law, [](Rank& rank, Story& story) {
      auto parcels = rank.draw();
      story.changes_without_a_page();
      return parcels;
    });
    CHECK(during == after);
    CHECK(later == after);
  }
}

TEST_CASE("other threads go on while a draw is out, but for the pages that they need") {
  for (const Law& law : kLaws) {
    CAPTURE(static_cast<int>(law.policy));
    CAPTURE(static_cast<int>(law.unit));
    const auto during = told_by_ranks(3, law, [](Rank& rank, Story& story) {
      std::thread needs_pages;
      rank.during([&](ConstBytes) {
        std::thread([&] { story.changes_without_a_page(); }).join();
        needs_pages = std::thread([&] { story.changes_with_pages(); });
        std::this_thread::yield();
      });
      auto parcels = rank.draw_ahead();
      needs_pages.join();
      rank.taken.deliver();
      return parcels;
    });
    const auto after = told_by_ranks(3, law, [](Rank& rank, Story& story) {
      auto parcels = rank.draw_ahead();
      story.changes_without_a_page();
      story.changes_with_pages();
      rank.taken.deliver();
      return parcels;
    });
    CHECK(during == after);
  }
}

TEST_CASE("a page for the thread that draws, and a second draw in it, are refused") {
  auto ranks = gear::transport::make_loopback(1, 200);
  Rank rank(*ranks[0], {Policy::kUniform});
  Story story(rank);
  story.prepare();
  bool interrupted = false;
  rank.during([&](ConstBytes) {
    if (std::exchange(interrupted, true)) {
      return;
    }
    constexpr const char* kWhy = "[buffer] this call would disturb a draw over all ranks";
    expect_message<gear::base::InvalidArgument>([&] { story.changes_with_pages(); }, kWhy);
    expect_message<gear::base::InvalidArgument>([&] { rank.draw(); }, kWhy);
  });
  rank.draw();
  CHECK(interrupted);
  story.changes_with_pages();  // and allowed again
  rank.draw();
}

TEST_CASE("a draw that fails lets in what came meanwhile") {
  auto ranks = gear::transport::make_loopback(1, 200);
  Rank rank(*ranks[0], {Policy::kUniform});
  Story story(rank);
  story.prepare();
  const uint64_t before = rank.shard->index().state().num_steps;
  rank.during([&](ConstBytes) {
    story.append_to_open(2);
    throw gear::base::TransportError("rank 1 is lost");
  });
  expect_message<gear::base::TransportError>([&] { rank.draw(); }, "rank 1 is lost");
  CHECK(rank.shard->index().state().num_steps == before + 2);
  story.changes_with_pages();  // nobody waits for a draw any more
}
