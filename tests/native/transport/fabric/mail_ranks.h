#pragma once

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "forked_ranks.h"
#include "transport/fabric/fabric_frames.h"
#include "transport/messages/messages.h"

/// Ranks that have a Mail each, as processes of this machine, and what they do together.
namespace gear::testing {

using transport::ConstBytes;
using transport::Failure;
using transport::Opaque;
using transport::Transport;
namespace fabric = transport::fabric;
namespace messages = transport::messages;

inline constexpr double kLong = 200;
inline constexpr uint64_t kToken = 0x6765617231323334;

inline bool libfabric_is_here() {
  try {
    fabric::fabric_library();
    return true;
  } catch (const base::TransportError& error) {
    MESSAGE("skipped: " << std::string(error.what()));
    return false;
  }
}

// Addresses of the ranks of one test, in memory that their processes share.
class Board {
 public:
  explicit Board(uint32_t size) : size_(size) {
    void* memory = ::mmap(nullptr, sizeof(Entry) * size, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    entries_ = static_cast<Entry*>(memory);
  }
  ~Board() { ::munmap(entries_, sizeof(Entry) * size_); }
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  uint32_t size() const { return size_; }
  /// Another one of each board of this process.
  int number() const { return number_; }

  std::vector<Opaque> meet(uint32_t rank, const Opaque& own) const {
    std::memcpy(entries_[rank].bytes, own.data(), own.size());
    entries_[rank].size.store(own.size());
    std::vector<Opaque> all;
    for (uint32_t r = 0; r < size_; ++r) {
      while (entries_[r].size.load() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      const auto* bytes = reinterpret_cast<const std::byte*>(entries_[r].bytes);
      all.emplace_back(bytes, bytes + entries_[r].size.load());
    }
    return all;
  }

 private:
  struct Entry {
    std::atomic<uint64_t> size;
    char bytes[248];
  };
  static inline int s_made = 0;
  int number_ = s_made++;
  uint32_t size_;
  Entry* entries_;
};

struct Opened {
  fabric::FabricFrames* frames;  ///< of mail
  std::shared_ptr<messages::Mail> mail;

  void know(uint32_t rank, const std::vector<Opaque>& addresses) const {
    frames->know(addresses);
    mail->know(rank, static_cast<uint32_t>(addresses.size()));
  }
};

inline Opened open_mail(const std::string& provider, uint64_t token) {
  auto domain = std::make_shared<const fabric::FabricDomain>(
      fabric::fabric_library(), fabric::FabricChoice{provider, "lo"}, fabric::FabricUse::kMessages);
  auto frames = std::make_unique<fabric::FabricFrames>(std::move(domain));
  fabric::FabricFrames* const kept = frames.get();
  return {kept, std::make_shared<messages::Mail>(std::move(frames), token)};
}

inline std::unique_ptr<messages::Messages> join(const Board& board, uint32_t rank,
                                                double timeout_s = kLong,
                                                std::shared_ptr<Failure> failure = nullptr,
                                                uint64_t token = kToken) {
  const Opened opened = open_mail(fabric::fabric_choice().provider, token);
  opened.know(rank, board.meet(rank, opened.frames->address()));
  return std::make_unique<messages::Messages>(opened.mail, rank, board.size(), timeout_s,
                                              std::move(failure));
}

inline std::vector<Child> start(const Board& board,
                                const std::function<std::string(uint32_t rank)>& body) {
  return start_ranks(board.size(), body);
}

inline void check_done(const std::vector<Child>& children) {
  for (const Child& child : children) {
    CHECK(child.words() == "done");
  }
}

// What rank `from` sends rank `to` in the `turn`-th exchange.
inline std::vector<std::byte> content(uint32_t from, uint32_t to, uint32_t turn, uint64_t bytes) {
  std::mt19937_64 random(from * 1'000'003 + to * 1'009 + turn);
  std::vector<std::byte> made(bytes);
  for (uint64_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(made.data() + i, &word, std::min<uint64_t>(sizeof word, bytes - i));
  }
  return made;
}

inline void must(bool right, const char* what) {
  if (!right) {
    throw std::logic_error(what);
  }
}

inline void gather(Transport& messages, uint32_t turn, uint64_t bytes) {
  const auto mine = content(messages.rank(), 0, turn, bytes);
  std::vector<std::byte> all(messages.size() * bytes);
  messages.allgather(mine, all);
  for (uint32_t r = 0; r < messages.size(); ++r) {
    const auto want = content(r, 0, turn, bytes);
    must(std::equal(want.begin(), want.end(), all.begin() + static_cast<std::ptrdiff_t>(r * bytes)),
         "allgather delivered other bytes");
  }
}

enum class Sizes { kEachTells, kKnown };

// size_of(from, to)
inline void exchange(Transport& messages, uint32_t turn, Sizes how,
                     const std::function<uint64_t(uint32_t, uint32_t)>& size_of) {
  const uint32_t own = messages.rank();
  std::vector<std::vector<std::byte>> sent;
  std::vector<uint64_t> sizes;
  for (uint32_t r = 0; r < messages.size(); ++r) {
    sent.push_back(content(own, r, turn, size_of(own, r)));
    const uint64_t comes = size_of(r, own);
    sizes.push_back(comes);
  }
  const std::vector<ConstBytes> to(sent.begin(), sent.end());
  const auto got =
      messages.exchange(to, how == Sizes::kEachTells ? std::vector<uint64_t>() : sizes);
  must(got.size() == messages.size(), "not an entry of each rank");
  must(got[own].data() == to[own].data() && got[own].size() == to[own].size(), "own entry");
  for (uint32_t r = 0; r < messages.size(); ++r) {
    const auto want = content(r, own, turn, size_of(r, own));
    must(std::ranges::equal(got[r], want), "exchange delivered other bytes");
  }
}

inline uint64_t random_size(uint32_t turn, uint32_t from, uint32_t to) {
  std::mt19937_64 random(turn * 7'919 + from * 101 + to);
  switch (random() % 6) {
    case 0:
    case 1:
      return 0;
    case 2:
      return 1 + random() % 64;
    case 3:
      return fabric::kFrameBytes - sizeof(messages::FrameHead) - 1 + random() % 3;
    case 4:
      return random() % 100'000;
    default:
      return random() % (turn % 10 == 0 ? 1 << 20 : 5'000);
  }
}

inline double seconds_since(std::chrono::steady_clock::time_point started) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

}  // namespace gear::testing
