// The protocol between an index and a mirror of it, with a mirror in the memory of the host that
// does what the kernels do.
#include <algorithm>
#include <map>
#include <optional>

#include "mirrored_history.h"
#include "store/drawable/fixed_point.h"
#include "store/index/update_check.h"
#include "store/mirror/delta.h"
#include "tries.h"

using namespace gear::store;
using gear::testing::tries;
using gear::tests::kMirroredAlpha;
using gear::tests::MirroredHistory;
using gear::tests::MirroredSteps;
using gear::tests::MirrorImage;

namespace {

class HostMirror final : public Mirror {
 public:
  HostMirror(Index& index, const MirroredSteps& sets, uint64_t part_bytes)
      : index_(index),
        part_(part_bytes / 64),
        encoder_(index),
        words_per_page_(StepBits::words_of(index.options().page_steps)),
        heads_(index.options().num_pages) {
    for (uint64_t set = 0; set < MirroredSteps::kSets; ++set) {
      steps_.push_back(index.steps(MirroredSteps::kLookaheads[set], sets.mask_of(set)));
      shown_steps_.emplace_back(index.options().num_pages, index.num_slots());
      shown_steps_.back().words.resize(index.options().num_pages * words_per_page_);
    }
    image_.pages.resize(index.options().num_pages);
    image_.episodes.resize(index.options().num_pages);
  }

  int device() const override { return 0; }
  bool has_room() const override { return true; }
  bool ahead() const override { return ahead_; }
  bool unsettled() const override { return ahead_; }
  void mark() override {}
  bool reached() const override { return true; }
  bool holds_priorities() const override { return !image_.priorities.empty(); }
  void settled_elsewhere() override { ahead_ = false; }
  void start_over() override {
    ahead_ = false;
    encoder_.follow_priorities();
  }
  uint64_t rounds() const { return rounds_; }

  void require_priorities() {
    image_.priorities.assign(index_.num_slots(), 0.0F);
    episode_weights_.resize(image_.episodes.size());
    largest_ = index_.state().max_priority;
    encoder_.follow_priorities();
    sync();
  }

  void sync() override {
    if (encoder_.up_to_date()) {
      return;
    }
    encoder_.look(steps_, holds_priorities());
    while (!encoder_.done()) {
      const auto bytes = std::as_writable_bytes(std::span(part_));
      const DeltaRound round = encoder_.next(bytes);
      REQUIRE(round.bytes() <= bytes.size());
      apply(round, bytes.data());
      ++rounds_;
    }
    largest_ = std::max(largest_, index_.state().max_priority);
    follow_largest();
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
    follow_largest();
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
    index_.settle(episode_weights_, largest_, largest_weight_, stale_);
    largest_weight_ = 0;
    stale_ = 0;
    ahead_ = false;
  }

  MirrorImage image() const {
    MirrorImage image = image_;
    for (uint64_t p = 0; p < image.pages.size(); ++p) {
      image.heads.push_back(heads_[p]);
    }
    image.heads_total = heads_.total();
    for (const ShownSteps& shown : shown_steps_) {
      MirrorImage::Steps& steps = image.steps.emplace_back();
      steps.words = shown.words;
      steps.counts_total = shown.counts.total();
      steps.weights_total = shown.weights.total();
      for (uint64_t p = 0; p < image.pages.size(); ++p) {
        steps.counts.push_back(shown.counts[p]);
      }
      for (uint64_t slot = 0; slot < index_.num_slots(); ++slot) {
        steps.weights.push_back(shown.weights[slot]);
      }
    }
    return image;
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  struct ShownSteps {
    ShownSteps(uint64_t num_pages, uint64_t num_slots) : counts(num_pages), weights(num_slots) {}

    std::vector<uint64_t> words;
    SumTree counts;
    SumTree weights;
  };

  void apply(const DeltaRound& round, const std::byte* data) {
    const auto* pages = reinterpret_cast<const PageDelta*>(data);
    const auto* episodes = reinterpret_cast<const EpisodeDelta*>(data + round.episodes_offset());
    const auto* words = reinterpret_cast<const uint64_t*>(data + round.words_offset());
    const auto* values = reinterpret_cast<const float*>(data + round.values_offset());
    for (uint64_t i = 0; i < round.num_pages; ++i) {
      const PageDelta& delta = pages[i];
      if (delta.first) {
        image_.pages[delta.number] = delta.page;
        heads_.set(delta.number, delta.head);
      }
      if (holds_priorities()) {
        take_values(delta, values);
      }
      for (ShownSteps& shown : shown_steps_) {
        const uint64_t set = static_cast<uint64_t>(&shown - shown_steps_.data());
        apply_steps(delta, words + delta.first_word + set * (1 + delta.num_words()), shown);
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

  void take_values(const PageDelta& delta, const float* values) {
    const unsigned sent_from = std::max(delta.begin, delta.kept);
    for (unsigned row = sent_from; row < std::min(delta.end, delta.page.rows); ++row) {
      image_.priorities[delta.number * index_.options().page_steps + row] =
          resolve_value(values[delta.first_value + row - sent_from], largest_);
    }
  }

  // Behind `words`, the count, lie the bits of the record's rows.
  void apply_steps(const PageDelta& delta, const uint64_t* words, ShownSteps& shown) {
    shown.counts.set(delta.number, words[0]);
    std::copy_n(words + 1, delta.num_words(),
                shown.words.begin() +
                    static_cast<ptrdiff_t>(delta.number * words_per_page_ + delta.begin / 64));
    for (unsigned row = delta.begin; row < delta.end && holds_priorities(); ++row) {
      weigh(delta.number * index_.options().page_steps + row, shown);
    }
  }

  void follow_largest() {
    weighed_by_ = largest_;
    for (ShownSteps& shown : shown_steps_) {
      for (uint64_t slot = 0; slot < index_.num_slots() && holds_priorities(); ++slot) {
        weigh(slot, shown);
      }
    }
  }

  void weigh(uint64_t slot, ShownSteps& shown) {
    const uint64_t page = slot / index_.options().page_steps;
    const uint64_t row = slot % index_.options().page_steps;
    const bool is = (shown.words[page * words_per_page_ + row / 64] >> row % 64 & 1) != 0;
    bool saturated = false;
    const WeightScale scale =
        weight_scale(weighed_by_, kMirroredAlpha, weight_bits(index_.num_slots()));
    shown.weights.set(slot, is ? fixed_weight(image_.priorities[slot], scale, saturated) : 0);
  }

  void set(StepId id, float priority) {
    const Page& page = image_.pages[id.slot / index_.options().page_steps];
    const auto row = static_cast<uint32_t>(id.slot % index_.options().page_steps);
    if (!is_stored(id, row, page)) {
      ++stale_;
    } else if (id.episode) {
      episode_weights_[page.episode] = static_cast<double>(priority);
      largest_weight_ = std::max(largest_weight_, priority);
    } else {
      largest_ = std::max(largest_, priority);
      image_.priorities[id.slot] = std::fabs(priority);
      for (ShownSteps& shown : shown_steps_) {
        weigh(id.slot, shown);
      }
    }
  }

  Index& index_;
  std::vector<Line> part_;
  DeltaEncoder encoder_;
  uint64_t words_per_page_;
  std::vector<std::shared_ptr<const Drawable>> steps_;
  std::vector<ShownSteps> shown_steps_;
  MirrorImage image_;
  SumTree heads_;
  std::vector<double> episode_weights_;
  float largest_ = 0;
  float largest_weight_ = 0;
  float weighed_by_ = 0;  // the largest priority that the weights follow
  uint64_t stale_ = 0;
  uint64_t rounds_ = 0;
  std::optional<std::string> failure_;
  bool ahead_ = false;
};

void live(const MirroredHistory::Options& options, uint64_t part_bytes, uint64_t operations) {
  MirroredHistory history(
      options,
      [&](Index& index, const MirroredSteps& sets) {
        return std::make_unique<HostMirror>(index, sets, part_bytes);
      },
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
