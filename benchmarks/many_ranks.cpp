// Ranks that are processes of this machine meet by libfabric, agree, exchange what a batch needs,
// and part: how long that takes, what a rank holds, and how much it sends and receives. Built by
// `cmake --build FOLDER --target gear_many_ranks`.
//
//   gear_many_ranks RANKS [--nodes=N] [--agreements=20] [--bytes=16] [--batch=256]
//
// --nodes: the ranks are told to be on N nodes, and control goes inside them first; without it,
// between all ranks. --bytes: of a rank, in an agreement. --batch: rows of 512 bytes; 0: none.
//
// FI_TCP_MAX_RX_SIZE=1024, which gear.Group sets, saves 15 MiB a rank with libfabric 1.18 and
// later, whose default keeps 1,024 buffers of 16 KiB for what nobody has asked for yet.

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
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "transport/by_node/by_node.h"
#include "transport/fabric/fabric_frames.h"
#include "transport/messages/messages.h"
#include "transport/shared/shared_memory.h"

namespace {

using namespace gear::transport;
using Clock = std::chrono::steady_clock;

constexpr double kTimeout = 300;
constexpr uint64_t kRowBytes = 512;

struct Work {
  uint32_t size = 0;
  uint32_t nodes = 0;  // 0: the ranks are not told of any
  uint32_t agreements = 20;
  uint32_t bytes = 16;
  uint32_t batch = 256;
};

// What a part of the work took of a rank.
struct Part {
  messages::FrameCounts frames;
  double seconds;
};

struct Rank {
  std::atomic<uint32_t> address_bytes;
  char address[188];
  double meet_s;
  Part first;  // agreement
  Part later;  // each; its seconds are the median
  Part exchange;
  uint32_t sockets_agreed;
  uint32_t sockets;
  uint32_t files;
  uint64_t anonymous_kib;
};

struct Job {
  std::atomic<uint32_t> met;
  std::atomic<uint32_t> parted;
  std::atomic<uint32_t> failed;
  char name[64];  // of shared memory
  Rank ranks[];
};

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Those alone whose link begins with `kind`.
uint32_t open_files(const std::string& kind = "") {
  DIR* folder = ::opendir("/proc/self/fd");
  uint32_t count = 0;
  while (const dirent* entry = ::readdir(folder)) {
    char target[256] = {};
    const std::string link = std::string("/proc/self/fd/") + entry->d_name;
    const bool is_file = entry->d_name[0] != '.' &&
                         ::readlink(link.c_str(), target, sizeof target - 1) > 0 &&
                         std::strtol(entry->d_name, nullptr, 10) != ::dirfd(folder);
    count += is_file && std::string(target).rfind(kind, 0) == 0;
  }
  ::closedir(folder);
  return count;
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

// Without a message, so that what comes is counted where it belongs.
void meet(Job& job, uint32_t size) {
  const uint32_t round = job.met++ / size;
  while (job.met / size == round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1 + size / 100));
  }
}

// What the owners of a batch's rows send: each of `batch` draws has an owner and a consumer, which
// all ranks find out alike.
void exchange_batch(Transport& messages, uint32_t batch, uint64_t seed) {
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
  }
  const auto got = messages.exchange(to, coming);
  for (uint32_t r = 0; r < size; ++r) {
    if (r != messages.rank() && (got[r].size() != coming[r] ||
                                 (!got[r].empty() && got[r][0] != static_cast<std::byte>(r)))) {
      throw std::logic_error("other rows came");
    }
  }
}

// By node, where the ranks are told of nodes: each has the ranks after those of the one before.
std::unique_ptr<Transport> open_transport(const Job& job, const Work& work, uint32_t rank,
                                          std::shared_ptr<messages::Mail> mail) {
  const auto failure = std::make_shared<Failure>();
  if (work.nodes == 0) {
    return std::make_unique<messages::Messages>(std::move(mail), rank, work.size, kTimeout,
                                                failure);
  }
  std::vector<uint32_t> nodes;
  std::vector<uint32_t> near;
  for (uint32_t r = 0; r < work.size; ++r) {
    nodes.push_back(static_cast<uint32_t>(uint64_t{r} * work.nodes / work.size));
  }
  for (uint32_t r = 0; r < work.size; ++r) {
    if (nodes[r] == nodes[rank]) {
      near.push_back(r);
    }
  }
  const double limit_s = by_node_limit_s(kTimeout);
  auto far =
      std::make_unique<messages::Messages>(std::move(mail), rank, work.size, limit_s, failure);
  std::unique_ptr<Transport> shared;
  if (near.size() > 1) {
    shared = make_shared_memory(std::string(job.name) + std::to_string(nodes[rank]), rank - near[0],
                                static_cast<uint32_t>(near.size()), limit_s, failure, near);
  }
  return make_by_node(std::move(shared), std::move(far), nodes, kTimeout, failure);
}

void be_rank(Job& job, const Work& work, uint32_t rank) {
  Rank& mine = job.ranks[rank];
  auto begun = Clock::now();
  auto domain = std::make_shared<const fabric::FabricDomain>(
      fabric::fabric_library(), fabric::FabricChoice{fabric::fabric_choice().provider, "lo"},
      fabric::FabricUse::kMessages);
  if (rank == 0) {
    std::printf("%s\n", domain->text().c_str());
    std::fflush(stdout);
  }
  auto made = std::make_unique<fabric::FabricFrames>(std::move(domain));
  fabric::FabricFrames& engine = *made;
  const auto mail = std::make_shared<messages::Mail>(std::move(made), 0x6d616e79);
  engine.know(addresses_of(job, rank, work.size, engine.address()));
  mail->know(rank, work.size);
  const uint32_t sockets = open_files("socket:");
  const std::unique_ptr<Transport> transport = open_transport(job, work, rank, mail);
  mine.meet_s = since(begun);

  const auto measure = [&](Part& part, const auto& body) {
    const auto counted = [&] {
      const std::lock_guard guard(mail->mutex());
      return mail->counts();
    };
    meet(job, work.size);
    const messages::FrameCounts before = counted();
    const auto start = Clock::now();
    body();
    part.seconds = since(start);
    const messages::FrameCounts after = counted();
    part.frames = {after.sent - before.sent, after.sent_bytes - before.sent_bytes,
                   after.received - before.received, after.received_bytes - before.received_bytes};
  };
  const uint64_t bytes = work.bytes;
  std::vector<std::byte> own(bytes);
  std::vector<std::byte> all(work.size * bytes);
  const auto agree = [&](uint32_t turn) {
    std::ranges::fill(own, static_cast<std::byte>(rank + turn));
    transport->allgather(own, all);
    for (uint32_t r = 0; r < work.size; ++r) {
      if (bytes > 0 && (all[r * bytes] != static_cast<std::byte>(r + turn) ||
                        all[(r + 1) * bytes - 1] != static_cast<std::byte>(r + turn))) {
        throw std::logic_error("other words came");
      }
    }
  };
  measure(mine.first, [&] { agree(0); });
  std::vector<double> each{0};
  measure(mine.later, [&] {
    for (uint32_t turn = 1; turn < work.agreements; ++turn) {
      const auto start = Clock::now();
      agree(turn);
      each.push_back(since(start));
    }
  });
  std::ranges::sort(each);
  mine.later.seconds = each[(each.size() + 1) / 2];
  const uint64_t times = std::max(1U, work.agreements - 1);
  messages::FrameCounts& frames = mine.later.frames;
  frames = {frames.sent / times, frames.sent_bytes / times, frames.received / times,
            frames.received_bytes / times};
  mine.sockets_agreed = open_files("socket:") - sockets;
  if (work.batch > 0) {
    measure(mine.exchange, [&] { exchange_batch(*transport, work.batch, 1); });
  }
  meet(job, work.size);  // whoever ends closes connections of the others
  mine.sockets = open_files("socket:") - sockets;
  mine.files = open_files();
  mine.anonymous_kib = anonymous_kib();
  meet(job, work.size);
  ++job.parted;
}

template <class Of>
std::string spread(const Job& job, uint32_t size, double unit, const Of& of) {
  std::vector<double> values;
  for (uint32_t r = 0; r < size; ++r) {
    values.push_back(static_cast<double>(of(job.ranks[r])) * unit);
  }
  std::vector<double> sorted = values;
  std::ranges::sort(sorted);
  const double middle = sorted[size / 2];
  const double most = sorted.back();
  char text[80];
  std::snprintf(text, sizeof text, "%10.3f %10.3f %10.3f", middle, most, values[0]);
  return text;
}

}  // namespace

int main(int count, char** arguments) {
  Work work;
  bool understood = count > 1;
  for (int i = 1; i < count; ++i) {
    const std::string given = arguments[i];
    const size_t equals = given.find('=');
    const std::string name = given.substr(0, equals);
    const auto number = static_cast<uint32_t>(
        std::strtoul(given.c_str() + (equals == std::string::npos ? 0 : equals + 1), nullptr, 10));
    if (i == 1) {
      work.size = number;
    } else if (name == "--nodes") {
      work.nodes = number;
    } else if (name == "--agreements") {
      work.agreements = number;
    } else if (name == "--bytes") {
      work.bytes = number;
    } else if (name == "--batch") {
      work.batch = number;
    } else {
      understood = false;
    }
  }
  const uint32_t size = work.size;
  if (!understood || size == 0 || work.agreements == 0 || work.nodes > size) {
    std::fputs("gear_many_ranks RANKS [--nodes=N] [--agreements=20] [--bytes=16] [--batch=256]\n",
               stderr);
    return 2;
  }
  void* const memory = ::mmap(nullptr, sizeof(Job) + size * sizeof(Rank), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    return 1;
  }
  Job& job = *static_cast<Job*>(memory);
  std::snprintf(job.name, sizeof job.name, "many-ranks-%d-", static_cast<int>(::getpid()));
  const auto start = Clock::now();
  std::vector<pid_t> children;
  for (uint32_t r = 0; r < size; ++r) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        be_rank(job, work, r);
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
  std::printf("%u ranks", size);
  if (work.nodes > 0) {
    std::printf(" on %u nodes by name", work.nodes);
  }
  std::printf(", %.1f s from the first fork to the last end\n", since(start));
  std::printf("%-40s %10s %10s %10s\n", "of a rank", "median", "most", "rank 0");
  const auto row = [&](const std::string& what, double unit, const auto& of) {
    std::printf("%-40s %s\n", what.c_str(), spread(job, size, unit, of).c_str());
  };
  const auto part = [&](const std::string& what, const auto& of) {
    row(what + ", ms", 1e3, [&](const Rank& one) { return of(one).seconds; });
    row("  messages sent", 1, [&](const Rank& one) { return of(one).frames.sent; });
    row("  messages received", 1, [&](const Rank& one) { return of(one).frames.received; });
    row("  KiB sent", 1.0 / 1024, [&](const Rank& one) { return of(one).frames.sent_bytes; });
    row("  KiB received", 1.0 / 1024,
        [&](const Rank& one) { return of(one).frames.received_bytes; });
  };
  row("to meet, s", 1, [](const Rank& one) { return one.meet_s; });
  part("the first agreement", [](const Rank& one) { return one.first; });
  part("each later agreement", [](const Rank& one) { return one.later; });
  if (work.batch > 0) {
    part("exchange of the batch's rows", [](const Rank& one) { return one.exchange; });
  }
  row("connections after the agreements", 1, [](const Rank& one) { return one.sockets_agreed; });
  row("connections at the end", 1, [](const Rank& one) { return one.sockets; });
  row("open files at the end", 1, [](const Rank& one) { return one.files; });
  row("memory of its own, MiB", 1.0 / 1024, [](const Rank& one) { return one.anonymous_kib; });
}
