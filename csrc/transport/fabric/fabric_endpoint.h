#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "transport/fabric/fabric_domain.h"
#include "transport/one_sided/device.h"

namespace gear::transport::fabric {

/// Where reads or messages begin or arrive.
class FabricEndpoint {
 public:
  /// For up to `depth` reads or messages at a time. `waits`: a thread may sleep in its completion
  /// queue, where the provider has that. Throws TransportError.
  FabricEndpoint(std::shared_ptr<const FabricDomain> domain, size_t depth, bool waits,
                 fi_cq_format format = FI_CQ_FORMAT_CONTEXT);

  const FabricDomain& domain() const { return *domain_; }
  fid_ep* endpoint() const { return endpoint_.get(); }
  fid_cq* completions() const { return completions_.get(); }
  /// Whether a thread may sleep in completions().
  bool waits() const { return waits_; }
  /// A file that is readable once there may be completions; -1: there is none.
  int wait_file() const;
  /// Whether a thread may sleep on wait_file() now.
  bool may_sleep() const;
  /// How others find it. Throws TransportError.
  Opaque name() const;
  /// The number by which reads name an endpoint of another rank. Throws TransportError.
  fi_addr_t add(const Opaque& name);

 private:
  std::shared_ptr<const FabricDomain> domain_;
  bool waits_;
  Fid<fid_cq> completions_;
  Fid<fid_av> addresses_;
  Fid<fid_ep> endpoint_;
};

}  // namespace gear::transport::fabric
