// What ranks agree on before a loader of all of them is made.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "described_rows.h"
#include "group/group_loader.h"
#include "memory/shared/made_up_name.h"
#include "memory/shared/shared_region.h"
#include "ranks.h"
#include "scoped_variable.h"
#include "transport/loopback.h"
#include "transport/one_sided/forwarding.h"
#include "transport/one_sided_kinds.h"

using namespace gear;
using namespace gear::testing;

namespace {

std::shared_ptr<store::Shard> shard_of(uint32_t rank, memory::Tier tier = memory::Tier::kHost) {
  store::ShardOptions options = options_of(16);
  options.owner = rank;
  options.tier = tier;
  options.name = tier == memory::Tier::kShared ? memory::made_up_name() : "";
  return std::make_shared<store::Shard>(schema(), options);
}

std::shared_ptr<group::Peers> peers_of(transport::Transport& control,
                                       std::shared_ptr<store::Shard> shard) {
  return std::make_shared<group::Peers>(std::move(shard),
                                        std::shared_ptr<transport::Transport>(control.duplicate()),
                                        std::vector<uint32_t>(control.size(), 0), false);
}

deliver::LoaderOptions options(uint64_t batch_size) {
  deliver::LoaderOptions made;
  made.outputs = {{"row", 0, 0, 1, plan::Pad::kBoth, false}};
  made.batch_size = batch_size;
  return made;
}

std::string refusal(const std::shared_ptr<group::Peers>& peers,
                    const deliver::LoaderOptions& given) {
  try {
    group::make_pipeline(peers, {peers->shard(), given}, {});
  } catch (const base::InvalidArgument& error) {
    return error.what();
  }
  return "";
}

// All that a rank is given in `batches` batches, with appends that evict in between.
std::vector<std::byte> delivered(transport::Transport& control, memory::Tier tier,
                                 const deliver::LoaderOptions& given, group::Locality locality,
                                 int batches) {
  const auto shard = shard_of(control.rank(), tier);
  const auto peers = peers_of(control, shard);
  store::Writer writer(shard);
  uint64_t episode = 100 * control.rank();
  for (int n = 0; n < 6; ++n) {
    add_episode(writer, episode++, 3);
  }
  const auto pipeline = group::make_pipeline(peers, {*shard, given}, {.locality = locality});
  std::vector<std::byte> all;
  for (int n = 0; n < batches; ++n) {
    plan::Batch batch;
    expect(pipeline->next(200, batch) == deliver::Pipeline::Next::kBatch, "no batch");
    expect(wrong_rows(batch) == 0, "wrong rows");
    const std::byte* const block = batch.block.get();
    all.insert(all.end(), block, block + batch.layout->data.front());
    const auto* rows = batch.at<std::byte>(batch.layout->data[0]);
    all.insert(all.end(), rows, rows + batch.items * sizeof(Row));
    add_episode(writer, episode++, 1 + n % 4);
  }
  return all;
}

// What rank 1 receives of parcels is damaged, and what it hears of reads is lost to it alone.
class Faulty final : public transport::Forwarding {
 public:
  Faulty(std::unique_ptr<transport::Transport> inner, bool damages)
      : Forwarding(*inner), owned_(std::move(inner)), damages_(damages) {}

  std::span<const transport::ConstBytes> exchange_sparse(std::span<const transport::ConstBytes> to,
                                                         std::span<const uint8_t> from) override {
    const auto came = inner_.exchange_sparse(to, from);
    if (rank() != 1 || !damages_) {
      return came;
    }
    damaged_.assign(came.begin(), came.end());
    for (uint32_t r = 0; r < size(); ++r) {
      if (r != rank() && !came[r].empty()) {
        bytes_.assign(came[r].begin(), came[r].end());
        bytes_[0] = std::byte{255};
        damaged_[r] = bytes_;
      }
    }
    return damaged_;
  }
  std::span<const transport::ConstBytes> exchange(std::span<const transport::ConstBytes> to,
                                                  std::span<const uint64_t> sizes) override {
    const auto came = inner_.exchange(to, sizes);
    if (rank() == 1 && !damages_ && failing) {
      throw base::TransportError("[transport] nobody says what has been read");
    }
    return came;
  }
  std::unique_ptr<transport::Transport> duplicate() override {
    auto twin = std::make_unique<Faulty>(inner_.duplicate(), damages_);
    twin_ = twin.get();
    return twin;
  }
  void fail() {
    failing = true;
    if (twin_ != nullptr) {
      twin_->fail();
    }
  }

  bool failing = false;

 private:
  std::unique_ptr<transport::Transport> owned_;
  bool damages_;
  Faulty* twin_ = nullptr;  // the last, which a source has for its rows
  std::vector<transport::ConstBytes> damaged_;
  std::vector<std::byte> bytes_;
};

}  // namespace

// Sent and read by pointer, with and without look-ahead.
TEST_CASE("group loader: batches are the same in whose thread they are carried out") {
  for (const memory::Tier tier : {memory::Tier::kHost, memory::Tier::kShared}) {
    for (const auto locality : {group::Locality::kFirst, group::Locality::kOff}) {
      for (const uint64_t prefetch : {0U, 2U}) {
        std::vector<std::vector<std::byte>> both[2];
        for (const bool by_own_thread : {false, true}) {
          auto ranks = transport::make_loopback(3, 200);
          auto& all = both[by_own_thread ? 1 : 0];
          all.resize(3);
          for (const std::string& error : errors_of(ranks, [&](transport::Transport& control) {
                 deliver::LoaderOptions given = options(4);
                 given.outputs = windows();
                 given.prefetch = prefetch;
                 if (by_own_thread) {
                   given.hand_over_bytes = 0;
                 }
                 all[control.rank()] = delivered(control, tier, given, locality, 40);
               })) {
            CHECK(error == "");
          }
        }
        CHECK(both[0] == both[1]);
        CHECK(both[0][0].size() > 10'000);
      }
    }
  }
}

TEST_CASE("group loader: what fails on one rank alone ends its call, not that of a later batch") {
  auto ranks = transport::make_loopback(3, 3);  // in which the others miss rank 1
  std::vector<std::string> said(3);
  for (const std::string& error : errors_of(ranks, [&](transport::Transport& control) {
         const auto shard = shard_of(control.rank(), memory::Tier::kShared);
         const auto faulty = std::make_shared<Faulty>(control.duplicate(), true);
         const auto peers =
             std::make_shared<group::Peers>(shard, faulty, std::vector<uint32_t>(3, 0), false);
         store::Writer writer(shard);
         add_episode(writer, control.rank(), 9);
         deliver::LoaderOptions given = options(5);
         given.prefetch = 2;
         given.sampler.policy = select::Policy::kUniform;
         const auto pipeline =
             group::make_pipeline(peers, {*shard, given}, {.locality = group::Locality::kOff});
         try {
           plan::Batch batch;
           pipeline->next(200, batch);
         } catch (const base::TransportError& damaged) {
           said[control.rank()] = damaged.what();
           if (control.rank() == 1) {
             expect(pipeline->out_of_step(), "the others wait for this rank");
           }
         }
       })) {
    CHECK(error == "");
  }
  INFO(said[0]);
  CHECK(said[0].find("rank 1") != std::string::npos);
  CHECK(said[1].find("it has more items than the batch") != std::string::npos);
}

TEST_CASE("group loader: what others may still read one-sided is not written after a failure") {
  const ScopedVariable no_packing("GEAR_PACK_BELOW", "0");
  for (const OneSidedKind& kind : kOneSidedKinds) {
    if (!seen_by_sanitizer(kind)) {
      continue;
    }
    CAPTURE(kind.name);
    Ranks ranks = kind.make(3, 200, {});
    if (std::ranges::any_of(ranks, [](const auto& one) { return one == nullptr; })) {
      continue;
    }
    std::string said;
    for (const std::string& error : errors_of(ranks, [&](transport::Transport& control) {
           const auto shard = shard_of(control.rank());
           const auto faulty = std::make_shared<Faulty>(control.duplicate(), false);
           const auto peers =
               std::make_shared<group::Peers>(shard, faulty, std::vector<uint32_t>{0, 1, 2}, false);
           store::Writer writer(shard);
           uint64_t episode = 10 * control.rank();
           for (int n = 0; n < 4; ++n) {
             add_episode(writer, episode++, 4);
           }
           deliver::LoaderOptions given = options(8);
           given.prefetch = 0;
           auto pipeline =
               group::make_pipeline(peers, {*shard, given}, {.locality = group::Locality::kOff});
           faulty->fail();
           plan::Batch batch;
           try {
             pipeline->next(200, batch);
           } catch (const base::TransportError&) {
             try {
               add_episode(writer, episode, 4);
             } catch (const base::TransportError& refused) {
               said = refused.what();
             }
             pipeline.reset();
             add_episode(writer, episode++, 4);
           }
           control.allgather({}, {});
         })) {
      CHECK(error == "");
    }
    CHECK(said.starts_with("[writer] ranks may still read a page of a batch in which their group"));
  }
}

TEST_CASE("group loader: what is refused on one rank is told to all, and all may make another") {
  auto ranks = transport::make_loopback(3, 200);
  std::vector<std::string> said(3);
  for (const std::string& error : errors_of(ranks, [&](transport::Transport& control) {
         const auto peers = peers_of(control, shard_of(control.rank()));
         if (control.rank() == 1) {
           peers->shard().set_rate_limiter(store::RateLimiter(1.0, 0, 1.0));  // of its own
         }
         said[control.rank()] = refusal(peers, options(4));
         expect(refusal(peers, options(1)).empty(), "another loader is refused");
       })) {
    CHECK(error == "");
  }
  const std::string words = "[buffer] batch_size 4 under a rate limit";
  CHECK(said[0].starts_with("on rank 1: " + words));
  CHECK(said[1].starts_with(words));
  CHECK(said[2] == said[0]);
}

TEST_CASE("group loader: a rank that finds no memory for its board is named by all") {
  auto ranks = transport::make_loopback(3, 200);
  std::vector<std::string> said(3);
  for (const std::string& error : errors_of(ranks, [&](transport::Transport& control) {
         const auto peers = peers_of(control, shard_of(control.rank()));
         std::unique_ptr<memory::Region> taken;
         if (control.rank() == 1) {
           taken = memory::SharedRegion::create(peers->shared_name(1, 0), 64, "0000000000000000");
         }
         said[control.rank()] = refusal(peers, options(1));
         expect(refusal(peers, options(1)).empty(), "another loader is refused");
       })) {
    CHECK(error == "");
  }
  CHECK(said[1].find("-l0-r1") != std::string::npos);
  CHECK(said[0] == "on rank 1: " + said[1]);
  CHECK(said[2] == said[0]);
}
