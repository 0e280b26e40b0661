#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

// The part of libibverbs that GEAR calls. The library is opened when it is first needed, so that
// neither an import nor a machine without RDMA needs it; the build needs its header alone.
namespace gear::transport::verbs {

struct VerbsLibrary {
  std::string path;  ///< as it was found

  ibv_device** (*get_device_list)(int*);
  void (*free_device_list)(ibv_device**);
  const char* (*get_device_name)(ibv_device*);
  ibv_context* (*open_device)(ibv_device*);
  int (*close_device)(ibv_context*);
  int (*query_device)(ibv_context*, ibv_device_attr*);
  int (*query_port)(ibv_context*, uint8_t port, ibv_port_attr*);
  int (*query_gid)(ibv_context*, uint32_t port, uint32_t index, ibv_gid_entry*);
  int (*query_pkey)(ibv_context*, uint8_t port, int index, __be16*);
  ibv_pd* (*alloc_pd)(ibv_context*);
  int (*dealloc_pd)(ibv_pd*);
  ibv_mr* (*reg_mr)(ibv_pd*, void*, size_t, int access);
  int (*dereg_mr)(ibv_mr*);
  ibv_cq* (*create_cq)(ibv_context*, int entries, void*, ibv_comp_channel*, int vector);
  int (*destroy_cq)(ibv_cq*);
  ibv_qp* (*create_qp)(ibv_pd*, ibv_qp_init_attr*);
  int (*modify_qp)(ibv_qp*, ibv_qp_attr*, int mask);
  int (*destroy_qp)(ibv_qp*);
  const char* (*status_text)(ibv_wc_status);
  int (*post_send)(ibv_qp*, ibv_send_wr*, ibv_send_wr** bad);
  int (*poll_cq)(ibv_cq*, int entries, ibv_wc*);
};

/// The file that GEAR_VERBS names, else the loader's libibverbs.so.1. Throws TransportError, which
/// says why it cannot be loaded, or that it is older than rdma-core 32.
const VerbsLibrary& verbs_library();

/// What libibverbs made, and how it is given back.
template <class T>
struct Closer {
  int (*close)(T*) = nullptr;
  void operator()(T* object) const noexcept { close(object); }
};
template <class T>
using Owned = std::unique_ptr<T, Closer<T>>;

template <class T>
Owned<T> own(T* object, int (*close)(T*)) {
  return Owned<T>(object, Closer<T>{close});
}

}  // namespace gear::transport::verbs
