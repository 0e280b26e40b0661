#include <doctest/doctest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/files/crc32c.h"
#include "base/files/file.h"
#include "expect_message.h"
#include "store/checkpoint/manifest.h"
#include "store/checkpoint/snapshot.h"
#include "store/checkpoint/snapshot_index.h"
#include "store/writing/writer.h"
#include "temporary_folder.h"

using namespace gear::store;
using gear::base::DType;
using gear::store::Writer;
using gear::testing::expect_message;
using gear::testing::TemporaryFolder;

namespace fs = std::filesystem;

namespace {

// A small shard of everything: evicted and stale pages, closing steps, weights, an open episode.
struct Content {
  explicit Content(uint64_t seed, Evict evict = Evict::kLowestPriority) {
    const Schema schema({{"x", {5}, DType::kI32}, {"y", {}, DType::kU8}});
    ShardOptions options;
    options.page_steps = 4;
    options.capacity = 40;
    options.evict = evict;
    options.max_times_sampled = 3;
    options.rate_limiter = RateLimiter(2.0, 5, 1000.0);
    shard = std::make_shared<Shard>(schema, options);
    writer = std::make_unique<Writer>(shard);
    for (uint64_t episode = 0; episode < 9; ++episode) {
      append(3 + (episode + seed) % 7, static_cast<uint32_t>(seed + episode));
      const std::byte* closing[] = {row.data(), nullptr};
      const bool closes = episode % 2 == 0;
      writer->end_episode(EpisodeState::kTruncated, episode % 3 == 0 ? 0.5 : -1.0,
                          closes ? Writer::Rows(closing) : Writer::Rows());
    }
    append(6, 77);
    for (uint32_t page = 0; page < 3; ++page) {
      if (shard->index().steps().contains(Anchor{page, 0})) {
        shard->index().mark_sampled({page, 0}, Unit::kStep);
      }
    }
    auto lock = shard->lock();
    shard->deliver(shard->commit(lock, 11, nullptr));
  }

  void append(uint64_t steps, uint32_t value) {
    for (uint64_t i = 0; i < steps; ++i, ++value) {
      for (size_t b = 0; b < row.size(); ++b) {
        row[b] = static_cast<std::byte>(value * 31 + b);
      }
      const std::byte* columns[] = {row.data(), row.data() + 3};
      const float priority = static_cast<float>(value % 10) / 4;
      writer->append(columns, 1, {&priority, 1});
    }
  }

  std::vector<std::byte> row = std::vector<std::byte>(20);
  std::shared_ptr<Shard> shard;
  std::unique_ptr<Writer> writer;
};

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void replace(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

std::shared_ptr<Shard> load(const std::string& folder) {
  return load_shard(folder, {}, "", 0).shard;
}

// Everything a checkpoint must bring back: the index's own bytes and the stored rows.
void expect_equal(Shard& a, Shard& b) {
  REQUIRE(a.schema() == b.schema());
  REQUIRE(a.options().capacity <= b.options().capacity);
  REQUIRE(encode_index(a) == encode_index(b));
  REQUIRE(a.index().steps().counts().total() == b.index().steps().counts().total());
  REQUIRE(a.index().drawables().heads().total() == b.index().drawables().heads().total());
  for (const uint32_t p : used_pages(a.index().state())) {
    for (size_t c = 0; c < a.schema().size(); ++c) {
      const uint64_t offset = a.layout().offset(p, c, 0);
      const uint64_t bytes = a.index().page(p).rows * a.layout().step_bytes[c];
      REQUIRE(std::memcmp(a.data() + offset, b.data() + offset, bytes) == 0);
    }
  }
}

std::string shard_file(const std::string& folder) {
  return folder + "/" + read_manifest(folder).shard_file;
}

// Changes one file of a checkpoint, expects it to be refused, and restores it.
void expect_refused(const std::string& folder, const std::string& path, const std::string& good,
                    const std::string& bad) {
  replace(path, bad);
  CHECK_THROWS_AS(load(folder), gear::base::CorruptData);
  replace(path, good);
}

}  // namespace

TEST_CASE("a checkpoint brings the shard back, and its index has the same bytes") {
  for (const Evict evict : {Evict::kFifo, Evict::kLifo, Evict::kLowestPriority}) {
    const TemporaryFolder folder;
    Content content(1, evict);
    save_shard(*content.shard, folder / "c");
    const auto loaded = load(folder / "c");
    expect_equal(*content.shard, *loaded);
    CHECK(loaded->rate_limiter().num_inserted() == content.shard->rate_limiter().num_inserted());
    CHECK(loaded->rate_limiter().num_sampled() == 11);

    // Both go on alike: the open episode is continued, the same pages are evicted.
    const auto uid = content.writer->episode_uid();
    Content other(1, evict);
    other.writer.reset();
    other.shard = loaded;
    other.writer = std::make_unique<Writer>(loaded, uid);
    for (Content* each : {&content, &other}) {
      each->append(9, 5);
      each->writer->end_episode(EpisodeState::kTerminated, -1.0, {});
      each->append(17, 6);
    }
    expect_equal(*content.shard, *other.shard);
  }
}

TEST_CASE("saving again replaces the checkpoint and leaves two files") {
  const TemporaryFolder folder;
  Content first(1);
  Content second(2);
  save_shard(*first.shard, folder.path());
  save_shard(*second.shard, folder.path());
  expect_equal(*second.shard, *load(folder.path()));
  CHECK(names_in(folder.path()) == std::set<std::string>{"MANIFEST", "shard-0-of-1.2.gear"});
  const CheckpointInfo info = inspect_checkpoint(folder.path());
  CHECK(info.errors.empty());
  CHECK(info.format == 4);  // nothing waits: the newest format is not needed
  CHECK(info.schema_hash == second.shard->schema().hash());
  CHECK(info.steps == second.shard->index().state().num_steps);
  CHECK(info.episodes == second.shard->index().state().num_episodes);
  CHECK(info.pages == 10);
  CHECK(info.bytes == fs::file_size(shard_file(folder.path())));
}

TEST_CASE("an empty shard is saved and loaded") {
  const TemporaryFolder folder;
  ShardOptions options;
  options.capacity = 64;
  Shard shard(Schema({{"x", {}, DType::kF32}}), options);
  save_shard(shard, folder / "c");
  expect_equal(shard, *load(folder / "c"));
}

TEST_CASE("folders that are not a checkpoint's are refused") {
  const TemporaryFolder folder;
  Content content(1);
  expect_message<gear::base::InvalidArgument>([&] { load(folder / "none"); }, "no directory");
  CHECK_THROWS_AS(load(folder.path()), gear::base::CorruptData);
  replace(folder / "notes.txt", "mine");
  expect_message<gear::base::InvalidArgument>([&] { save_shard(*content.shard, folder.path()); },
                                              "notes.txt", "another directory");
  expect_message<gear::base::InvalidArgument>(
      [&] { save_shard(*content.shard, folder / "notes.txt"); }, "is a file");
  CHECK(contents(folder / "notes.txt") == "mine");
}

TEST_CASE("a write that fails anywhere leaves the previous checkpoint and no file of its own") {
  const TemporaryFolder folder;
  Content first(1);
  Content second(2);
  save_shard(*first.shard, folder / "c");
  const auto files = names_in(folder / "c");
  const auto bytes = static_cast<int64_t>(inspect_checkpoint(folder / "c").bytes);
  int64_t saves = 0;
  // The manifest is last.
  const auto at_an_end = [&](int64_t at) { return at < 200 || at > bytes - 1500; };
  for (int64_t fault = 0;; fault += at_an_end(fault) ? 7 : 1000) {
    gear::base::set_write_fault(fault, ENOSPC);
    bool failed = false;
    try {
      save_shard(*second.shard, folder / "c");
    } catch (const gear::base::IoError& error) {
      failed = true;
      CHECK(error.code() == ENOSPC);
    }
    if (failed) {
      CHECK_THROWS_AS(save_shard(*second.shard, folder / "fresh"), gear::base::IoError);
    }
    gear::base::set_write_fault(-1, 0);
    if (!failed) {
      break;
    }
    ++saves;
    CAPTURE(fault);
    REQUIRE(!fs::exists(folder / "fresh"));
    REQUIRE(names_in(folder / "c") == files);
    expect_equal(*first.shard, *load(folder / "c"));
  }
  CHECK(saves > bytes / 1000);
  expect_equal(*second.shard, *load(folder / "c"));
}

TEST_CASE("a file that ends early or goes on too long is refused") {
  const TemporaryFolder folder;
  Content content(1);
  save_shard(*content.shard, folder.path());
  const std::string paths[] = {shard_file(folder.path()), folder / "MANIFEST"};
  for (const std::string& path : paths) {
    const std::string good = contents(path);
    for (size_t length = 0; length < good.size(); length += good.size() < 500 ? 1 : 61) {
      CAPTURE(length);
      expect_refused(folder.path(), path, good, good.substr(0, length));
    }
    expect_refused(folder.path(), path, good, good.substr(0, good.size() - 1));
    expect_refused(folder.path(), path, good, good + '\0');
  }
  expect_equal(*content.shard, *load(folder.path()));
}

TEST_CASE("a flipped bit anywhere is refused") {
  const TemporaryFolder folder;
  Content content(1);
  save_shard(*content.shard, folder.path());
  const std::string paths[] = {shard_file(folder.path()), folder / "MANIFEST"};
  for (const std::string& path : paths) {
    const std::string good = contents(path);
    for (size_t i = 0; i < good.size(); i += i < 200 ? 1 : 13) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 1 << i % 8);
      CAPTURE(i);
      expect_refused(folder.path(), path, good, bad);
    }
  }
  CHECK(inspect_checkpoint(folder.path()).errors.empty());
}

TEST_CASE("a damaged page is named by inspect and by load") {
  const TemporaryFolder folder;
  Content content(1);
  save_shard(*content.shard, folder.path());
  const std::string path = shard_file(folder.path());
  std::string bytes = contents(path);
  const uint64_t pages = used_pages(content.shard->index().state()).size();
  const uint64_t page_bytes = content.shard->layout().page_bytes;
  const size_t last_page = bytes.size() - pages * sizeof(uint32_t) - page_bytes;
  bytes[last_page] = static_cast<char>(bytes[last_page] ^ 1);
  replace(path, bytes);
  const CheckpointInfo info = inspect_checkpoint(folder.path());
  REQUIRE(info.errors.size() == 1);
  CHECK(info.errors[0].find("at byte " + std::to_string(last_page)) != std::string::npos);
  expect_message<gear::base::CorruptData>([&] { load(folder.path()); }, path,
                                          info.errors[0].c_str());
}

TEST_CASE("the shard file of another checkpoint is refused") {
  const TemporaryFolder folder;
  Content first(1);
  Content second(8);  // the same lengths, other values
  save_shard(*first.shard, folder / "a");
  save_shard(*second.shard, folder / "b");
  const std::string good = contents(shard_file(folder / "a"));
  const std::string other = contents(shard_file(folder / "b"));
  REQUIRE(good.size() == other.size());
  expect_refused(folder / "a", shard_file(folder / "a"), good, other);
}

TEST_CASE("a header of wild sizes whose checksums fit is refused") {
  const TemporaryFolder folder;
  Content content(1);
  save_shard(*content.shard, folder.path());
  const Manifest manifest = read_manifest(folder.path());
  const std::string path = shard_file(folder.path());
  const std::string good = contents(path);
  constexpr size_t kSizes = 16;  // index_bytes, page_bytes and pages_used; the CRC is at 60
  for (const uint64_t wild : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, uint64_t{1} << 62,
                              ~uint64_t{0} - 62, ~uint64_t{0} - 4095, ~uint64_t{0}}) {
    for (size_t field = 0; field < 3; ++field) {
      std::string bad = good;
      std::memcpy(bad.data() + kSizes + 8 * field, &wild, sizeof wild);
      Manifest forged = manifest;
      forged.header_crc = gear::base::crc32c(bad.data(), 60);
      std::memcpy(bad.data() + 60, &forged.header_crc, sizeof forged.header_crc);
      replace(path, bad);
      commit_manifest(folder.path(), forged);
      CAPTURE(field);
      CAPTURE(wild);
      CHECK_THROWS_AS(load(folder.path()), gear::base::CorruptData);
      CHECK_THROWS_AS(inspect_checkpoint(folder.path()), gear::base::CorruptData);
    }
  }
}
