#include "emu/members.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/errors.h"

namespace gear::emu {

Members::Members(int size, std::vector<int> real, int own)
    : real_(std::move(real)), weights_(real_.size(), 0) {
  GEAR_CHECK(!real_.empty() && real_.front() >= 0 && real_.back() < size &&
             std::ranges::adjacent_find(real_, std::greater_equal<>()) == real_.end());
  const auto place = std::ranges::find(real_, own);
  GEAR_CHECK(place != real_.end());
  own_index_ = static_cast<int>(place - real_.begin());
  mirrors_.reserve(static_cast<size_t>(size));
  size_t next_real = 0;
  int emulated = 0;
  for (int member = 0; member < size; ++member) {
    const bool is_real = next_real < real_.size() && real_[next_real] == member;
    const int index = is_real ? static_cast<int>(next_real++) : emulated++ % num_real();
    mirrors_.push_back(index);
    ++weights_[static_cast<size_t>(index)];
  }
}

}  // namespace gear::emu
