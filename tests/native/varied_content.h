#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/numbers/philox.h"
#include "plan/output.h"
#include "store/writing/writer.h"

/// Content that has all that windows may meet, and windows at random.
namespace gear::testing {

constexpr uint8_t kPoison = 0xcd;

// Byte `i` of the value of a column at a step; never 0.
inline uint8_t value_of(uint64_t uid, uint64_t step, size_t column, uint64_t i) {
  return static_cast<uint8_t>(1 + base::philox(uid, step, 64 * column + i).lo % 255);
}

// A rank's shard of short and long episodes, the first ones evicted in part, the last one open.
// Step s of its episode u holds what value_of(100 * rank + u, s) says.
class VariedContent {
 public:
  // `place`: puts the shard somewhere else than into host memory of its own.
  explicit VariedContent(
      uint32_t rank = 0,
      const std::function<store::ShardOptions(store::ShardOptions)>& place = std::identity())
      : rank_(rank) {
    const store::Schema schema({{"a", {}, base::DType::kU8},
                                {"b", {7}, base::DType::kU8},
                                {"c", {3}, base::DType::kF64},
                                {"d", {2}, base::DType::kF32}});
    store::ShardOptions options;
    options.page_steps = 4;
    options.capacity = 120;
    options.owner = rank;
    shard = std::make_shared<store::Shard>(schema, place(options));
    store::Writer writer(shard);
    for (uint64_t uid = 1; uid <= 24; ++uid) {
      const uint64_t steps = uid % 3 == 0 ? 4 : 1 + base::philox(1 + rank, 1, uid).lo % 12;
      for (uint64_t step = 0; step < steps; ++step) {
        write(writer, uid, step);
      }
      if (uid == 24) {
        break;
      }
      end(writer, uid, steps, uid % 8);
    }
    keep_open_ = std::make_unique<store::Writer>(shard, std::nullopt);
    for (uint64_t step = 0; step < 6; ++step) {
      write(*keep_open_, 25, step);
    }
  }

  std::shared_ptr<store::Shard> shard;

 private:
  std::vector<std::vector<std::byte>> rows(uint64_t uid, uint64_t step) const {
    std::vector<std::vector<std::byte>> values;
    for (size_t c = 0; c < shard->schema().size(); ++c) {
      values.emplace_back(shard->layout().step_bytes[c]);
      for (uint64_t i = 0; i < values[c].size(); ++i) {
        values[c][i] = static_cast<std::byte>(value_of(100 * rank_ + uid, step, c, i));
      }
    }
    return values;
  }

  void write(store::Writer& writer, uint64_t uid, uint64_t step) const {
    const auto values = rows(uid, step);
    std::vector<const std::byte*> columns;
    for (const std::vector<std::byte>& value : values) {
      columns.push_back(value.data());
    }
    writer.append(columns, 1, {});
    REQUIRE(writer.episode_uid() == uid);
  }

  // `present`: which columns the closing step has; 0 for no closing step.
  void end(store::Writer& writer, uint64_t uid, uint64_t step, uint64_t present) const {
    const auto values = rows(uid, step);
    std::vector<const std::byte*> closing;
    for (size_t c = 0; present != 0 && c < values.size(); ++c) {
      closing.push_back((present >> c & 1) != 0 ? values[c].data() : nullptr);
    }
    writer.end_episode(store::EpisodeState::kTerminated, -1.0, closing);
  }

  uint64_t rank_;
  std::unique_ptr<store::Writer> keep_open_;
};

// One of a batch from VariedContent, the same for the same numbers.
inline plan::Output random_output(uint64_t round, size_t o, uint64_t capacity) {
  auto random = [&, i = uint64_t{0}](uint64_t range) mutable {
    return base::philox(round, 2 + o, i++).lo % range;
  };
  const auto start = static_cast<int64_t>(random(24)) - 14;
  const uint64_t length = random(8) == 0 ? capacity + random(20) : 1 + random(18);
  const size_t column = random(3);
  return {"o" + std::to_string(o), column, start, start + static_cast<int64_t>(length),
          static_cast<plan::Pad>(random(3))};
}

inline plan::StepColumn& column_of(plan::Output& output) {
  return std::get<plan::StepColumn>(output.source);
}

// Every step stored, offered to samplers or not.
inline std::vector<store::Anchor> all_steps(const store::Index& index) {
  std::vector<store::Anchor> anchors;
  for (uint32_t e = index.state().oldest; e != store::kNone; e = index.episode(e).newer) {
    for (uint32_t p = index.episode(e).head; p != store::kNone; p = index.page(p).next) {
      for (uint32_t row = 0; row < index.page(p).rows; ++row) {
        if (index.page(p).first_step + row < index.episode(e).end) {
          anchors.push_back({p, row});
        }
      }
    }
  }
  return anchors;
}

}  // namespace gear::testing
