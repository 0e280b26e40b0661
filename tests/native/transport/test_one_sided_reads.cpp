// Reads of memory that other ranks expose, for every transport that has them: verbs with a fake
// device in the native tests, with a real one in tests/rdma.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "base/numbers/philox.h"
#include "transport/one_sided/remote_memory.h"
#include "transport/one_sided_kinds.h"

using namespace gear::testing;
using namespace gear::transport;

namespace {

constexpr double kLong = 200;  // a wait that takes so long fails its test

uint64_t random_number(uint64_t seed, uint64_t n, uint64_t range) {
  return gear::base::scale_to(gear::base::philox(seed, 5, n), range);
}

std::vector<std::byte> content_of(uint64_t rank, size_t bytes) {
  std::vector<std::byte> content(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    content[i] = static_cast<std::byte>((i * 2654435761U + rank * 97) >> 7);
  }
  return content;
}

void none(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) {
    CHECK(error == "");
  }
}

}  // namespace

TEST_CASE(
    "one-sided reads: what others expose is read as it is, through chunks and queues of any size") {
  constexpr size_t kBytes = 300'001;
  std::vector<std::vector<std::byte>> there;
  for (uint32_t owner = 0; owner < 3; ++owner) {
    there.push_back(content_of(owner, kBytes + owner));
  }
  for (const OneSidedKind& kind : kOneSidedKinds) {
    CAPTURE(kind.name);
    for (const uint64_t chunk_bytes : {uint64_t{8192}, uint64_t{1} << 30}) {
      for (const uint32_t queue_pairs : kind.queue_pairs) {
        for (const uint32_t size : {2U, 3U}) {
          if (num_machines > 1 && (size > 2 || chunk_bytes > 8192)) {
            continue;  // reads take longer there
          }
          CAPTURE(chunk_bytes);
          CAPTURE(queue_pairs);
          CAPTURE(size);
          Ranks ranks = kind.make(size, kLong, {chunk_bytes, queue_pairs});
          none(errors_of(ranks, [&](Transport& transport) {
            const uint32_t own = transport.rank();
            std::vector<std::byte> mine = there[own];
            const auto memory = transport.expose(mine);
            const auto reader = memory->connect(transport);
            for (uint64_t round = 0; round < 5; ++round) {
              std::vector<RemoteRead> reads;
              uint64_t bytes = 0;
              for (uint32_t owner = 0; owner < size; ++owner) {
                for (uint64_t n = 0; owner != own && n < 150 * round; ++n) {
                  const uint64_t number = (round * size + owner) * 1000 + 3 * n;
                  const uint64_t most = random_number(own, number, 20) == 0 ? 40'000 : 300;
                  const uint64_t length = 1 + random_number(own, number + 1, most);
                  const uint64_t from = random_number(own, number + 2, kBytes + owner - length + 1);
                  reads.push_back({owner, from, length, bytes});
                  bytes += length + n % 3;
                }
              }
              const ConstBytes read = reader->read(reads, bytes);
              expect(read.size() == bytes, "another size");
              for (const RemoteRead& one : reads) {
                expect(std::memcmp(read.data() + one.to, there[one.owner].data() + one.from,
                                   one.bytes) == 0,
                       "other bytes were read");
              }
            }
            transport.allgather({}, {});  // nobody leaves while others read
          }));
        }
      }
    }
  }
}

TEST_CASE("one-sided reads: a duplicate exposes memory too, and none of it is nobody's") {
  for (const OneSidedKind& kind : kOneSidedKinds) {
    CAPTURE(kind.name);
    Ranks ranks = kind.make(2, kLong, {});
    none(errors_of(ranks, [&](Transport& transport) {
      expect(transport.name() == kind.name, "another name");
      const std::unique_ptr<Transport> second = transport.duplicate();
      std::vector<std::byte> mine = content_of(transport.rank(), 64);
      const auto memory = second->expose(mine);
      const auto reader = memory->connect(*second);
      const uint32_t other = 1 - transport.rank();
      const std::vector<RemoteRead> reads{{other, 60, 4, 0}};
      const ConstBytes read = reader->read(reads, 4);
      expect(std::memcmp(read.data(), content_of(other, 64).data() + 60, 4) == 0, "other bytes");
      const auto refused = [&](RemoteRead one) {
        try {
          static_cast<void>(reader->read({&one, 1}, 4));
        } catch (const std::logic_error&) {
          return true;
        }
        return false;
      };
      expect(refused({other, 61, 4, 0}), "a read past the end was made");
      expect(refused({other, UINT64_MAX, 4, 0}), "a read past the end was made");
      expect(refused({other, 0, 4, 1}), "a read past the landing memory was made");
      expect(refused({transport.rank(), 0, 4, 0}), "a rank read its own memory");
      expect(reader->read({}, 0).empty(), "bytes of no reads");
      second->allgather({}, {});
    }));
  }
}
