// Who waits for a GPU, and whether others wait with them: a mirror that says how far it has come.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/errors.h"
#include "described_rows.h"
#include "store/checkpoint/snapshot.h"
#include "store/shard.h"
#include "temporary_folder.h"

using namespace gear::store;
using namespace gear::testing;
using namespace std::chrono_literals;

namespace {

constexpr auto kDeadline = 20s;  // of what never comes where somebody waits with the lock held

class SlowMirror final : public Mirror {
 public:
  int device() const override { return 0; }
  void sync() override {}
  bool has_room() const override {
    ++asked;
    return room;
  }
  bool ahead() const override { return ahead_; }
  bool holds_priorities() const override { return true; }
  void update(const int64_t*, const float*, uint64_t, bool, uintptr_t) override {
    CHECK(room);
    if (fails) {
      throw gear::base::OutOfMemory("[test] no memory for an update");
    }
    ahead_ = true;
    ++updates;
  }
  void raise_failed_update() override {}
  bool unsettled() const override { return ahead_; }
  void mark() override {}
  bool reached() const override {
    ++asked;
    return done;
  }
  void settle() override {
    CHECK(done);
    settled += ahead_ ? 1 : 0;
    ahead_ = false;
  }
  void settled_elsewhere() override { ahead_ = false; }
  void start_over() override {
    ahead_ = false;
    ++started_over;
  }

  std::atomic<bool> room{true};
  std::atomic<bool> done{true};
  mutable std::atomic<int> asked{0};
  std::atomic<bool> fails{false};
  std::atomic<int> updates{0};
  std::atomic<int> settled{0};
  std::atomic<int> started_over{0};

 private:
  std::atomic<bool> ahead_{false};
};

struct World {
  World() { add_episode(writer, 0, 8); }

  std::shared_ptr<SlowMirror> add_mirror() {
    auto mirror = std::make_shared<SlowMirror>();
    const auto lock = shard->lock();
    shard->add_mirror(mirror);
    return mirror;
  }
  void update() {
    std::vector<int64_t> ids;
    {
      const auto lock = shard->lock();
      ids.push_back(shard->index().id({0, 1}, Unit::kStep));
    }
    const float priority = 2;
    shard->update(ids, {&priority, 1});
  }

  std::shared_ptr<Shard> shard = std::make_shared<Shard>(schema(), options_of(64));
  Writer writer{shard};
};

// Runs `work`, which waits until `flag`, in a thread of its own; appends meanwhile, and sets it.
template <class Work>
void check_that_appends_go_on(World& world, SlowMirror& mirror, std::atomic<bool>& flag,
                              const Work& work) {
  mirror.asked = 0;
  flag = false;
  std::atomic<bool> appended = false;
  std::thread waits(work);
  std::thread rescue([&] {
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (!appended && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(1ms);
    }
    flag = true;
  });
  while (mirror.asked == 0) {
    std::this_thread::yield();
  }
  append(world.writer, 1, 0, 3);
  CHECK(!flag);
  appended = true;
  rescue.join();
  waits.join();
}

}  // namespace

TEST_CASE("appends go on while an update waits for a GPU to have room") {
  World world;
  const auto mirror = world.add_mirror();
  check_that_appends_go_on(world, *mirror, mirror->room, [&] { world.update(); });
  CHECK(mirror->updates == 1);
}

TEST_CASE("appends go on while somebody waits for the priorities of a GPU") {
  World world;
  const auto mirror = world.add_mirror();
  world.update();
  check_that_appends_go_on(world, *mirror, mirror->done, [&] {
    auto lock = world.shard->lock();
    CHECK(world.shard->settle(lock));
  });
  CHECK(mirror->settled == 1);
}

TEST_CASE("a save waits for the end of a draw, and holds what a GPU was ahead with") {
  const TemporaryFolder folder;
  World world;
  const auto mirror = world.add_mirror();
  {
    const auto lock = world.shard->lock();
    world.shard->begin_draw();
  }
  save_shard(*world.shard, folder / "alike");  // nothing is ahead
  world.update();
  CHECK_THROWS_AS(save_shard(*world.shard, folder / "own"), gear::base::InvalidArgument);
  {
    auto lock = world.shard->lock();
    CHECK(!world.shard->settle(lock));
  }
  std::thread saves([&] { save_shard(*world.shard, folder / "saved"); });
  std::this_thread::sleep_for(20ms);
  CHECK(mirror->settled == 0);
  {
    const auto lock = world.shard->lock();
    world.shard->end_draw();
  }
  saves.join();
  CHECK(mirror->settled == 1);
}

TEST_CASE("a mirror that misses an update takes it from one that did not, by way of the index") {
  for (const bool in_a_draw : {false, true}) {
    World world;
    const auto first = world.add_mirror();
    const auto second = world.add_mirror();
    world.update();
    first->fails = true;
    if (in_a_draw) {
      const auto lock = world.shard->lock();
      world.shard->begin_draw();
    }
    world.update();
    if (in_a_draw) {
      CHECK(first->started_over == 0);
      const auto lock = world.shard->lock();
      world.shard->end_draw();
    }
    CHECK(second->updates == 2);
    CHECK(second->settled == 1);
    CHECK(first->settled == 0);  // it would have spoken for the update that it missed
    CHECK(first->started_over == 1);
  }
}

TEST_CASE("an update that every mirror refuses is refused, and nothing is sent anew") {
  World world;
  const auto first = world.add_mirror();
  const auto second = world.add_mirror();
  first->fails = second->fails = true;
  CHECK_THROWS_AS(world.update(), gear::base::OutOfMemory);
  CHECK(first->started_over + second->started_over == 0);
}
