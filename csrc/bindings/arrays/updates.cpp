#include "bindings/arrays/updates.h"

#include "base/errors.h"

namespace gear::bindings {

void check_update(const Ids& ids, const Priorities& priorities) {
  if (ids.ndim() == 1 && priorities.ndim() == 1 && ids.size() == priorities.size()) {
    return;
  }
  throw base::InvalidArgument(base::cat(
      "[buffer] update takes one priority an id, both one-dimensional; given ", ids.size(),
      " ids and ", priorities.size(), " priorities of ", priorities.ndim(), " dimensions"));
}

}  // namespace gear::bindings
