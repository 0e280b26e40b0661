#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "memory/mapping.h"
#include "memory/region.h"
#include "memory/shared/shared_object.h"

namespace gear::memory {

/// Tier kShared: a named object in /dev/shm, mode 0600, that peers on the node map by its name.
///
///     owner   create ── use ───────────────── destructor: unmap, unlink
///     peer       attach ── use ── destructor: unmap
///
/// The owner's destructor takes the name away; the memory itself goes when the last one has
/// unmapped it, so a peer never loses bytes under its feet. Of an owner that was killed, a peer
/// takes the name away when it unmaps. A process forked from the owner may use the region but does
/// not unlink it.
class SharedRegion final : public Region {
 public:
  /// Makes the region and owns it. All of its memory is reserved before this returns, so that a
  /// full /dev/shm is an OutOfMemory here and not a SIGBUS later.
  ///
  /// If the name is taken: what a process that has ended left behind is removed and logged as a
  /// warning; a region of a live process and anything that is no region of this version of GEAR are
  /// left alone and raise InvalidArgument.
  static std::unique_ptr<SharedRegion> create(std::string_view name, uint64_t bytes,
                                              std::string_view schema_hash);

  /// Maps the region that a live process owns, for reading and writing. Throws InvalidArgument if
  /// there is none, if it is not ready yet, of another schema or of another version of GEAR;
  /// CorruptData if its size is not what its header says.
  static std::unique_ptr<SharedRegion> attach(std::string_view name,
                                              std::string_view expected_schema_hash);

  ~SharedRegion() override;

  std::byte* data() const noexcept override;
  uint64_t bytes() const noexcept override { return parts_.bytes; }
  Tier tier() const noexcept override { return Tier::kShared; }
  std::string_view name() const noexcept override { return parts_.name; }

  void hide_name() noexcept override;

  /// Not, of a peer that reads only: a stray write of this process ends it then, where it would
  /// change what the owner has stored.
  void allow_writes(bool allowed) { parts_.mapping.allow_writes(allowed); }

  /// True for what create() made, in the process that made it.
  bool owned() const noexcept;

 private:
  struct Parts {
    std::string name;
    SharedObject object;
    Mapping mapping;
    uint64_t bytes;
    int64_t owner_pid;  ///< 0 for a peer
  };

 public:
  /// For create and attach alone: nobody else can name a Parts.
  explicit SharedRegion(Parts parts);

 private:
  Parts parts_;
};

}  // namespace gear::memory
