#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

// The part of libfabric that GEAR calls by name; the rest are functions of its objects. The library
// is opened when it is first needed; the build needs its headers alone.
namespace gear::transport::fabric {

struct FabricLibrary {
  std::string path;  ///< as it was found

  int (*getinfo)(uint32_t version, const char* node, const char* service, uint64_t flags,
                 const fi_info* hints, fi_info** info);
  void (*freeinfo)(fi_info*);
  fi_info* (*dupinfo)(const fi_info*);
  int (*open_fabric)(fi_fabric_attr*, fid_fabric**, void* context);
  const char* (*strerror)(int);
};

/// The file that GEAR_FABRIC names, else the loader's libfabric.so.1. Throws TransportError, which
/// says why it cannot be loaded.
const FabricLibrary& fabric_library();

/// What libfabric opened.
struct FidCloser {
  template <class T>
  void operator()(T* object) const noexcept {
    ::fi_close(&object->fid);
  }
};
template <class T>
using Fid = std::unique_ptr<T, FidCloser>;

/// What `open(T**)` opens. Throws TransportError: "[transport] <what>: <libfabric's words>".
template <class T, class Open>
Fid<T> open_fid(const FabricLibrary& library, std::string_view what, const Open& open);

/// Throws TransportError unless `code` is 0 or more, as above.
void check_fabric(const FabricLibrary& library, std::string_view what, int64_t code);

template <class T, class Open>
Fid<T> open_fid(const FabricLibrary& library, std::string_view what, const Open& open) {
  T* opened = nullptr;
  check_fabric(library, what, open(&opened));
  return Fid<T>(opened);
}

}  // namespace gear::transport::fabric
