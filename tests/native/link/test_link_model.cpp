#include <doctest/doctest.h>

#include <cmath>

#include "base/errors.h"
#include "expect_message.h"
#include "link/link_model.h"

using namespace gear::plan;
using namespace gear::link;
using gear::testing::expect_message;

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Two run sizes, two batch sizes; {zero-copy, ordered, staged}.
LinkModel example() {
  return LinkModel({{1024, kMiB, {8.0, 4.0, 10.0}},
                    {64, kMiB, {2.0, 1.0, 4.0}},
                    {64, 16 * kMiB, {2.0, 32.0, 8.0}},
                    {1024, 16 * kMiB, {32.0, 48.0, 40.0}}},
                   {});
}

}  // namespace

TEST_CASE("measured points are kept, and between them logarithms are interpolated") {
  const LinkModel model = example();
  CHECK(model.gb_per_s(Path::kStaged, false, 64, kMiB) == doctest::Approx(4.0));
  CHECK(model.gb_per_s(Path::kZeroCopy, false, 1024, 16 * kMiB) == doctest::Approx(32.0));
  CHECK(model.gb_per_s(Path::kZeroCopy, false, 256, kMiB) == doctest::Approx(4.0));
  CHECK(model.gb_per_s(Path::kStaged, false, 64, 4 * kMiB) == doctest::Approx(std::sqrt(32.0)));
  CHECK(model.gb_per_s(Path::kZeroCopy, false, 256, 4 * kMiB) == doctest::Approx(std::sqrt(32.0)));
}

TEST_CASE("outside the points: in proportion below, as the last above") {
  const LinkModel model = example();
  CHECK(model.gb_per_s(Path::kZeroCopy, false, 16, kMiB) == doctest::Approx(0.5));
  CHECK(model.gb_per_s(Path::kZeroCopy, false, 64, kMiB / 4) == doctest::Approx(0.5));
  CHECK(model.gb_per_s(Path::kStaged, false, 65536, 1024 * kMiB) == doctest::Approx(40.0));
}

TEST_CASE("the faster path is chosen by the rows and the size of the batch") {
  using gear::base::DType;
  const LinkModel model = example();
  const gear::store::Schema schema({{"small", {64}, DType::kU8}, {"wide", {1024}, DType::kU8}});
  const gear::store::PageLayout pages(schema, 16);
  constexpr uint64_t kManyPages = 1 << 20;
  const auto layout = [&](size_t column, uint64_t bytes, uint64_t length) {
    const uint64_t items = bytes / schema[column].step_bytes() / length;
    return BatchLayout(schema, {{"x", column, 0, static_cast<int64_t>(length)}}, items, false);
  };
  CHECK(model.choose(layout(0, kMiB, 1), pages, kManyPages) == Path::kStaged);
  CHECK(model.choose(layout(0, 16 * kMiB, 1), pages, kManyPages) == Path::kZeroCopy);
  CHECK(model.order_pays(layout(0, 16 * kMiB, 1), pages, kManyPages));
  CHECK_FALSE(model.order_pays(layout(0, kMiB, 1), pages, kManyPages));
  CHECK_FALSE(model.order_pays(layout(0, 16 * kMiB, 1), pages, 100));
  // 16 steps of 64 bytes lie beside each other.
  CHECK(model.seconds(Path::kZeroCopy, false, layout(0, 16 * kMiB, 16), pages) ==
        doctest::Approx(model.seconds(Path::kZeroCopy, false, layout(1, 16 * kMiB, 1), pages)));
  CHECK(model.seconds(Path::kStaged, false, layout(1, 16 * kMiB, 1), pages) ==
        doctest::Approx(16.0 * kMiB / 40e9));
}

TEST_CASE("a host that draws and plans slowly bounds what is staged") {
  const gear::store::Schema schema({{"a", {64}, gear::base::DType::kU8}});
  const gear::store::PageLayout pages(schema, 16);
  const BatchLayout one(schema, {{"x", 0, 0, 1}}, 1000, false);
  const BatchLayout two(schema, {{"x", 0, 0, 1}, {"y", 0, 1, 2}}, 1000, false);
  const LinkModel slow({{64, 1, {1.0, 3.0, 8.0}}}, {30e-9, 10e-9});
  CHECK(slow.seconds(Path::kStaged, false, one, pages) == doctest::Approx(40e-6));
  CHECK(slow.seconds(Path::kStaged, false, two, pages) == doctest::Approx(50e-6));
  CHECK(slow.seconds(Path::kZeroCopy, true, one, pages) == doctest::Approx(64e-6 / 3));
  CHECK(slow.choose(one, pages, 1 << 20) == Path::kZeroCopy);
  CHECK(slow.crossover_bytes(64) == 0);
  const LinkModel fast({{64, 1, {1.0, 3.0, 8.0}}}, {3e-9, 1e-9});
  CHECK(fast.seconds(Path::kStaged, false, one, pages) == doctest::Approx(8e-6));
  CHECK(fast.choose(one, pages, 1 << 20) == Path::kStaged);
}

TEST_CASE("the crossover is the batch from which on zero-copy is faster") {
  CHECK(example().crossover_bytes(64) == 16 * kMiB);
  CHECK(LinkModel({{64, kMiB, {1.0, 1.0, 2.0}}}, {}).crossover_bytes(64) == UINT64_MAX);
  CHECK(LinkModel({{64, kMiB, {1.0, 3.0, 2.0}}}, {}).crossover_bytes(64) == 0);
}

TEST_CASE("what is written is read back to the bit") {
  const LinkModel model({{64, kMiB, {1.0 / 3, 2.7, 1e-9}}}, {2.1e-8, 0.0});
  const LinkModel read = LinkModel::parse(model.text());
  CHECK(read.text() == model.text());
  REQUIRE(read.samples().size() == 1);
  CHECK(read.samples()[0].run_bytes == 64);
  CHECK(read.samples()[0].batch_bytes == kMiB);
  CHECK(read.samples()[0].gb_per_s.zero_copy == 1.0 / 3);
  CHECK(read.samples()[0].gb_per_s.zero_copy_ordered == 2.7);
  CHECK(read.samples()[0].gb_per_s.staged == 1e-9);
}

TEST_CASE("a file of speeds that is torn, foreign or changed is refused") {
  const std::string text = example().text();
  const auto expect_refused = [](const std::string& damaged, const char* part) {
    expect_message<gear::base::CorruptData>([&] { LinkModel::parse(damaged); }, "[link]", part);
  };
  for (size_t length = 0; length < text.size(); ++length) {
    CHECK_THROWS_AS(LinkModel::parse(text.substr(0, length)), gear::base::CorruptData);
  }
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    CHECK_THROWS_AS(LinkModel::parse(changed), gear::base::CorruptData);
  }
  expect_refused("", "begins with ''");
  expect_refused("gear links 4\n", "gear links 3");
  expect_refused("gear links 3\n64 1", "checksum");
}

TEST_CASE("speeds that are no table are refused") {
  const auto expect_refused = [](std::vector<LinkModel::Sample> samples, const char* part) {
    expect_message<gear::base::InvalidArgument>([&] { LinkModel model(std::move(samples), {}); },
                                                "[link]", part);
  };
  expect_refused({}, "0 link speeds");
  expect_refused({{64, 1, {1, 1, 1}}, {64, 1, {1, 1, 1}}}, "2 link speeds");
  expect_refused({{64, 1, {1, 1, 1}}, {65, 2, {1, 1, 1}}}, "2 run sizes and 2 batch sizes");
  expect_refused({{64, 1, {1, 0, 1}}}, "0 GB/s");
  expect_refused({{0, 1, {1, 1, 1}}}, "link speeds");
  expect_message<gear::base::InvalidArgument>([] { LinkModel({{64, 1, {1, 1, 1}}}, {-1.0, 0.0}); },
                                              "[link]", "-1 s an item");
}
