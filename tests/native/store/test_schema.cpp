#include <doctest/doctest.h>

#include <locale>
#include <string>
#include <vector>

#include "base/errors.h"
#include "expect_message.h"
#include "store/schema.h"

using gear::base::DType;
using gear::store::Column;
using gear::store::Schema;
using gear::testing::expect_message;

namespace {

Schema small() {
  return Schema({{"obs", {84, 84}, DType::kU8},
                 {"camera/left-1.x", {3}, DType::kBF16},
                 {"_reward", {}, DType::kF32}});
}

constexpr const char* kSmallText =
    "obs uint8 84,84\ncamera/left-1.x bfloat16 3\n_reward float32 \n";

void expect_refused(std::vector<Column> columns, const char* part, const char* other) {
  expect_message<gear::base::InvalidArgument>([&] { Schema{columns}; }, "[schema]", part, other);
}

}  // namespace

TEST_CASE("a schema knows its columns and bytes") {
  const Schema schema = small();
  CHECK(schema.size() == 3);
  CHECK(schema.step_bytes() == 84 * 84 + 6 + 4);
  CHECK(schema[0].step_bytes() == 84 * 84);
  CHECK(schema[1].step_bytes() == 6);
  CHECK(schema.index_of("_reward") == 2);
  expect_message<gear::base::InvalidArgument>(
      [&] { schema.index_of("reward"); }, "no column 'reward'", "obs, camera/left-1.x, _reward");
}

TEST_CASE("the text of a schema is fixed and reads back") {
  CHECK(small().text() == kSmallText);
  CHECK(Schema::parse(kSmallText) == small());
  for (size_t d = 0; d < gear::base::kNumDTypes; ++d) {
    const Schema schema({{"x", {1, 2, 3}, static_cast<DType>(d)}});
    CHECK(Schema::parse(schema.text()) == schema);
  }
}

TEST_CASE("the hash is FNV-1a of the text and tells every difference") {
  CHECK(Schema({{"x", {}, DType::kF32}}).hash() == "9324b32ccbfc5d6e");
  CHECK(small().hash() == Schema::parse(kSmallText).hash());
  const Schema others[] = {Schema({{"x", {1}, DType::kF32}}),
                           Schema({{"y", {}, DType::kF32}}),
                           Schema({{"x", {}, DType::kI32}}),
                           Schema({{"x", {}, DType::kF32}, {"y", {}, DType::kF32}}),
                           Schema({{"y", {}, DType::kF32}, {"x", {}, DType::kF32}}),
                           Schema({{"x", {1, 1}, DType::kF32}}),
                           Schema({{"x", {11}, DType::kF32}})};
  for (const Schema& a : others) {
    CHECK(a.hash().size() == 16);
    for (const Schema& b : others) {
      CHECK((a.hash() == b.hash()) == (&a == &b));
    }
  }
}

TEST_CASE("names that are ill-formed, taken or repeated are refused") {
  const std::string longest(63, 'a');
  CHECK_NOTHROW(Schema({{longest, {}, DType::kF32}}));
  for (const std::string& name :
       {std::string(), std::string("1x"), std::string(".x"), std::string("a b"), std::string("a\n"),
        std::string("\xc3\xa9"), longest + "a"}) {
    expect_refused({{name, {}, DType::kF32}}, "column name", "rename the column");
  }
  CHECK_THROWS_AS(Schema({{std::string("a\0b", 3), {}, DType::kF32}}), gear::base::InvalidArgument);
  expect_refused({{"priority", {}, DType::kF32}}, "'priority': writers have", "rename");
  expect_refused({{"a", {}, DType::kF32}, {"a", {}, DType::kI8}}, "'a' is given twice", "differ");
}

TEST_CASE("1 to 64 columns are allowed") {
  std::vector<Column> columns;
  expect_refused(columns, "0 columns given", "1 to 64");
  for (size_t i = 0; i < Schema::kMaxColumns; ++i) {
    columns.push_back({"c" + std::to_string(i), {}, DType::kU8});
  }
  CHECK(Schema(columns).step_bytes() == 64);
  columns.push_back({"one_more", {}, DType::kU8});
  expect_refused(columns, "65 columns given", "join small columns");
}

TEST_CASE("dimensions below 1 and columns of 4 GiB are refused") {
  expect_refused({{"x", {3, 0}, DType::kF32}}, "shape (3,0)", "1 or more");
  expect_refused({{"x", {-1}, DType::kF32}}, "shape (-1)", "1 or more");
  const int64_t gib = int64_t{1} << 30;
  expect_refused({{"x", {gib}, DType::kF32}}, "4 GiB", "split it");
  expect_refused({{"x", {4 * gib}, DType::kU8}}, "4 GiB", "split it");
  expect_refused({{"x", {2, gib, gib, gib}, DType::kU8}}, "4 GiB", "split it");
  expect_refused({{"x", {INT64_MAX, INT64_MAX}, DType::kF64}}, "4 GiB", "split it");
  CHECK(Schema({{"x", {gib - 1}, DType::kF32}}).step_bytes() == 4 * uint64_t{1 << 30} - 4);
  CHECK(Schema({{"x", {4 * gib - 1}, DType::kU8}}).step_bytes() == 0xffffffffU);
}

TEST_CASE("a step of 4 GiB over all columns is refused") {
  const int64_t gib = int64_t{1} << 30;
  CHECK_THROWS_AS(Schema({{"x", {3 * gib}, DType::kU8}, {"y", {gib}, DType::kU8}}),
                  gear::base::InvalidArgument);
}

TEST_CASE("text that is no schema is refused") {
  for (const char* text :
       {"x", "x\n", "x float32\n", "x float32 3", "x float32 3,,4\n", "x float32 ,3\n",
        "x float32 a\n", "x float32 3 4\n", "x float32 99999999999999999999\n"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(Schema::parse(text), gear::base::CorruptData);
  }
  // Well-formed lines with values that no schema has: the same errors as from the constructor.
  for (const char* text :
       {"", "x float31 3\n", "x float32 0\n", "1x float32 3\n", "x float32 3\nx float32 3\n"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(Schema::parse(text), gear::base::Error);
  }
}

TEST_CASE("text and hash are the same in a process whose locale groups digits") {
  struct Grouping : std::numpunct<char> {
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const Schema schema({{"x", {123456, 7}, DType::kU8}});
  const std::string text = schema.text();
  const std::string hash = schema.hash();
  const std::locale before = std::locale::global(std::locale(std::locale(), new Grouping));
  const std::string text_then = schema.text();
  const std::string hash_then = schema.hash();
  std::locale::global(before);
  CHECK(text_then == text);
  CHECK(hash_then == hash);
}
