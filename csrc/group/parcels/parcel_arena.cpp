#include "group/parcels/parcel_arena.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/threads/fence.h"
#include "transport/typed.h"

namespace gear::group {
namespace {

constexpr uint64_t kAlign = 64;  // a cache line

uint64_t aligned(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

ParcelArena::ParcelArena(transport::Transport& data)
    : data_(data),
      arena_(memory::make_region(memory::Tier::kHost, kLeastBytes)),
      arena_bytes_(data.size()),
      notes_(data.size()),
      arrived_(data.size()) {}

std::byte* ParcelArena::place(uint32_t consumer, uint64_t bytes) {
  const uint64_t end = used_ + aligned(bytes);
  if (end > arena_->bytes()) {
    auto larger = memory::make_region(memory::Tier::kHost, std::max(end, 2 * arena_->bytes()));
    std::memcpy(larger->data(), arena_->data(), used_);
    reader_.reset();
    exposed_.reset();
    arena_ = std::move(larger);
  }
  notes_[consumer] = {used_, bytes, 0};
  return arena_->data() + std::exchange(used_, end);
}

std::span<const transport::ConstBytes> ParcelArena::fetch(std::span<const uint64_t> bytes) {
  for (Note& note : notes_) {
    note.arena_bytes = arena_->bytes();
  }
  base::store_fence();  // the rows, before what says that they are there
  const std::vector<Note> notes = transport::alltoall(data_, notes_);
  expose(notes);
  reads_.clear();
  uint64_t landed_bytes = 0;
  for (uint32_t o = 0; o < notes.size(); ++o) {
    const Note& note = notes[o];
    if (o == data_.rank()) {
      continue;
    }
    if (note.bytes != bytes[o] || note.bytes > note.arena_bytes ||
        note.begin > note.arena_bytes - note.bytes) {
      throw base::TransportError(
          base::cat("[transport] rank ", o, " has packed ", note.bytes, " bytes of rows for rank ",
                    data_.rank(), " at ", note.begin, " of ", note.arena_bytes, ", and ", bytes[o],
                    " are to come: ranks of one group must run the same build"));
    }
    if (note.bytes > 0) {
      reads_.push_back({o, note.begin, note.bytes, landed_bytes});
      landed_bytes += aligned(note.bytes);
    }
  }
  std::ranges::fill(arrived_, transport::ConstBytes{});
  if (!reads_.empty()) {
    const transport::ConstBytes landed = reader_->read(reads_, landed_bytes);
    for (const transport::RemoteRead& one : reads_) {
      arrived_[one.owner] = landed.subspan(one.to, one.bytes);
    }
  }
  // From here on the owners may pack the next batch's rows over these.
  static_cast<void>(transport::allgather(data_, uint8_t{1}));
  std::ranges::fill(notes_, Note{});
  used_ = 0;
  return arrived_;
}

// Where an arena is not the one that the ranks read.
void ParcelArena::expose(std::span<const Note> notes) {
  bool grown = false;
  for (uint32_t r = 0; r < notes.size(); ++r) {
    grown |= std::exchange(arena_bytes_[r], notes[r].arena_bytes) != notes[r].arena_bytes;
  }
  if (!grown) {
    return;
  }
  reader_.reset();
  exposed_.reset();
  exposed_ = data_.expose({arena_->data(), arena_->bytes()});
  if (!exposed_) {
    throw base::TransportError(base::cat(
        "[transport] the ranks cannot register memory for rows that they pack, ", arena_->bytes(),
        " bytes here: raise the limit (ulimit -l), or set GEAR_PACK_BELOW=0 on every rank"));
  }
  reader_ = exposed_->connect(data_);
}

}  // namespace gear::group
