#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <iomanip>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/cuda/cuda.h"
#include "base/environment.h"
#include "base/errors.h"
#include "base/files/file.h"
#include "base/gpu/devices.h"
#include "base/log.h"
#include "link/link_cache.h"
#include "link/link_measure.h"

namespace gear::link {
namespace {
namespace fs = std::filesystem;

constexpr uint64_t kMaxFileBytes = 4096;

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) {
    return "host";
  }
  return name;
}

std::string gpu_name(int device) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  for (const std::byte byte : base::device_uuid(device)) {
    out << std::hex << std::setw(2) << std::setfill('0') << std::to_integer<int>(byte);
  }
  return out.str();
}

// What kept speeds are of: they hold for no other GPU, slot, host or driver.
std::string link_name(int device) {
  std::array<char, 32> bus_id{};
  GEAR_CUDA_TRY(cudaDeviceGetPCIBusId(bus_id.data(), bus_id.size(), device));
  return base::cat("GPU ", gpu_name(device), " at ", bus_id.data(), " of ", host_name(),
                   ", driver for CUDA ", std::to_string(base::driver_version()));
}

// Nothing where the operator's account has no place for caches.
std::optional<fs::path> cache_path(int device) {
  const std::optional<std::string> folder = base::cache_folder();
  if (!folder) {
    return std::nullopt;
  }
  return fs::path(*folder) / base::cat("links-", gpu_name(device), "-", host_name(), ".txt");
}

// Nothing where there is none; throws for one that cannot be read.
std::optional<LinkModel> read_cache(int device) {
  const auto path = cache_path(device);
  if (!path || !fs::exists(*path)) {
    return std::nullopt;
  }
  const base::File file = base::File::open_read(path->string());
  std::string text(std::min(file.size(), kMaxFileBytes), '\0');
  text.resize(file.read_at(0, std::as_writable_bytes(std::span(text))));
  return LinkModel::parse(text, link_name(device));
}

void write_cache(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  const std::string draft = base::cat(path.string(), ".", getpid());
  base::remove_file(draft);
  base::File file = base::File::create(draft);
  file.write(std::as_bytes(std::span(text)));
  file.close();
  base::atomic_rename(draft, path.string());
}

// Logs when it ends what was told to it, behind a lock that is taken after it: a log's sink may ask
// for a link itself.
class LaterLog {
 public:
  LaterLog() = default;
  ~LaterLog() {
    for (const auto& [level, text] : messages_) {
      base::log(level, text);
    }
  }
  LaterLog(const LaterLog&) = delete;
  LaterLog& operator=(const LaterLog&) = delete;

  void add(base::Level level, std::string text) { messages_.emplace_back(level, std::move(text)); }

 private:
  std::vector<std::pair<base::Level, std::string>> messages_;
};

LinkModel measure(int device, LaterLog& log) {
  const auto start = std::chrono::steady_clock::now();
  const LinkModel model = measure_link(device);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  log.add(base::Level::kInfo,
          base::cat("[link] measured the link to GPU ", device, " in ", took.count(), " s"));
  try {
    if (const auto path = cache_path(device)) {
      write_cache(*path, model.text(link_name(device)));
    }
  } catch (const std::exception& error) {
    log.add(base::Level::kWarning,
            base::cat("[link] cannot keep the measured speed of the link to GPU ", device,
                      ", so each process measures it again: ", error.what()));
  }
  return model;
}

std::mutex& models_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::map<int, LinkModel>& models() {
  static std::map<int, LinkModel> models;
  return models;
}

}  // namespace

std::optional<LinkModel> cached_link_to(int device) {
  try {
    return read_cache(device);
  } catch (const std::exception&) {
    return std::nullopt;  // as good as none: the next process that needs it measures
  }
}

LinkModel link_to(int device) {
  LaterLog log;
  const std::lock_guard guard(models_mutex());
  if (const auto known = models().find(device); known != models().end()) {
    return known->second;
  }
  std::optional<LinkModel> model;
  try {
    model = read_cache(device);
  } catch (const std::exception& error) {
    log.add(base::Level::kWarning, base::cat("[link] cannot use the kept speed of the link to GPU ",
                                             device, ", measuring it again: ", error.what()));
  }
  try {
    if (!model) {
      model = measure(device, log);
    }
  } catch (const base::OutOfMemory& error) {
    model = LinkModel::typical();
    log.add(base::Level::kWarning, base::cat("[link] no memory to measure the link to GPU ", device,
                                             ", assuming PCIe 5 with 16 lanes: ", error.what()));
  }
  return models().emplace(device, *model).first->second;
}

LinkModel measure_link_again(int device) {
  LaterLog log;
  const std::lock_guard guard(models_mutex());
  return models().insert_or_assign(device, measure(device, log)).first->second;
}

}  // namespace gear::link
