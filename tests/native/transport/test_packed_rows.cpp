// Rows that their owners pack, and below which length they do: for every transport that reads
// one-sided.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/numbers/philox.h"
#include "group/parcels/parcel_arena.h"
#include "scoped_variable.h"
#include "transport/one_sided/forwarding.h"
#include "transport/one_sided/pack_limit.h"
#include "transport/one_sided_kinds.h"
#include "transport/typed.h"

using namespace gear::testing;
using namespace gear::transport;
using gear::group::ParcelArena;

namespace {

constexpr double kLong = 200;  // a wait that takes so long fails its test

void none(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) {
    CHECK(error == "");
  }
}

// Of the rows that `owner` packs for `consumer`: now and then none, and more with every batch.
uint64_t bytes_of(uint64_t batch, uint32_t owner, uint32_t consumer) {
  const uint64_t number = gear::base::philox(batch, owner, consumer).lo;
  return owner == consumer || number % 4 == 0 ? 0 : 1 + number % (6'000 << batch);
}

std::byte byte_of(uint64_t batch, uint32_t owner, uint32_t consumer, uint64_t i) {
  return static_cast<std::byte>((i * 2654435761U + batch * 11 + owner * 97 + consumer * 193) >> 5);
}

// Nowhere, where the arena is too small for it.
std::optional<uint64_t> place(ParcelArena& arena, uint64_t batch, uint32_t owner,
                              uint32_t consumer) {
  const uint64_t bytes = bytes_of(batch, owner, consumer);
  const std::optional<uint64_t> place = bytes > 0 ? arena.place(bytes) : std::nullopt;
  for (uint64_t i = 0; place && i < bytes; ++i) {
    arena.at(*place)[i] = byte_of(batch, owner, consumer, i);
  }
  return place;
}

bool came(ConstBytes rows, uint64_t batch, uint32_t owner, uint32_t consumer) {
  if (rows.size() != bytes_of(batch, owner, consumer)) {
    return false;
  }
  for (uint64_t i = 0; i < rows.size(); ++i) {
    if (rows[i] != byte_of(batch, owner, consumer, i)) {
      return false;
    }
  }
  return true;
}

// A transport that counts how often its ranks connect, and how often they expose other memory.
class Counting final : public Forwarding {
 public:
  struct Counts {
    int connected = 0;
    int renewed = 0;
  };

  Counting(Transport& inner, Counts& counts) : Forwarding(inner), counts_(counts) {}

  std::unique_ptr<RemoteMemory> expose(Bytes memory) override {
    return std::make_unique<Memory>(inner_.expose(memory), counts_);
  }

 private:
  struct Memory final : RemoteMemory {
    Memory(std::unique_ptr<RemoteMemory> its, Counts& counts)
        : inner(std::move(its)), counts(counts) {}
    std::unique_ptr<RemoteReader> connect(Transport& control,
                                          std::span<const uint8_t> from) override {
      ++counts.connected;
      return inner->connect(control, from);
    }
    void renew(Bytes memory) override {
      ++counts.renewed;
      inner->renew(memory);
    }
    std::unique_ptr<RemoteMemory> inner;
    Counts& counts;
  };

  Counts& counts_;
};

}  // namespace

TEST_CASE("packed rows: all come, batch after batch, while arenas grow, and ranks connect once") {
  for (const OneSidedKind& kind : kOneSidedKinds) {
    if (!seen_by_sanitizer(kind)) {  // an arena is written again
      continue;
    }
    for (const uint32_t size : {2U, 3U}) {
      CAPTURE(kind.name);
      CAPTURE(size);
      Ranks ranks = kind.make(size, kLong, {});
      std::vector<Counting::Counts> counts(size);
      std::vector<uint64_t> elsewhere(size);  // pieces that found no room
      none(errors_of(ranks, [&](Transport& inner) {
        const uint32_t own = inner.rank();
        Counting transport(inner, counts[own]);
        ParcelArena arena(transport);
        for (uint64_t batch = 0; batch < 8; ++batch) {
          uint64_t most = 0;  // as the agreement on a batch tells all
          for (const uint64_t one : allgather(inner, arena.wanted())) {
            most = std::max(most, one);
          }
          arena.make(most);
          std::vector<uint64_t> places(size, UINT64_MAX);
          for (uint32_t consumer = 0; consumer < size; ++consumer) {
            const auto found = place(arena, batch, own, consumer);
            places[consumer] = found.value_or(UINT64_MAX);
            elsewhere[own] += !found && bytes_of(batch, own, consumer) > 0 ? 1 : 0;
          }
          const std::vector<uint64_t> told = alltoall(inner, places);
          std::vector<ParcelArena::Piece> pieces;
          for (uint32_t owner = 0; owner < size; ++owner) {
            if (told[owner] != UINT64_MAX) {
              pieces.push_back({owner, told[owner], bytes_of(batch, owner, own)});
            }
          }
          const auto arrived = arena.read(pieces);
          expect(arrived.size() == pieces.size(), "not a span a piece");
          for (size_t i = 0; i < pieces.size(); ++i) {
            expect(came(arrived[i], batch, pieces[i].owner, own), "other rows came");
          }
          static_cast<void>(allgather(inner, uint8_t{1}));  // all have read
          arena.clear();
        }
      }));
      for (uint32_t rank = 0; rank < size; ++rank) {
        if (ranks[rank]) {  // on this machine
          CHECK(counts[rank].connected == 1);
          CHECK(counts[rank].renewed > 0);
          CHECK(counts[rank].renewed < 8);
        }
      }
      if (std::ranges::all_of(ranks, [](const auto& one) { return one != nullptr; })) {
        CHECK(std::ranges::max(elsewhere) > 0);
      }
    }
  }
}

TEST_CASE("packed rows: a piece outside of an arena, and an owner that is gone, are named") {
  for (const OneSidedKind& kind : kOneSidedKinds) {
    CAPTURE(kind.name);
    if (!seen_by_sanitizer(kind)) {
      continue;
    }
    Ranks ranks = kind.make(2, 200, {});
    const auto errors = errors_of(ranks, [](Transport& transport) {
      const bool owner = transport.rank() == 1;
      std::optional<ParcelArena> arena(transport);
      arena->make(ParcelArena::kLeastBytes);
      if (owner) {  // goes, and still lives
        std::memset(arena->at(*arena->place(64)), 1, 64);
        transport.allgather({}, {});
        transport.allgather({}, {});
        arena.reset();
        transport.allgather({}, {});
        transport.allgather({}, {});
        return;
      }
      transport.allgather({}, {});
      const std::vector<ParcelArena::Piece> pieces{{1, 0, 64}};
      expect(arena->read(pieces)[0][63] == std::byte{1}, "other rows came");
      for (const uint64_t at : {ParcelArena::kLeastBytes - 63, uint64_t{1} << 63}) {
        std::string said;
        try {
          const std::vector<ParcelArena::Piece> outside{{1, at, 64}};
          arena->read(outside);
        } catch (const gear::base::TransportError& error) {
          said = error.what();
        }
        expect(said == gear::base::cat("[transport] rank 1 has packed 64 bytes of rows for rank 0 ",
                                       "at ", at, " of 65536: ranks of one group must run the ",
                                       "same build"),
               said.c_str());
      }
      transport.allgather({}, {});
      transport.allgather({}, {});
      try {
        arena->read(pieces);
      } catch (const gear::base::TransportError&) {
        transport.allgather({}, {});
        throw;
      }
    });
    INFO(errors[0]);
    CHECK((!ranks[0] || errors[0].starts_with(gear::base::cat(
                            "[transport] rank 0 reads rows of rank 1 by ", kind.name, " ("))));
    CHECK(errors[1] == "");
  }
}

// A message through the kernel costs far more than 64 bytes: there packing wins whatever the load.
TEST_CASE("packed rows: below how many bytes is measured, and the same on all ranks") {
  for (const OneSidedKind& kind : kOneSidedKinds) {
    CAPTURE(kind.name);
    Ranks ranks = kind.make(2, kLong, {});
    none(errors_of(ranks, [](Transport& transport) {
      const uint64_t found = agree_on_pack_below(transport, 1 - transport.rank());
      expect(found == 0 || (found >= 128 && found <= 131072), "a limit of no size that was tried");
      expect(allgather(transport, found) == std::vector<uint64_t>(2, found), "two limits");
    }));
  }
}

TEST_CASE("packed rows: what was set counts, and what is no number of bytes is refused by all") {
  Ranks ranks = make_loopback(2, kLong);
  const auto below = [&](const char* value) {
    const ScopedVariable set("GEAR_PACK_BELOW", value);
    return errors_of(ranks, [&](Transport& transport) {
      throw std::logic_error(gear::base::cat(agree_on_pack_below(transport, 1 - transport.rank())));
    });
  };
  CHECK(below("777") == std::vector<std::string>(2, "777"));
  CHECK(below("0") == std::vector<std::string>(2, "0"));
  CHECK(below("") == std::vector<std::string>(2, "0"));  // no memory is exposed: nothing to measure
  for (const char* wrong : {"-1", "4k", "1e9", "9999999999999"}) {
    const auto errors = below(wrong);
    CHECK(errors[0] == errors[1]);
    CHECK(
        errors[0] ==
        gear::base::cat("[transport] GEAR_PACK_BELOW: rank 0: [environment] GEAR_PACK_BELOW='",
                        wrong, "' is not accepted: set an integer from 0 to 1099511627776, or ",
                        "unset it; rank 1: [environment] GEAR_PACK_BELOW='", wrong,
                        "' is not accepted: set an integer from 0 to 1099511627776, or unset it"));
  }
}
