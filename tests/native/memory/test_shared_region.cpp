#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "child_process.h"
#include "expect_message.h"
#include "memory/shared/made_up_name.h"
#include "memory/shared/shared_header.h"
#include "memory/shared/shared_region.h"
#include "scoped_variable.h"

using namespace gear::memory;
using gear::testing::expect_message;
using gear::testing::in_child;
using gear::testing::ScopedVariable;

namespace {

constexpr std::string_view kHash = "0123456789abcdef";
constexpr std::string_view kOtherHash = "fedcba9876543210";

// A name of this test process, free before and after.
class Name {
 public:
  explicit Name(const char* subject) : text_(gear::base::cat("test-", subject, "-", ::getpid())) {
    remove();
  }
  ~Name() { remove(); }
  Name(const Name&) = delete;
  Name& operator=(const Name&) = delete;
  operator std::string_view() const { return text_; }
  std::string object() const { return shared_object_name(text_); }
  std::string path() const { return "/dev/shm" + object(); }
  bool exists() const { return ::access(path().c_str(), F_OK) == 0; }

  // Puts an object there by hand.
  void put(const void* bytes, size_t count) const {
    const int descriptor = ::shm_open(object().c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    REQUIRE(descriptor >= 0);
    REQUIRE(::write(descriptor, bytes, count) == static_cast<ssize_t>(count));
    REQUIRE(::close(descriptor) == 0);
  }

 private:
  void remove() const { ::shm_unlink(object().c_str()); }

  std::string text_;
};

// Leaves a region of an ended process behind.
void leave_stale(const Name& name, uint64_t bytes) {
  const int code = in_child([&] {
    const auto region = SharedRegion::create(name, bytes, kHash);
    region->data()[0] = std::byte{0x77};
    ::_exit(0);
    return 1;
  });
  REQUIRE(code == 0);
  REQUIRE(name.exists());
}

SharedHeader live_header(uint64_t bytes) {
  SharedHeader header{};
  header.magic = kSharedMagic;
  header.layout_version = kSharedLayoutVersion;
  header.header_bytes = kSharedHeaderBytes;
  header.region_bytes = bytes;
  std::memcpy(header.schema_hash.data(), kHash.data(), kHash.size());
  header.owner = this_process();
  header.state = static_cast<uint32_t>(SharedState::kReady);
  return header;
}

}  // namespace

TEST_CASE("a shared region is private to the user, and its name goes with its owner") {
  const Name name("mode");
  {
    const auto region = SharedRegion::create(name, 5000, kHash);
    struct stat status;
    REQUIRE(::stat(name.path().c_str(), &status) == 0);
    CHECK((status.st_mode & 07777) == 0600);
    CHECK(status.st_size == 4096 + 8192);
    CHECK(status.st_blocks * 512 >= 4096 + 8192);  // reserved, not promised
    CHECK(region->owned());
  }
  CHECK(!name.exists());
}

TEST_CASE("a peer in another process sees the bytes, and the owner sees the peer's") {
  const Name name("peer");
  const auto region = SharedRegion::create(name, 10000, kHash);
  region->data()[9999] = std::byte{42};
  const int code = in_child([&] {
    const auto peer = SharedRegion::attach(name, kHash);
    const bool seen = peer->bytes() == 10000 && peer->data()[9999] == std::byte{42} &&
                      !peer->owned() && peer->name() == std::string_view(name);
    peer->data()[0] = std::byte{43};
    return seen ? 0 : 1;
  });
  CHECK(code == 0);
  CHECK(region->data()[0] == std::byte{43});
  CHECK(name.exists());
}

TEST_CASE("a peer keeps its bytes when the owner goes") {
  const Name name("outlive");
  auto region = SharedRegion::create(name, 100, kHash);
  region->data()[7] = std::byte{7};
  const auto peer = SharedRegion::attach(name, kHash);
  region.reset();
  CHECK(peer->data()[7] == std::byte{7});
  expect_message<gear::base::InvalidArgument>([&] { SharedRegion::attach(name, kHash); },
                                              "there is no shared region", "GEAR_SHM_PREFIX");
}

TEST_CASE("a process forked from the owner does not take the name away") {
  const Name name("fork");
  auto region = SharedRegion::create(name, 100, kHash);
  CHECK(in_child([&] {
          const bool owned = region->owned();
          region.reset();
          return owned ? 1 : 0;
        }) == 0);
  CHECK(name.exists());
}

TEST_CASE("what an ended process left behind is removed, logged and replaced") {
  const Name name("stale");
  leave_stale(name, 300);
  expect_message<gear::base::InvalidArgument>([&] { SharedRegion::attach(name, kHash); },
                                              "left behind", "which has ended");
  std::vector<std::string> logged;
  gear::base::set_log_sink(
      [&](gear::base::Level, std::string_view text) { logged.emplace_back(text); });
  const auto region = SharedRegion::create(name, 200, kOtherHash);
  gear::base::set_log_sink(nullptr);
  CHECK(region->bytes() == 200);
  CHECK(region->data()[0] == std::byte{0});
  REQUIRE(logged.size() == 1);
  CHECK(logged[0].find("removed shared region") != std::string::npos);
  CHECK(logged[0].find("300 bytes") != std::string::npos);
}

TEST_CASE("what an ended process left behind and nobody may remove is refused") {
  const Name name("stuck");
  leave_stale(name, 300);
  const auto is_refused = [&](uid_t user) {
    return in_child([&] {
             ::alarm(60);  // the fault was to wait for ever
             if (::geteuid() != user && ::setuid(user) != 0) {
               return 1;
             }
             try {
               SharedRegion::create(name, 200, kHash);
             } catch (const gear::base::InvalidArgument& error) {
               const std::string text = error.what();
               const bool says = text.find("could not be removed") != std::string::npos &&
                                 text.find(name.object()) != std::string::npos;
               return says ? 0 : 2;
             }
             return 3;
           }) == 0;
  };
  const int holder = ::open(name.path().c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(holder >= 0);
  REQUIRE(::flock(holder, LOCK_EX) == 0);
  CHECK(is_refused(::geteuid()));
  REQUIRE(::close(holder) == 0);
  if (::geteuid() == 0) {
    REQUIRE(::chmod(name.path().c_str(), 0666) == 0);  // /dev/shm lets its owner alone remove it
    CHECK(is_refused(65534));
  }
  CHECK(name.exists());
  CHECK_NOTHROW(SharedRegion::create(name, 200, kHash));
}

TEST_CASE("under a made-up name, what an ended process left behind is removed") {
  // Any other process of GEAR would remove it too.
  const ScopedVariable prefix("GEAR_SHM_PREFIX", gear::base::cat("ended", ::getpid()).c_str());
  const std::string ended = made_up_name();
  const std::string alive = made_up_name();
  const Name other("not-made-up");
  leave_stale(other, 300);
  REQUIRE(in_child([&] {
            const auto region = SharedRegion::create(ended, 100, kHash);
            ::_exit(0);
            return 1;
          }) == 0);
  const auto exists = [](std::string_view name) {
    return ::access(("/dev/shm" + shared_object_name(name)).c_str(), F_OK) == 0;
  };
  CHECK(exists(ended));
  {
    const auto region = SharedRegion::create(alive, 100, kHash);
    remove_abandoned();
    CHECK(!exists(ended));
    CHECK(exists(alive));
    CHECK(other.exists());  // whoever gives that name again removes it
  }
  CHECK(!exists(alive));
}

TEST_CASE("under a made-up name, what is locked or another user's is left alone") {
  const ScopedVariable prefix("GEAR_SHM_PREFIX", gear::base::cat("locked", ::getpid()).c_str());
  const std::string ended = made_up_name();
  REQUIRE(in_child([&] {
            const auto region = SharedRegion::create(ended, 100, kHash);
            ::_exit(0);
            return 1;
          }) == 0);
  const std::string object = shared_object_name(ended);
  const std::string path = "/dev/shm" + object;
  const auto is_left = [&] {
    CHECK(in_child([] {
            ::alarm(240);  // the fault was to wait for ever
            made_up_name();
            return 0;
          }) == 0);
    return ::access(path.c_str(), F_OK) == 0;
  };
  const int holder = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(holder >= 0);
  REQUIRE(::flock(holder, LOCK_EX) == 0);
  CHECK(is_left());
  REQUIRE(::close(holder) == 0);
  if (::geteuid() == 0) {
    REQUIRE(::chown(path.c_str(), 1, ::getegid()) == 0);
    CHECK(is_left());
    REQUIRE(::chown(path.c_str(), 0, ::getegid()) == 0);
  }
  CHECK(!is_left());
}

TEST_CASE("a reused pid does not keep a stale region alive") {
  const Name name("reused");
  SharedHeader header = live_header(100);
  header.owner.start_time -= 1;
  header.state = static_cast<uint32_t>(SharedState::kInitialising);
  name.put(&header, sizeof header);
  CHECK_NOTHROW(SharedRegion::create(name, 100, kHash));
}

TEST_CASE("the region of a live process is left alone") {
  const Name name("live");
  const auto region = SharedRegion::create(name, 100, kHash);
  region->data()[0] = std::byte{9};
  expect_message<gear::base::InvalidArgument>(
      [&] { SharedRegion::create(name, 100, kOtherHash); },
      gear::base::cat("shared region '", std::string_view(name), "' belongs to live process ",
                      ::getpid()),
      gear::base::cat("with schema ", kHash),
      gear::base::cat("this buffer's schema is ", kOtherHash),
      "choose another name or close that buffer");
  CHECK(in_child([&] {
          try {
            SharedRegion::create(name, 100, kHash);
          } catch (const gear::base::InvalidArgument&) {
            return 0;
          }
          return 1;
        }) == 0);
  CHECK(name.exists());
  CHECK(region->data()[0] == std::byte{9});
}

TEST_CASE("the region of another container is left alone") {
  const Name name("container");
  SharedHeader header = live_header(100);
  header.owner.pid_namespace += 1;
  name.put(&header, sizeof header);
  expect_message<gear::base::InvalidArgument>([&] { SharedRegion::create(name, 100, kHash); },
                                              "another container");
  CHECK(name.exists());
}

TEST_CASE("what is no region of this GEAR is refused and never removed") {
  const Name name("foreign");
  SUBCASE("other bytes") {
    const std::string bytes(8192, 'x');
    name.put(bytes.data(), bytes.size());
    expect_message<gear::base::InvalidArgument>([&] { SharedRegion::create(name, 100, kHash); },
                                                "not a shared region of GEAR",
                                                "choose another name");
    expect_message<gear::base::InvalidArgument>([&] { SharedRegion::attach(name, kHash); },
                                                "not a shared region of GEAR");
  }
  SUBCASE("nothing at all") {
    name.put("", 0);
    expect_message<gear::base::InvalidArgument>([&] { SharedRegion::create(name, 100, kHash); },
                                                "not a shared region of GEAR");
  }
  SUBCASE("the start of a header") {
    name.put("GEARSHM1", 8);
    CHECK_THROWS_AS(SharedRegion::create(name, 100, kHash), gear::base::InvalidArgument);
  }
  SUBCASE("another layout") {
    SharedHeader header = live_header(100);
    header.owner.start_time -= 1;
    header.layout_version = 2;
    name.put(&header, sizeof header);
    expect_message<gear::base::InvalidArgument>([&] { SharedRegion::create(name, 100, kHash); },
                                                "layout version 2, this GEAR has 1");
    CHECK_THROWS_AS(SharedRegion::attach(name, kHash), gear::base::InvalidArgument);
  }
  CHECK(name.exists());
}

TEST_CASE("attach refuses another schema, an unfinished region and a wrong size") {
  const Name name("attach");
  SUBCASE("another schema") {
    const auto region = SharedRegion::create(name, 100, kHash);
    expect_message<gear::base::InvalidArgument>([&] { SharedRegion::attach(name, kOtherHash); },
                                                gear::base::cat("has schema ", kHash),
                                                gear::base::cat("expects ", kOtherHash));
  }
  SUBCASE("unfinished") {
    SharedHeader header = live_header(100);
    header.state = static_cast<uint32_t>(SharedState::kInitialising);
    name.put(&header, sizeof header);
    expect_message<gear::base::InvalidArgument>([&] { SharedRegion::attach(name, kHash); },
                                                "still making it");
  }
  SUBCASE("truncated") {
    const auto region = SharedRegion::create(name, 10000, kHash);
    REQUIRE(::truncate(name.path().c_str(), 8192) == 0);
    expect_message<gear::base::CorruptData>([&] { SharedRegion::attach(name, kHash); },
                                            "has 8192 bytes", "its header says 4096 + 10000");
  }
  SUBCASE("a size in the header that cannot be") {
    const SharedHeader header = live_header(~uint64_t{0} - 100);
    name.put(&header, sizeof header);
    CHECK_THROWS_AS(SharedRegion::attach(name, kHash), gear::base::CorruptData);
  }
}

TEST_CASE("names, prefixes and hashes are checked") {
  for (const char* name : {"", "a/b", "../x", "a b", "\xC3\xA4"}) {
    CHECK_THROWS_AS(SharedRegion::create(name, 1, kHash), gear::base::InvalidArgument);
  }
  CHECK_THROWS_AS(SharedRegion::create(std::string(129, 'a'), 1, kHash),
                  gear::base::InvalidArgument);
  for (const char* hash : {"", "0123", "0123456789abcdeg", "0123456789abcdef0"}) {
    expect_message<gear::base::InvalidArgument>([&] { SharedRegion::create("x", 1, hash); },
                                                "16 hex digits");
  }
  {
    const ScopedVariable prefix("GEAR_SHM_PREFIX", "site-7");
    CHECK(shared_object_name("x") == "/site-7-x");
  }
  const ScopedVariable prefix("GEAR_SHM_PREFIX", "a/b");
  expect_message<gear::base::InvalidArgument>([] { shared_object_name("x"); }, "GEAR_SHM_PREFIX",
                                              "a/b");
}

TEST_CASE("a full /dev/shm is out of memory at creation, and leaves nothing behind") {
  // In a mount namespace of its own, where that is allowed, /dev/shm is 1 MiB.
  const Name name("full");
  constexpr int kNotAllowed = 77;
  const int code = in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m") != 0) {
      return kNotAllowed;
    }
    try {
      SharedRegion::create(name, 2 << 20, kHash);
      return 1;
    } catch (const gear::base::OutOfMemory& error) {
      const std::string text = error.what();
      if (text.find("/dev/shm has ") == std::string::npos ||
          text.find("tier='host'") == std::string::npos || name.exists()) {
        return 2;
      }
    }
    const auto region = SharedRegion::create(name, 512 << 10, kHash);
    std::memset(region->data(), 1, region->bytes());
    return 0;
  });
  if (code == kNotAllowed) {
    MESSAGE("skipped: this process may not mount a small /dev/shm");
    return;
  }
  CHECK(code == 0);
}
