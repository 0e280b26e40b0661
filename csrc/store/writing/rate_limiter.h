#pragma once

#include <cstdint>
#include <string>

namespace gear::store {

/// How far sampling and inserting may run apart (samples per insert, as in Cassirer et al., Reverb,
/// arXiv:2102.04736):
///
///     difference = inserted * samples_per_insert - sampled, counted from min_steps inserts on
///     sampling n steps is allowed while   difference - n >= -slack  and inserted >= min_steps
///     inserting n steps is allowed while  difference + n * samples_per_insert <= slack,
///                                         or inserted + n <= min_steps
///
/// A batch that is drawn and not delivered yet counts as sampled, and no more if it is given back.
/// Inserts come a step at a time, so that writers always reach a difference above
/// slack - samples_per_insert; a draw comes as a whole.
/// A value: the shard's lock covers it and does the waiting.
class RateLimiter {
 public:
  /// samples_per_insert 0: no limit but min_steps. Throws InvalidArgument for negative values, an
  /// infinite samples_per_insert, or a slack below what one insert needs.
  RateLimiter(double samples_per_insert, uint64_t min_steps, double slack);
  RateLimiter() = default;

  /// Whether there is anything to wait for.
  bool active() const { return samples_per_insert_ > 0 || min_steps_ > 0; }
  /// Throws InvalidArgument for a batch so large that it would never be allowed, whatever is
  /// inserted: above 2 * slack - samples_per_insert.
  void check_batch(uint64_t batch_size) const;
  bool may_sample(uint64_t steps) const;
  /// How many steps may be inserted.
  uint64_t room() const;
  /// For who waits: the counts, and how many inserts make a draw of so many steps allowed ...
  std::string sampling_waits_for(uint64_t steps) const;
  /// ... or how many samples the next insert.
  std::string inserting_waits_for() const;
  /// Samples are drawn, then delivered or given back.
  void taken(uint64_t steps) { taken_ += steps; }
  void delivered(uint64_t steps) {
    taken_ -= steps;
    sampled_ += steps;
  }
  void given_back(uint64_t steps) { taken_ -= steps; }
  void inserted(uint64_t steps) { inserted_ += steps; }

  double samples_per_insert() const { return samples_per_insert_; }
  uint64_t min_steps() const { return min_steps_; }
  double slack() const { return slack_; }
  uint64_t num_sampled() const { return sampled_; }  ///< without those that are only drawn
  uint64_t num_inserted() const { return inserted_; }
  /// Takes up the counts of a saved run.
  void restore(uint64_t num_sampled, uint64_t num_inserted);

 private:
  double difference() const;
  std::string counts() const;

  double samples_per_insert_ = 0;
  uint64_t min_steps_ = 0;
  double slack_ = 0;
  uint64_t sampled_ = 0;
  uint64_t taken_ = 0;  // drawn, neither delivered nor given back
  uint64_t inserted_ = 0;
};

}  // namespace gear::store
