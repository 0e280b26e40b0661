#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "transport/fabric/fabric_library.h"

namespace gear::transport::fabric {

/// What an operator may say.
struct FabricChoice {
  std::string provider;  ///< "cxi", "verbs;ofi_rxm"; empty: the first of FabricDomain's order
  std::string domain;    ///< "cxi0", "eth0"; empty: the nearest
};

/// GEAR_FABRIC_PROVIDER, GEAR_FABRIC_DOMAIN.
FabricChoice fabric_choice();

/// How other ranks are reached; travels to them as it is.
struct FabricNetwork {
  std::array<char, 60> provider;  ///< ends in zeros
  uint32_t address_format;
};

/// What a domain is opened for.
enum class FabricUse {
  kReads,     ///< one-sided reads of registered memory
  kMessages,  ///< messages that both ends take part in
};

/// A network interface, open by one provider. Any thread.
class FabricDomain {
 public:
  /// Takes, of what `choice` allows, the first provider of cxi, efa, opx, psm3, verbs, psm2, tcp
  /// (over ofi_rxm where it needs that), and its interface on the CPU's own NUMA node, else its
  /// first. Messages go by net where 1.16 and 1.17 have that, before tcp: later ones call it tcp,
  /// and what is tcp there takes 88 MiB an endpoint. `library` outlives it. Throws TransportError.
  FabricDomain(const FabricLibrary& library, const FabricChoice& choice,
               FabricUse use = FabricUse::kReads);

  const FabricLibrary& library() const { return library_; }
  /// libfabric's calls take it as one that may be written.
  fi_info* info() const { return info_.get(); }
  fid_fabric* fabric() const { return fabric_.get(); }
  fid_domain* domain() const { return domain_.get(); }
  /// Whether the provider demands `mode`, an FI_MR_...
  bool demands(int mode) const { return (info_->domain_attr->mr_mode & mode) != 0; }
  /// A key of memory, where the provider gives none: each once.
  uint64_t next_key() const { return next_key_++; }
  FabricNetwork network() const;
  /// "cxi", "tcp;ofi_rxm".
  std::string provider() const { return info_->fabric_attr->prov_name; }
  /// Then a domain is a network interface of the system.
  bool is_over_tcp() const;
  /// "tcp;ofi_rxm on eth0".
  std::string text() const;

 private:
  struct InfoCloser {
    void (*close)(fi_info*) = nullptr;
    void operator()(fi_info* info) const noexcept { close(info); }
  };
  using Info = std::unique_ptr<fi_info, InfoCloser>;

  Info find(const FabricChoice& choice, FabricUse use) const;

  const FabricLibrary& library_;
  Info info_;
  Fid<fid_fabric> fabric_;
  Fid<fid_domain> domain_;
  mutable std::atomic<uint64_t> next_key_{1};
};

}  // namespace gear::transport::fabric
