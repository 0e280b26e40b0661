#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/files/file.h"
#include "expect_message.h"

using namespace gear::base;
using gear::testing::expect_message;

namespace {

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "gear-file-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string contents(const std::string& path) {
  const File file = File::open_read(path);
  std::string text(file.size() + 10, '\0');
  text.resize(file.read_at(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  return text;
}

}  // namespace

TEST_CASE("what is written is read back, in order and at offsets") {
  const Folder folder;
  File file = File::create(folder / "a");
  file.write(bytes_of("hello "));
  file.write(bytes_of("world"));
  file.write_at(0, bytes_of("J"));
  file.write_at(20, bytes_of("!"));
  file.write(bytes_of("."));
  file.write({});
  file.sync();
  CHECK(file.size() == 21);
  file.close();
  file.close();
  CHECK(contents(folder / "a") == "Jello world." + std::string(8, '\0') + "!");
  std::string part(5, '?');
  const File reader = File::open_read(folder / "a");
  CHECK(reader.read_at(6, std::as_writable_bytes(std::span(part.data(), part.size()))) == 5);
  CHECK(part == "world");
  CHECK(reader.read_at(100, std::as_writable_bytes(std::span(part.data(), part.size()))) == 0);
  CHECK(reader.path() == folder / "a");
}

TEST_CASE("a file that moves is closed once") {
  const Folder folder;
  File first = File::create(folder / "a");
  File second = std::move(first);
  second.write(bytes_of("x"));
  second = File::create(folder / "b");
  second.write(bytes_of("y"));
  second.close();
  CHECK(contents(folder / "a") == "x");
  CHECK(contents(folder / "b") == "y");
}

TEST_CASE("create honours the umask and replaces nothing") {
  const Folder folder;
  const mode_t former = ::umask(027);
  File::create(folder / "a").close();
  ::umask(former);
  struct stat status;
  REQUIRE(::stat((folder / "a").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0640);
  expect_message<gear::base::InvalidArgument>([&] { File::create(folder / "a"); }, "[file] create ",
                                              folder / "a", "exists already");
}

TEST_CASE("paths that cannot be right are the caller's mistake") {
  const Folder folder;
  File::create(folder / "file").close();
  expect_message<gear::base::InvalidArgument>([&] { File::open_read(folder / "none"); },
                                              "[file] open ", folder / "none", "no such file");
  CHECK_THROWS_AS(File::create(folder / "none/a"), gear::base::InvalidArgument);
  CHECK_THROWS_AS(File::open_read(folder / "file/a"), gear::base::InvalidArgument);
  CHECK_THROWS_AS(atomic_rename(folder / "none", folder / "b"), gear::base::InvalidArgument);
  CHECK_THROWS_AS(sync_directory(folder / "none"), gear::base::InvalidArgument);
  const File directory = File::open_read(folder.path());
  std::byte byte;
  expect_message<gear::base::InvalidArgument>([&] { directory.read_at(0, std::span(&byte, 1)); },
                                              "is a directory");
}

TEST_CASE("a full disk leaves a torn file and says what happened") {
  const Folder folder;
  File file = File::create(folder / "a");
  set_write_fault(7, ENOSPC);
  file.write(bytes_of("abcd"));
  try {
    file.write(bytes_of("efghij"));
    FAIL("no exception was thrown");
  } catch (const gear::base::IoError& error) {
    CHECK(error.code() == ENOSPC);
    CHECK(error.what() == "[file] write " + (folder / "a") +
                              " failed after 3 of 6 bytes: No space left on device: free space or "
                              "choose another directory");
  }
  CHECK_THROWS_AS(file.write_at(0, bytes_of("x")), gear::base::IoError);
  set_write_fault(-1, 0);
  CHECK(contents(folder / "a") == "abcdefg");
  file.write(bytes_of("!"));
  CHECK(contents(folder / "a") == "abcdefg!");
}

TEST_CASE("rename replaces in one step and remove forgives absence") {
  const Folder folder;
  File::create(folder / "a").write(bytes_of("first"));
  File::create(folder / "b").write(bytes_of("second"));
  atomic_rename(folder / "b", folder / "a");
  sync_directory(folder.path());
  CHECK(contents(folder / "a") == "second");
  CHECK(!std::filesystem::exists(folder / "b"));
  remove_file(folder / "a");
  remove_file(folder / "a");
  CHECK(!std::filesystem::exists(folder / "a"));
  std::filesystem::create_directory(folder / "full");
  File::create(folder / "full/x").close();
  std::filesystem::create_directory(folder / "other");
  CHECK_THROWS_AS(atomic_rename(folder / "other", folder / "full"), gear::base::InvalidArgument);
}

TEST_CASE("what a path names is told, and refused where the system cannot say") {
  const Folder folder;
  File::create(folder / "a");
  make_directory(folder / "b");
  CHECK(path_exists(folder / "a"));
  CHECK(path_exists(folder / "b"));
  CHECK(!path_exists(folder / "c"));
  CHECK(!path_exists(folder / "a/c"));
  CHECK(!is_directory(folder / "a"));
  CHECK(is_directory(folder / "b"));
  CHECK(!is_directory(folder / "c"));
  std::vector<std::string> names = names_in(folder.path());
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"a", "b"});
  REQUIRE(::symlink("loop", (folder / "loop").c_str()) == 0);
  const std::string longest = folder / std::string(300, 'x');
  expect_message<InvalidArgument>([&] { path_exists(longest); }, "too long: shorten it");
  expect_message<InvalidArgument>([&] { is_directory(longest); }, "too long: shorten it");
  expect_message<InvalidArgument>([&] { path_exists(folder / "loop"); }, "in a circle");
  expect_message<IoError>([&] { make_directory(folder / "b"); }, "File exists");
  expect_message<IoError>([&] { make_directory(folder / "c/d"); }, "No such file");
  expect_message<IoError>([&] { make_directory(folder / "a/d"); }, "Not a directory");
  expect_message<InvalidArgument>([&] { names_in(folder / "a"); }, "not a directory");
  expect_message<InvalidArgument>([&] { names_in(folder / "c"); }, "no such file");
}

TEST_CASE("a file or an empty directory is removed if it can be") {
  const Folder folder;
  make_directory(folder / "b");
  File::create(folder / "b/a");
  try_remove(folder / "b");
  CHECK(path_exists(folder / "b"));
  try_remove(folder / "b/a");
  try_remove(folder / "b");
  try_remove(folder / "b");
  CHECK(!path_exists(folder / "b"));
}
