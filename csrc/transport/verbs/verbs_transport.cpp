#include "transport/verbs/verbs_transport.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "transport/remote_memory.h"
#include "transport/typed.h"
#include "transport/verbs/verbs_reader.h"

namespace gear::transport::verbs {
namespace {

constexpr uint64_t kMostChunks = uint64_t{1} << 24;

// Nobody goes on alone: whoever could not do its part tells the others why. Collective.
void agree(Transport& messages, const std::string& failed) {
  constexpr std::string_view kArea = "[transport] ";
  std::array<char, 1024> mine{};
  failed.copy(mine.data(), mine.size() - 1, failed.starts_with(kArea) ? kArea.size() : 0);
  const auto all = allgather(messages, mine);
  std::string reasons;
  for (uint32_t r = 0; r < all.size(); ++r) {
    if (all[r][0] != '\0') {
      reasons += base::cat(reasons.empty() ? "" : "; ", "rank ", r, ": ", all[r].data());
    }
  }
  if (!reasons.empty()) {
    throw base::TransportError(base::cat("[transport] verbs: ", reasons));
  }
}

// What `attempt` throws, in words; empty: nothing.
template <class Attempt>
std::string failure_of(const Attempt& attempt) {
  try {
    attempt();
  } catch (const base::Error& error) {
    return error.what();
  }
  return {};
}

void check_families(Transport& messages, const std::vector<PortAddress>& ports) {
  const PortAddress& own_port = ports[messages.rank()];
  std::string failed;
  for (uint32_t r = 0; r < ports.size() && failed.empty(); ++r) {
    if (!same_family(own_port, ports[r])) {
      failed =
          base::cat(address_text(own_port), " cannot reach rank ", r, ", ", address_text(ports[r]),
                    ": set GEAR_VERBS_DEVICE and GEAR_VERBS_GID so that all ranks use "
                    "addresses of one family");
    }
  }
  agree(messages, failed);
}

class VerbsMemory final : public RemoteMemory {
 public:
  // Collective over `messages`.
  VerbsMemory(std::shared_ptr<const VerbsPort> port, std::vector<PortAddress> ports, Bytes memory,
              const VerbsOptions& options, Transport& messages)
      : port_(std::move(port)), options_(options) {
    agree(messages, failure_of([&] {
            registered_ = std::make_unique<RegisteredMemory>(
                *port_, memory, RegisteredMemory::Use::kExposed, options_.chunk_bytes);
          }));
    const auto all = alltoallv(
        messages,
        std::vector<std::vector<MemoryChunk>>(messages.size(), registered_->chunked().chunks()),
        kMostChunks);
    for (uint32_t r = 0; r < all.size(); ++r) {
      shards_.push_back({ports[r], ChunkedMemory(all[r])});
    }
  }

  std::unique_ptr<RemoteReader> connect(Transport& control) override {
    std::unique_ptr<VerbsReader> reader;
    agree(control, failure_of([&] {
            reader = std::make_unique<VerbsReader>(
                port_, shards_,
                VerbsReader::Options{control.rank(), options_.queue_pairs, control.timeout_s(),
                                     options_.chunk_bytes, options_.failure});
          }));
    const std::vector<QueuePairAddress> mine = reader->addresses();
    const size_t each = options_.queue_pairs;
    std::vector<QueuePairAddress> others(mine.size());
    std::vector<ConstBytes> to;
    std::vector<Bytes> from;
    for (size_t r = 0; r < control.size(); ++r) {
      to.push_back(std::as_bytes(std::span(mine).subspan(r * each, each)));
      from.push_back(std::as_writable_bytes(std::span(others).subspan(r * each, each)));
    }
    control.alltoallv(to, from);
    // Once all have connected, reads may come.
    agree(control, failure_of([&] { reader->connect(others); }));
    return reader;
  }

 private:
  std::shared_ptr<const VerbsPort> port_;
  VerbsOptions options_;
  std::unique_ptr<RegisteredMemory> registered_;
  std::vector<ExposedShard> shards_;
};

class VerbsTransport final : public Transport {
 public:
  VerbsTransport(std::shared_ptr<Transport> messages, std::shared_ptr<const VerbsPort> port,
                 std::vector<PortAddress> ports, VerbsOptions options)
      : messages_(std::move(messages)),
        port_(std::move(port)),
        ports_(std::move(ports)),
        options_(std::move(options)) {}

  std::string_view name() const noexcept override { return "verbs"; }
  uint32_t rank() const noexcept override { return messages_->rank(); }
  uint32_t size() const noexcept override { return messages_->size(); }
  double timeout_s() const noexcept override { return messages_->timeout_s(); }

  void allgather(ConstBytes mine, Bytes all) override { messages_->allgather(mine, all); }
  void alltoallv(std::span<const ConstBytes> to, std::span<const Bytes> from) override {
    messages_->alltoallv(to, from);
  }

  std::unique_ptr<Transport> duplicate() override {
    return std::make_unique<VerbsTransport>(messages_->duplicate(), port_, ports_, options_);
  }

  std::unique_ptr<RemoteMemory> expose(Bytes memory) override {
    return std::make_unique<VerbsMemory>(port_, ports_, memory, options_, *messages_);
  }

 private:
  std::shared_ptr<Transport> messages_;
  std::shared_ptr<const VerbsPort> port_;
  std::vector<PortAddress> ports_;  // by rank
  VerbsOptions options_;
};

}  // namespace

std::unique_ptr<Transport> open_verbs(std::shared_ptr<Transport> messages,
                                      const VerbsOptions& options, const VerbsLibrary& (*find)()) {
  GEAR_CHECK(options.queue_pairs > 0 && options.chunk_bytes > 0);
  std::shared_ptr<const VerbsPort> port;
  agree(*messages,
        failure_of([&] { port = std::make_shared<const VerbsPort>(find(), port_choice()); }));
  std::vector<PortAddress> ports = allgather(*messages, port->address());
  check_families(*messages, ports);
  return std::make_unique<VerbsTransport>(std::move(messages), std::move(port), std::move(ports),
                                          options);
}

}  // namespace gear::transport::verbs
