#include "store/page_layout.h"

#include "base/errors.h"

namespace gear::store {
namespace {

uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

PageLayout::PageLayout(const Schema& schema, uint64_t steps_per_page)
    : page_steps(steps_per_page), page_bytes(0) {
  if (page_steps < 1 || page_steps > kMaxPageSteps) {
    throw base::InvalidArgument(
        base::cat("[buffer] page_steps ", page_steps, ": 1 to ", kMaxPageSteps, " are allowed"));
  }
  for (const Column& column : schema.columns()) {
    const uint64_t bytes = column.step_bytes();
    if (bytes * page_steps >= uint64_t{1} << 32) {
      throw base::InvalidArgument(base::cat(
          "[buffer] column '", column.name, "' takes ", bytes * page_steps, " bytes a page of ",
          page_steps, " steps; less than 4 GiB is allowed: lower page_steps"));
    }
    page_bytes = round_up(page_bytes, kColumnAlign);
    column_offset.push_back(page_bytes);
    step_bytes.push_back(bytes);
    page_bytes += bytes * page_steps;
  }
  page_bytes = round_up(page_bytes, kPageAlign);
}

}  // namespace gear::store
