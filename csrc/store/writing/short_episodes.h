#pragma once

#include <optional>
#include <string>

#include "store/index/index.h"

namespace gear::store {

/// Whether pages have to go while not half of the slots hold a step, since episodes are much
/// shorter than a page; of which users are told once.
class ShortEpisodes {
 public:
  /// Where a page is wanted: what to say, if that is so and was not said. Under the shard's lock.
  std::optional<std::string> look(const Index& index);

 private:
  bool told_ = false;
};

}  // namespace gear::store
