#include "base/numbers/curve.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"

namespace gear::base {

Curve::Curve(std::vector<uint64_t> bytes, std::vector<double> seconds, std::vector<int> bases)
    : bytes_(std::move(bytes)), seconds_(std::move(seconds)), bases_(std::move(bases)) {
  GEAR_CHECK(!bytes_.empty() && bytes_.size() == seconds_.size() && bytes_.size() == bases_.size());
  GEAR_CHECK(std::ranges::all_of(bases_, [](int one) { return one >= 0 && one < kNumBases; }));
}

Curve::Reading Curve::at(uint64_t bytes) const {
  if (bytes_.empty()) {
    return {};
  }
  const auto place = static_cast<size_t>(std::ranges::lower_bound(bytes_, bytes) - bytes_.begin());
  if (place == 0 || (place < bytes_.size() && bytes_[place] == bytes)) {
    return {seconds_[place], bases_[place]};
  }
  const bool is_beyond = place == bytes_.size();
  if (is_beyond && bytes_.size() == 1) {
    const double times =
        static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(bytes_[0], 1));
    return {seconds_[0] * times, kExtrapolated};
  }
  const size_t after = is_beyond ? place - 1 : place;
  const size_t before = after - 1;
  const double share = static_cast<double>(bytes - bytes_[before]) /
                       static_cast<double>(bytes_[after] - bytes_[before]);
  const double seconds = seconds_[before] + share * (seconds_[after] - seconds_[before]);
  if (is_beyond) {
    return {seconds, kExtrapolated};
  }
  const int basis = std::max(bases_[before], bases_[after]);  // the less sure
  return {seconds, basis == kMeasured ? kInterpolated : basis};
}

}  // namespace gear::base
