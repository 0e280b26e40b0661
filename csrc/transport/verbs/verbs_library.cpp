#include "transport/verbs/verbs_library.h"

#include <dlfcn.h>

#include "base/environment.h"
#include "base/errors.h"

namespace gear::transport::verbs {
namespace {

constexpr const char* kName = "libibverbs.so.1";

template <class Function>
void find(void* handle, const std::string& path, const char* name, Function& out) {
  out = reinterpret_cast<Function>(::dlsym(handle, name));
  if (out == nullptr) {
    throw base::TransportError(base::cat("[transport] ", path, " has no ", name,
                                         ": rdma-core 32 or newer is needed; set GEAR_VERBS to "
                                         "its libibverbs.so.1"));
  }
}

// The header's own are inline functions, or macros that call what is linked.
int query_port(ibv_context* context, uint8_t port, ibv_port_attr* out) {
  verbs_context* const extended = verbs_get_ctx_op(context, query_port);
  return extended == nullptr ? ENOSYS : extended->query_port(context, port, out, sizeof *out);
}

int post_send(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) {
  return qp->context->ops.post_send(qp, first, bad);
}

int poll_cq(ibv_cq* cq, int entries, ibv_wc* out) {
  return cq->context->ops.poll_cq(cq, entries, out);
}

int (*g_query_gid_ex)(ibv_context*, uint32_t, uint32_t, ibv_gid_entry*, uint32_t, size_t);

int query_gid(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* out) {
  return g_query_gid_ex(context, port, index, out, 0, sizeof *out);
}

VerbsLibrary load() {
  VerbsLibrary found{};
  const auto chosen = base::env_string("GEAR_VERBS");
  found.path = chosen.value_or(kName);
  void* const handle = ::dlopen(found.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = ::dlerror();
    throw base::TransportError(
        base::cat("[transport] libibverbs cannot be loaded: ", why == nullptr ? "" : why,
                  chosen ? ": set GEAR_VERBS to a libibverbs.so.1, or unset it"
                         : ": install rdma-core, or set GEAR_VERBS to a libibverbs.so.1"));
  }
  const auto take = [&](const char* name, auto& out) { find(handle, found.path, name, out); };
  // Before anything is registered: in a child of fork, registered pages would else become the
  // child's, and the device go on with pages that this process no longer has.
  int (*fork_init)() = nullptr;
  take("ibv_fork_init", fork_init);
  if (const int code = fork_init(); code != 0) {
    throw base::TransportError(base::cat("[transport] ibv_fork_init: ", base::errno_text(code),
                                         ": make the group before memory is registered with "
                                         "libibverbs by other libraries"));
  }
  take("ibv_get_device_list", found.get_device_list);
  take("ibv_free_device_list", found.free_device_list);
  take("ibv_get_device_name", found.get_device_name);
  take("ibv_open_device", found.open_device);
  take("ibv_close_device", found.close_device);
  take("ibv_query_device", found.query_device);
  take("_ibv_query_gid_ex", g_query_gid_ex);
  take("ibv_query_pkey", found.query_pkey);
  take("ibv_alloc_pd", found.alloc_pd);
  take("ibv_dealloc_pd", found.dealloc_pd);
  take("ibv_reg_mr", found.reg_mr);
  take("ibv_dereg_mr", found.dereg_mr);
  take("ibv_create_cq", found.create_cq);
  take("ibv_destroy_cq", found.destroy_cq);
  take("ibv_create_qp", found.create_qp);
  take("ibv_modify_qp", found.modify_qp);
  take("ibv_destroy_qp", found.destroy_qp);
  take("ibv_wc_status_str", found.status_text);
  found.query_port = &verbs::query_port;
  found.query_gid = &verbs::query_gid;
  found.post_send = &verbs::post_send;
  found.poll_cq = &verbs::poll_cq;
  return found;
}

}  // namespace

const VerbsLibrary& verbs_library() {
  static const VerbsLibrary found = load();
  return found;
}

}  // namespace gear::transport::verbs
