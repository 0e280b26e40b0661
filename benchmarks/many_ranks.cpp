// Ranks that are processes of this machine meet by libfabric, agree, exchange what a batch needs,
// and part: how long that takes, and what a rank holds. Built by `cmake --build FOLDER --target
// gear_many_ranks`.
//
//   gear_many_ranks RANKS [AGREEMENTS [BATCH_SIZE]]
//
// FI_TCP_MAX_RX_SIZE=1024 saves 15 MiB a rank with libfabric 1.18 and later, whose default keeps
// 1,024 buffers of 16 KiB for what nobody has asked for yet.

#include <dirent.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "transport/fabric/messages/fabric_messages.h"

namespace {

using namespace gear::transport;
using Clock = std::chrono::steady_clock;

constexpr double kTimeout = 300;
constexpr uint64_t kRowBytes = 512;
constexpr uint32_t kNodes = 16;

struct Rank {
  std::atomic<uint32_t> address_bytes;
  char address[188];
  double meet_s;
  double agree_s;  // each, the first one apart
  double first_agree_s;
  double exchange_s;
  uint32_t files_agreed;
  uint32_t files;
  uint32_t messages;
  uint64_t anonymous_kib;
};

struct Job {
  std::atomic<uint32_t> parted;
  std::atomic<uint32_t> failed;
  Rank ranks[];
};

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

uint32_t open_files() {
  DIR* folder = ::opendir("/proc/self/fd");
  uint32_t count = 0;
  while (::readdir(folder) != nullptr) {
    ++count;
  }
  ::closedir(folder);
  return count - 3;  // ".", "..", the folder
}

uint64_t anonymous_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("RssAnon:", 0) == 0) {
      return std::strtoull(line.c_str() + 8, nullptr, 10);
    }
  }
  return 0;
}

// A parent starts them one after another, and a place of many cores tells addresses in one message:
// those that wait here only sleep.
std::vector<Opaque> addresses_of(Job& job, uint32_t rank, uint32_t size, const Opaque& own) {
  Rank& mine = job.ranks[rank];
  std::memcpy(mine.address, own.data(), std::min(own.size(), sizeof mine.address));
  mine.address_bytes.store(static_cast<uint32_t>(own.size()), std::memory_order_release);
  std::vector<Opaque> all;
  for (uint32_t r = 0; r < size; ++r) {
    uint32_t bytes = 0;
    while ((bytes = job.ranks[r].address_bytes.load(std::memory_order_acquire)) == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1 + size / 20));
    }
    const auto* begin = reinterpret_cast<const std::byte*>(job.ranks[r].address);
    all.emplace_back(begin, begin + bytes);
  }
  return all;
}

// What the owners of a batch's rows send: each of `batch` draws has an owner and a consumer, which
// all ranks find out alike.
void exchange_batch(fabric::FabricMessages& messages, uint32_t batch, uint64_t seed, Rank& mine) {
  const uint32_t size = messages.size();
  std::mt19937_64 random(seed);
  std::vector<uint64_t> going(size);
  std::vector<uint64_t> coming(size);
  for (uint32_t draw = 0; draw < batch; ++draw) {
    const auto owner = static_cast<uint32_t>(random() % size);
    const auto consumer = static_cast<uint32_t>(uint64_t{draw} * size / batch);
    if (owner == messages.rank() && consumer != owner) {
      going[consumer] += kRowBytes;
    }
    if (consumer == messages.rank() && consumer != owner) {
      coming[owner] += kRowBytes;
    }
  }
  const std::vector<std::byte> rows(batch * kRowBytes, static_cast<std::byte>(messages.rank()));
  std::vector<ConstBytes> to;
  for (uint32_t r = 0; r < size; ++r) {
    to.push_back(ConstBytes(rows).first(going[r]));
    mine.messages += going[r] > 0;
  }
  const auto got = messages.exchange(to, coming);
  for (uint32_t r = 0; r < size; ++r) {
    if (r != messages.rank() && (got[r].size() != coming[r] ||
                                 (!got[r].empty() && got[r][0] != static_cast<std::byte>(r)))) {
      throw std::logic_error("other rows came");
    }
  }
}

void be_rank(Job& job, uint32_t rank, uint32_t size, uint32_t agreements, uint32_t batch) {
  Rank& mine = job.ranks[rank];
  const auto start = Clock::now();
  auto domain = std::make_shared<const fabric::FabricDomain>(
      fabric::fabric_library(), fabric::FabricChoice{fabric::fabric_choice().provider, "lo"},
      fabric::FabricUse::kMessages);
  if (rank == 0) {
    std::printf("%s\n", domain->text().c_str());
    std::fflush(stdout);
  }
  auto mail = std::make_shared<fabric::Mail>(std::move(domain), 0x6d616e79);
  mail->know(rank, addresses_of(job, rank, size, mail->address()));
  fabric::FabricMessages messages(std::move(mail), rank, size, kTimeout);
  mine.meet_s = since(start);

  struct Word {
    uint32_t rank;
    uint32_t node;
    uint64_t turn;
  };
  std::vector<Word> all(size);
  const auto agree = [&](uint64_t turn) {
    const Word word{rank, rank % kNodes, turn};
    messages.allgather(std::as_bytes(std::span(&word, 1)), std::as_writable_bytes(std::span(all)));
    for (uint32_t r = 0; r < size; ++r) {
      if (all[r].rank != r || all[r].turn != turn) {
        throw std::logic_error("other words came");
      }
    }
  };
  auto begun = Clock::now();
  agree(0);
  mine.first_agree_s = since(begun);
  begun = Clock::now();
  for (uint32_t turn = 1; turn < agreements; ++turn) {
    agree(turn);
  }
  mine.agree_s = since(begun) / std::max(1u, agreements - 1);
  mine.files_agreed = open_files();
  if (batch > 0) {
    begun = Clock::now();
    exchange_batch(messages, batch, 1, mine);
    mine.exchange_s = since(begun);
    agree(agreements);  // nobody leaves earlier
  }
  mine.files = open_files();
  mine.anonymous_kib = anonymous_kib();
  ++job.parted;
}

template <class Of>
std::string spread(const Job& job, uint32_t size, double unit, const Of& of) {
  std::vector<double> values;
  for (uint32_t r = 0; r < size; ++r) {
    values.push_back(static_cast<double>(of(job.ranks[r])) * unit);
  }
  std::ranges::sort(values);
  char text[80];
  std::snprintf(text, sizeof text, "%10.2f %10.2f", values[size / 2], values.back());
  return text;
}

}  // namespace

int main(int count, char** arguments) {
  const auto number = [&](int i, uint32_t otherwise) {
    return i < count ? static_cast<uint32_t>(std::strtoul(arguments[i], nullptr, 10)) : otherwise;
  };
  const uint32_t size = number(1, 0);
  const uint32_t agreements = number(2, 20);
  const uint32_t batch = number(3, 256);
  if (size == 0 || agreements == 0) {
    std::fputs("gear_many_ranks RANKS [AGREEMENTS [BATCH_SIZE]]\n", stderr);
    return 2;
  }
  void* const memory = ::mmap(nullptr, sizeof(Job) + size * sizeof(Rank), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    return 1;
  }
  Job& job = *static_cast<Job*>(memory);
  const auto start = Clock::now();
  std::vector<pid_t> children;
  for (uint32_t r = 0; r < size; ++r) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        be_rank(job, r, size, agreements, batch);
        ::_exit(0);
      } catch (const std::exception& error) {
        if (job.failed++ < 4) {
          std::fprintf(stderr, "rank %u: %s\n", r, error.what());
        }
        ::_exit(1);
      }
    }
    if (child < 0) {
      std::perror("fork");
      ++job.failed;
      break;
    }
    children.push_back(child);
  }
  for (size_t i = 0; i < children.size(); ++i) {
    ::wait(nullptr);
    if (job.failed > 0) {
      for (const pid_t child : children) {
        ::kill(child, SIGKILL);
      }
    }
  }
  if (job.failed > 0 || job.parted != size) {
    std::fprintf(stderr, "%u of %u ranks failed\n", size - job.parted.load(), size);
    return 1;
  }
  std::printf("%u ranks, %.1f s from the first fork to the last end\n", size, since(start));
  std::printf("%-34s %10s %10s\n", "of a rank", "median", "most");
  const auto row = [&](const char* what, double unit, const auto& of) {
    std::printf("%-34s %s\n", what, spread(job, size, unit, of).c_str());
  };
  row("to have all addresses, s", 1, [](const Rank& one) { return one.meet_s; });
  row("first agreement, s", 1, [](const Rank& one) { return one.first_agree_s; });
  row("each later agreement, ms", 1e3, [](const Rank& one) { return one.agree_s; });
  row("exchange of the batch's rows, ms", 1e3, [](const Rank& one) { return one.exchange_s; });
  row("messages it sends in that", 1, [](const Rank& one) { return one.messages; });
  row("open files after the agreements", 1, [](const Rank& one) { return one.files_agreed; });
  row("open files at the end", 1, [](const Rank& one) { return one.files; });
  row("memory of its own, MiB", 1.0 / 1024, [](const Rank& one) { return one.anonymous_kib; });
}
