#include <doctest/doctest.h>

#include "link/pass_size.h"

using namespace gear::plan;
using namespace gear::link;

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Of batches of rows of `row_bytes`, `batch_bytes` in all, out of a pool.
size_t batches_together(uint64_t row_bytes, uint64_t batch_bytes, uint64_t pool_bytes,
                        size_t prefetch, size_t most = 8,
                        const LinkModel& model = LinkModel::typical()) {
  const gear::store::Schema schema({{"x", {row_bytes}, gear::base::DType::kU8}});
  const gear::store::PageLayout pages(schema, 64);
  const BatchLayout layout(schema, {{"x", 0, 0, 1}}, batch_bytes / row_bytes, false);
  return pass_size(model, layout, pages, pool_bytes / pages.page_bytes, prefetch, most);
}

}  // namespace

TEST_CASE("all batches in flight go together where the places visited bound the gather") {
  CHECK(batches_together(64, 64 * kMiB, 8192 * kMiB, 2) == 2);
  CHECK(batches_together(128, 64 * kMiB, 8192 * kMiB, 2) == 2);
}

TEST_CASE("half of them where the bytes do") {
  CHECK(batches_together(4096, 64 * kMiB, 8192 * kMiB, 2) == 1);
  CHECK(batches_together(64, 1024 * kMiB, 8192 * kMiB, 2) == 1);
  CHECK(batches_together(1024, 64 * kMiB, 8192 * kMiB, 6) == 3);
}

TEST_CASE("what bounds it is asked of the link that was measured") {
  const LinkModel narrow(
      {{64, 64 * kMiB, {2.5, 32.0, 26.0}}, {4096, 64 * kMiB, {30.0, 32.0, 30.0}}}, {});
  CHECK(narrow.visit_s() == doctest::Approx(LinkModel::typical().visit_s()));
  CHECK(batches_together(64, 100 * kMiB, 8192 * kMiB, 2) == 2);
  CHECK(batches_together(64, 100 * kMiB, 8192 * kMiB, 2, 8, narrow) == 1);
}

TEST_CASE("half of them where each visits other places") {
  CHECK(batches_together(64, kMiB, 65536 * kMiB, 4) == 2);
}

TEST_CASE("at least one batch, and no more than are allowed or can be numbered") {
  CHECK(batches_together(64, 64 * kMiB, 8192 * kMiB, 1) == 1);
  CHECK(batches_together(64, 64 * kMiB, 8192 * kMiB, 64) == 8);
  CHECK(batches_together(1, uint64_t{1} << 30, uint64_t{1} << 40, 8) == 1);
}
