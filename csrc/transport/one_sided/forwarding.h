#pragma once

#include <memory>

#include "transport/one_sided/remote_memory.h"
#include "transport/transport.h"

namespace gear::transport {

/// The calls of another transport, which lives longer: for those that change some of them.
class Forwarding : public Transport {
 public:
  explicit Forwarding(Transport& inner) : inner_(inner) {}

  std::string_view name() const noexcept override { return inner_.name(); }
  uint32_t rank() const noexcept override { return inner_.rank(); }
  uint32_t size() const noexcept override { return inner_.size(); }
  double timeout_s() const noexcept override { return inner_.timeout_s(); }
  void set_timeout_s(double timeout_s) override { inner_.set_timeout_s(timeout_s); }
  void look() override { inner_.look(); }
  void allgather(ConstBytes mine, Bytes all) override { inner_.allgather(mine, all); }
  using Transport::exchange;
  std::span<const ConstBytes> exchange(std::span<const ConstBytes> to,
                                       std::span<const uint64_t> sizes) override {
    return inner_.exchange(to, sizes);
  }
  std::span<const ConstBytes> exchange_sparse(std::span<const ConstBytes> to,
                                              std::span<const uint8_t> from) override {
    return inner_.exchange_sparse(to, from);
  }
  std::unique_ptr<Transport> duplicate() override { return inner_.duplicate(); }
  std::unique_ptr<RemoteMemory> expose(Bytes memory) override { return inner_.expose(memory); }

 protected:
  Transport& inner_;
};

}  // namespace gear::transport
