// The protocol between an index and a mirror of it, with a mirror in the memory of the host that
// does what the kernels do.
#include <algorithm>
#include <map>
#include <optional>

#include "mirrored_history.h"
#include "store/index/change_log.h"
#include "store/index/fixed_point.h"
#include "store/index/update_check.h"
#include "store/mirror/delta.h"
#include "tries.h"

using namespace gear::store;
using gear::testing::tries;
using gear::tests::kMirroredAlpha;
using gear::tests::MirroredHistory;
using gear::tests::MirrorImage;

namespace {

class HostMirror final : public Mirror {
 public:
  HostMirror(Index& index, uint64_t part_bytes)
      : index_(index),
        steps_(index.steps(gear::tests::kMirroredLookahead)),
        part_(part_bytes / 64),
        log_(index.options().num_pages, index.options().page_steps),
        anchors_(index.options().num_pages),
        heads_(index.options().num_pages),
        weights_(index.num_slots()) {
    image_.pages.resize(index.options().num_pages);
    image_.episodes.resize(index.options().num_pages + 64);
    log_.everything(index.state().pages, index.state().episodes.size());
    steps_->attach(log_);
  }
  ~HostMirror() override { steps_->detach(log_); }

  int device() const override { return 0; }
  uint64_t lookahead() const override { return steps_->lookahead(); }
  bool has_room() const override { return true; }
  bool ahead() const override { return ahead_; }
  bool unsettled() const override { return ahead_; }
  void mark() override {}
  bool reached() const override { return true; }
  bool holds_priorities() const override { return !image_.priorities.empty(); }
  void settled_elsewhere() override { ahead_ = false; }
  void start_over() override {
    ahead_ = false;
    log_.follow_priorities();
    log_.everything(index_.state().pages, index_.state().episodes.size());
  }
  uint64_t rounds() const { return rounds_; }

  void require_priorities() {
    image_.priorities.assign(index_.num_slots(), -0.0F);
    episode_weights_.resize(image_.episodes.size());
    largest_ = index_.state().max_priority;
    log_.follow_priorities();
    log_.everything(index_.state().pages, index_.state().episodes.size());
    sync();
  }

  void sync() override {
    if (log_.empty()) {
      return;
    }
    DeltaEncoder encoder(index_, *steps_, log_, holds_priorities());
    while (!encoder.done()) {
      const auto bytes = std::as_writable_bytes(std::span(part_));
      const DeltaRound round = encoder.next(bytes);
      REQUIRE(round.bytes() <= bytes.size());
      apply(round, bytes.data());
      ++rounds_;
    }
    log_.clear();
    largest_ = std::max(largest_, index_.state().max_priority);
  }

  void update(const int64_t* ids, const float* priorities, uint64_t count, bool,
              uintptr_t) override {
    sync();
    ahead_ = true;
    for (uint64_t i = 0; i < count; ++i) {
      if (is_priority(priorities[i]) && is_id_of(ids[i], 0, index_.num_slots())) {
        continue;
      }
      failure_ = update_refusal(ids[i], priorities[i], i);
      return;
    }
    for (uint64_t i = 0; i < count; ++i) {
      set(StepId::unpack(ids[i]), priorities[i]);
    }
  }

  void raise_failed_update() override {
    if (!failure_) {
      return;
    }
    const std::string text = *failure_;
    failure_.reset();
    throw gear::base::InvalidArgument(text);
  }

  void settle() override {
    if (!ahead_) {
      return;
    }
    sync();
    constexpr uint64_t kPart = 7;
    for (uint64_t first = 0; first < image_.priorities.size(); first += kPart) {
      index_.take_priorities(
          first, std::span(image_.priorities)
                     .subspan(first, std::min(kPart, image_.priorities.size() - first)));
    }
    index_.settle(episode_weights_, largest_, stale_);
    stale_ = 0;
    ahead_ = false;
  }

  MirrorImage image() const {
    MirrorImage image = image_;
    for (uint64_t p = 0; p < image.pages.size(); ++p) {
      image.anchors.push_back(anchors_[p]);
      image.heads.push_back(heads_[p]);
    }
    for (uint64_t slot = 0; slot < index_.num_slots(); ++slot) {
      image.weights.push_back(weights_[slot]);
    }
    image.anchors_total = anchors_.total();
    image.heads_total = heads_.total();
    image.weights_total = weights_.total();
    return image;
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  void apply(const DeltaRound& round, const std::byte* data) {
    const auto* pages = reinterpret_cast<const PageDelta*>(data);
    const auto* episodes = reinterpret_cast<const EpisodeDelta*>(data + round.episodes_offset());
    const auto* values = reinterpret_cast<const float*>(data + round.values_offset());
    for (uint64_t i = 0; i < round.num_pages; ++i) {
      const PageDelta& delta = pages[i];
      if (delta.first) {
        image_.pages[delta.number] = delta.page;
        anchors_.set(delta.number, delta.drawable);
        heads_.set(delta.number, delta.head);
      }
      if (holds_priorities()) {
        apply_rows(delta, values);
      }
    }
    for (uint64_t i = 0; i < round.num_episodes; ++i) {
      const EpisodeDelta& delta = episodes[i];
      image_.episodes[delta.number] = {delta.begin, delta.end, delta.closing_columns, delta.state};
      if (holds_priorities() && delta.weight_set) {
        episode_weights_[delta.number] = delta.weight;
      }
    }
  }

  void apply_rows(const PageDelta& delta, const float* values) {
    const unsigned sent_from = std::max(delta.begin, delta.kept);
    for (unsigned row = delta.begin; row < delta.end; ++row) {
      const uint64_t slot = delta.number * index_.options().page_steps + row;
      const bool offered = row < delta.page.anchors;
      float priority = 0.0F;
      if (row < delta.page.rows) {
        priority = row < delta.kept
                       ? std::fabs(image_.priorities[slot])
                       : resolve_value(values[delta.first_value + row - sent_from], largest_);
      }
      put(slot, offered, priority);
    }
  }

  void put(uint64_t slot, bool offered, float priority) {
    bool saturated = false;
    image_.priorities[slot] = offered ? priority : -priority;
    weights_.set(slot, offered ? fixed_weight(priority, kMirroredAlpha,
                                              weight_limit(index_.num_slots()), saturated)
                               : 0);
  }

  void set(StepId id, float priority) {
    const Page& page = image_.pages[id.slot / index_.options().page_steps];
    const auto row = static_cast<uint32_t>(id.slot % index_.options().page_steps);
    if (page.episode == kNone) {
      ++stale_;
      return;
    }
    const DeviceEpisode& episode = image_.episodes[page.episode];
    if (!is_stored(id, row, page, episode.begin, episode.end)) {
      ++stale_;
    } else if (id.episode) {
      episode_weights_[page.episode] = static_cast<double>(priority);
    } else {
      largest_ = std::max(largest_, priority);
      put(id.slot, row < page.anchors, priority);
    }
  }

  Index& index_;
  std::shared_ptr<Drawable> steps_;
  std::vector<Line> part_;
  ChangeLog log_;
  MirrorImage image_;
  SumTree anchors_;
  SumTree heads_;
  SumTree weights_;
  std::vector<double> episode_weights_;
  float largest_ = 0;
  uint64_t stale_ = 0;
  uint64_t rounds_ = 0;
  std::optional<std::string> failure_;
  bool ahead_ = false;
};

void live(const MirroredHistory::Options& options, uint64_t part_bytes, uint64_t operations) {
  MirroredHistory history(
      options, [&](Index& index) { return std::make_unique<HostMirror>(index, part_bytes); },
      [](Mirror& mirror) { dynamic_cast<HostMirror&>(mirror).require_priorities(); },
      [](Mirror& mirror) { return dynamic_cast<HostMirror&>(mirror).image(); });
  history.run(operations);
}

}  // namespace

TEST_CASE("a mirror shows what the index would be, and settling makes it so") {
  for (const Evict evict : {Evict::kFifo, Evict::kLifo, Evict::kLowestPriority}) {
    for (const uint64_t seed : {1, 2, 3}) {
      CAPTURE(static_cast<int>(evict));
      CAPTURE(seed);
      live({{37, 5, 0, evict, 0}, seed, 9, false}, 1024, tries(8000));
      live({{37, 5, 0, evict, 0}, seed, 9, true}, 256 << 10, tries(4000));
    }
  }
}

TEST_CASE("pages of any size are mirrored, in several records where they are large") {
  live({{61, 1, 0, Evict::kFifo, 0}, 5, 3, false}, 512, tries(4000));
  live({{7, 2500, 0, Evict::kFifo, 0}, 6, 4000, false}, 16 << 10, tries(800));
}

TEST_CASE("a change log keeps what the mirror shows of a page, once") {
  ChangeLog log(4, 8);
  CHECK(log.empty());
  log.page(2, 5, 3);
  log.page(2, 6, 3);
  log.episode(9);
  log.episode_weight(9);
  REQUIRE(log.pages().size() == 1);
  CHECK(log.pages()[0].page == 2);
  CHECK(log.pages()[0].rows == 5);
  CHECK(log.pages()[0].kept == 5);
  CHECK(log.pages()[0].reached == 3);
  log.dropped(2);
  CHECK(log.pages()[0].rows == 5);
  CHECK(log.pages()[0].kept == 0);
  REQUIRE(log.episodes().size() == 1);
  CHECK(log.weight_set(9));
  log.follow_priorities();
  log.appended(2, 0, std::vector<float>{-1.0F, 2.0F});
  CHECK(log.took_default(16));
  CHECK_FALSE(log.took_default(17));
  log.appended(2, 0, std::vector<float>{1.0F});
  CHECK_FALSE(log.took_default(16));
  log.clear();
  CHECK(log.empty());
  log.episode(9);
  CHECK_FALSE(log.weight_set(9));
}
