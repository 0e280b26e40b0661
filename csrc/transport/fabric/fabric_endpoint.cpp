#include "transport/fabric/fabric_endpoint.h"

#include <utility>

#include "base/errors.h"

namespace gear::transport::fabric {

FabricEndpoint::FabricEndpoint(std::shared_ptr<const FabricDomain> domain, size_t depth, bool waits,
                               fi_cq_format format)
    : domain_(std::move(domain)), waits_(waits) {
  const FabricLibrary& library = domain_->library();
  fi_cq_attr queue{};
  queue.size = depth;
  queue.format = format;
  queue.wait_obj = format == FI_CQ_FORMAT_CONTEXT ? FI_WAIT_UNSPEC : FI_WAIT_FD;
  if (fid_cq* opened = nullptr;
      waits && ::fi_cq_open(domain_->domain(), &queue, &opened, nullptr) == 0) {
    completions_.reset(opened);
  } else {
    waits_ = false;
    queue.wait_obj = FI_WAIT_NONE;
    completions_ = open_fid<fid_cq>(library, domain_->text() + ", fi_cq_open", [&](fid_cq** out) {
      return ::fi_cq_open(domain_->domain(), &queue, out, nullptr);
    });
  }
  fi_av_attr table{};
  table.type = FI_AV_TABLE;
  addresses_ = open_fid<fid_av>(library, domain_->text() + ", fi_av_open", [&](fid_av** out) {
    return ::fi_av_open(domain_->domain(), &table, out, nullptr);
  });
  endpoint_ = open_fid<fid_ep>(library, domain_->text() + ", fi_endpoint", [&](fid_ep** out) {
    return ::fi_endpoint(domain_->domain(), domain_->info(), out, nullptr);
  });
  const auto check = [&](const char* call, int code) {
    check_fabric(library, base::cat(domain_->text(), ", ", call), code);
  };
  check("fi_ep_bind", ::fi_ep_bind(endpoint_.get(), &addresses_->fid, 0));
  check("fi_ep_bind", ::fi_ep_bind(endpoint_.get(), &completions_->fid, FI_TRANSMIT | FI_RECV));
  check("fi_enable", ::fi_enable(endpoint_.get()));
}

int FabricEndpoint::wait_file() const {
  int file = -1;
  return waits_ && ::fi_control(&completions_->fid, FI_GETWAIT, &file) == 0 ? file : -1;
}

bool FabricEndpoint::may_sleep() const {
  fid* waited = &completions_->fid;
  return waits_ && ::fi_trywait(domain_->fabric(), &waited, 1) == 0;
}

Opaque FabricEndpoint::name() const {
  Opaque name(256);
  size_t bytes = name.size();
  int code = ::fi_getname(&endpoint_->fid, name.data(), &bytes);
  if (code == -FI_ETOOSMALL) {
    name.resize(bytes);
    code = ::fi_getname(&endpoint_->fid, name.data(), &bytes);
  }
  check_fabric(domain_->library(), domain_->text() + ", fi_getname", code);
  name.resize(bytes);
  return name;
}

fi_addr_t FabricEndpoint::add(const Opaque& name) {
  fi_addr_t number = FI_ADDR_NOTAVAIL;
  const int added = ::fi_av_insert(addresses_.get(), name.data(), 1, &number, 0, nullptr);
  check_fabric(domain_->library(), domain_->text() + ", fi_av_insert",
               added == 0 ? -FI_EINVAL : added);
  return number;
}

}  // namespace gear::transport::fabric
