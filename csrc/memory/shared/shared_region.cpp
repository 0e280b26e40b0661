#include "memory/shared/shared_region.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "memory/shared/shared_header.h"

namespace gear::memory {
namespace {

// An object is empty for the microseconds between its creation and its header.
constexpr std::chrono::milliseconds kEmptyFor{1000};
constexpr std::chrono::milliseconds kLookAgainAfter{1};
// Another process that removes the same name holds its lock for microseconds.
constexpr std::chrono::milliseconds kRemoveFor{2000};

std::string_view hash_of(const SharedHeader& header) {
  return {header.schema_hash.data(), header.schema_hash.size()};
}

SharedHeader make_header(uint64_t bytes, std::string_view schema_hash) {
  SharedHeader header{};
  header.magic = kSharedMagic;
  header.layout_version = kSharedLayoutVersion;
  header.header_bytes = kSharedHeaderBytes;
  header.region_bytes = bytes;
  std::ranges::copy(schema_hash, header.schema_hash.begin());
  header.owner = this_process();
  header.state = static_cast<uint32_t>(SharedState::kInitialising);
  return header;
}

// The header of an object that another process made; throws unless it is one of this version.
SharedHeader read_header(const SharedObject& object) {
  SharedHeader header{};
  const auto deadline = std::chrono::steady_clock::now() + kEmptyFor;
  while (object.size() == 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kLookAgainAfter);
  }
  if (!object.read_at_start(std::as_writable_bytes(std::span(&header, 1))) ||
      header.magic != kSharedMagic) {
    throw base::InvalidArgument(
        base::cat("[memory] /dev/shm", object.name(),
                  " exists and is not a shared region of GEAR: choose another name, or "
                  "remove it if nobody needs it"));
  }
  if (header.layout_version != kSharedLayoutVersion || header.header_bytes != kSharedHeaderBytes) {
    throw base::InvalidArgument(
        base::cat("[memory] /dev/shm", object.name(), " has layout version ", header.layout_version,
                  ", this GEAR has ", kSharedLayoutVersion,
                  ": use one version of GEAR for all processes, or another name"));
  }
  return header;
}

// Frees the name if what holds it was left behind by a process that has ended, and throws if not;
// false if the system did not let it. `last`: then throws too.
bool reclaim(SharedObject object, std::string_view name, std::string_view schema_hash, bool last) {
  const SharedHeader header = read_header(object);
  switch (liveness(header.owner)) {
    case Liveness::kAlive:
      throw base::InvalidArgument(base::cat(
          "[memory] shared region '", name, "' belongs to live process ", header.owner.pid,
          " with schema ", hash_of(header), "; this buffer's schema is ", schema_hash,
          ": choose another name or close that buffer"));
    case Liveness::kUnknown:
      throw base::InvalidArgument(
          base::cat("[memory] shared region '", name, "' belongs to process ", header.owner.pid,
                    " of another container, which may be alive: choose another name, "
                    "or remove /dev/shm",
                    object.name(), " if it has ended"));
    case Liveness::kEnded:
      break;
  }
  if (object.try_unlink()) {
    base::log(base::Level::kWarning,
              base::cat("[memory] removed shared region '", name, "' of ", header.region_bytes,
                        " bytes that process ", header.owner.pid, " left behind when it ended"));
    return true;
  }
  if (last) {
    throw base::InvalidArgument(
        base::cat("[memory] shared region '", name, "' was left behind by process ",
                  header.owner.pid, ", which has ended, and /dev/shm", object.name(),
                  " could not be removed: it is another user's, or somebody holds its lock; choose "
                  "another name, or have its owner remove it"));
  }
  return false;
}

SharedObject create_object(const std::string& object_name, std::string_view name,
                           std::string_view schema_hash) {
  // Others may take the name once it is free, but each of them takes it alive, which ends the loop.
  const auto deadline = std::chrono::steady_clock::now() + kRemoveFor;
  for (;;) {
    if (std::optional<SharedObject> object = SharedObject::create(object_name)) {
      return std::move(*object);
    }
    const bool last = std::chrono::steady_clock::now() >= deadline;
    std::optional<SharedObject> taken = SharedObject::open(object_name);
    if (taken && !reclaim(std::move(*taken), name, schema_hash, last)) {
      std::this_thread::sleep_for(kLookAgainAfter);
    }
  }
}

std::atomic_ref<uint32_t> state_of(const Mapping& mapping) {
  static_assert(std::atomic_ref<uint32_t>::is_always_lock_free);
  return std::atomic_ref<uint32_t>(reinterpret_cast<SharedHeader*>(mapping.data())->state);
}

const SharedHeader& header_of(const Mapping& mapping) {
  return *reinterpret_cast<const SharedHeader*>(mapping.data());
}

}  // namespace

std::unique_ptr<SharedRegion> SharedRegion::create(std::string_view name, uint64_t bytes,
                                                   std::string_view schema_hash) {
  const std::string object_name = shared_object_name(name);
  check_schema_hash(schema_hash);
  const size_t mapped_bytes = whole_pages(bytes) + kSharedHeaderBytes;
  const SharedHeader header = make_header(bytes, schema_hash);

  SharedObject object = create_object(object_name, name, schema_hash);
  try {
    // The header comes first: from here on others see whose name this is.
    object.write_at_start(std::as_bytes(std::span(&header, 1)));
    object.reserve(mapped_bytes);
    Mapping mapping = object.map(mapped_bytes);
    state_of(mapping).store(static_cast<uint32_t>(SharedState::kReady), std::memory_order_release);
    return std::make_unique<SharedRegion>(
        Parts{std::string(name), std::move(object), std::move(mapping), bytes, header.owner.pid});
  } catch (...) {
    object.unlink();
    throw;
  }
}

std::unique_ptr<SharedRegion> SharedRegion::attach(std::string_view name,
                                                   std::string_view expected_schema_hash) {
  const std::string object_name = shared_object_name(name);
  check_schema_hash(expected_schema_hash);
  std::optional<SharedObject> object = SharedObject::open(object_name);
  if (!object) {
    throw base::InvalidArgument(base::cat("[memory] there is no shared region '", name,
                                          "' (/dev/shm", object_name,
                                          "): check the name and GEAR_SHM_PREFIX, and that its "
                                          "owner runs on this node"));
  }
  const SharedHeader header = read_header(*object);
  if (liveness(header.owner) == Liveness::kEnded) {
    throw base::InvalidArgument(base::cat("[memory] shared region '", name,
                                          "' was left behind by process ", header.owner.pid,
                                          ", which has ended: start its owner again"));
  }
  if (hash_of(header) != expected_schema_hash) {
    throw base::InvalidArgument(base::cat("[memory] shared region '", name, "' of process ",
                                          header.owner.pid, " has schema ", hash_of(header),
                                          ", this process expects ", expected_schema_hash,
                                          ": give both the same columns"));
  }
  if (header.state != static_cast<uint32_t>(SharedState::kReady)) {
    throw base::InvalidArgument(base::cat("[memory] shared region '", name,
                                          "' is not complete: process ", header.owner.pid,
                                          " is still making it; attach later"));
  }
  const uint64_t size = object->size();
  if (header.region_bytes > size || whole_pages(header.region_bytes) + kSharedHeaderBytes != size) {
    throw base::CorruptData(base::cat(
        "[memory] shared region '", name, "' has ", size, " bytes in /dev/shm", object_name,
        ", its header says ", header.header_bytes, " + ", header.region_bytes,
        " in whole pages: it was truncated or damaged; start its owner again"));
  }
  Mapping mapping = object->map(size);
  // Read above without order; this load makes the owner's bytes visible.
  GEAR_CHECK(state_of(mapping).load(std::memory_order_acquire) ==
             static_cast<uint32_t>(SharedState::kReady));
  return std::make_unique<SharedRegion>(
      Parts{std::string(name), std::move(*object), std::move(mapping), header.region_bytes, 0});
}

SharedRegion::SharedRegion(Parts parts) : parts_(std::move(parts)) {}

SharedRegion::~SharedRegion() {
  if (owned() ||
      (parts_.owner_pid == 0 && liveness(header_of(parts_.mapping).owner) == Liveness::kEnded)) {
    parts_.object.unlink();
  }
}

void SharedRegion::hide_name() noexcept { parts_.object.unlink(); }

std::byte* SharedRegion::data() const noexcept {
  return parts_.mapping.data() + kSharedHeaderBytes;
}

bool SharedRegion::owned() const noexcept { return parts_.owner_pid == ::getpid(); }

}  // namespace gear::memory
