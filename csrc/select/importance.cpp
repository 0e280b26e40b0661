#include "select/importance.h"

#include <algorithm>
#include <array>

#include "base/errors.h"
#include "base/threads/thread_pool.h"
#include "store/drawable/fixed_point.h"

namespace gear::select {

void set_importance(double beta, float least, std::span<const float> probabilities,
                    std::span<float> weights) {
  GEAR_CHECK(probabilities.size() == weights.size());
  if (beta == 0) {
    std::fill(weights.begin(), weights.end(), 1.0F);
    return;
  }
  const double offset = beta * store::log2_portable(static_cast<double>(least));
  constexpr size_t kPart = 8192;  // some 50 microseconds
  const size_t parts = (weights.size() + kPart - 1) / kPart;
  base::ThreadPool::shared().parallel_for(parts, [&](size_t part) {
    std::array<double, 512> powers;
    const size_t end = std::min((part + 1) * kPart, weights.size());
    for (size_t done = part * kPart; done < end;) {
      const size_t count = std::min(powers.size(), end - done);
      store::powers_portable(probabilities.subspan(done, count), -beta, offset,
                             {powers.data(), count});
      for (size_t i = 0; i < count; ++i) {
        weights[done + i] = static_cast<float>(powers[i]);
      }
      done += count;
    }
  });
}

}  // namespace gear::select
