#include "transport/verbs/fake_verbs.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace gear::testing {
namespace {

struct FakeContext {
  ibv_context context{};
  int family = 0;
};

struct FakeRead {
  ibv_send_wr request;
  ibv_sge place;
};

struct FakePair {
  ibv_qp pair{};
  uint32_t other = 0;
  uint32_t depth = 0;
  uint32_t open = 0;
  bool broken = false;
  std::deque<uint32_t> signalled;  // reads that each completion to come ends
  std::vector<FakeRead> asked;     // and not answered yet
};

struct FakeCompletions {
  ibv_cq queue{};
  size_t room = 0;
  std::deque<ibv_wc> entries;
};

struct FakeRegion {
  uint64_t begin, bytes;
  int access;
};

std::mutex g_mutex;
FakeVerbs::Counts g_counts;
std::map<uint32_t, FakePair*> g_pairs;
std::map<uint32_t, FakeRegion> g_regions;
uint64_t g_registered = 0;
uint32_t g_next = 1;
ibv_device g_devices[2] = {{.name = "fake0"}, {.name = "fake1"}};

void wrong(const char* what) {
  if (g_counts.wrong.empty()) {
    g_counts.wrong = what;
  }
}

ibv_device** get_device_list(int* count) {
  *count = FakeVerbs::settings.num_devices;
  auto** const list = new ibv_device*[3]{};
  for (int i = 0; i < *count; ++i) {
    list[i] = &g_devices[i];
  }
  return list;
}
void free_device_list(ibv_device** list) { delete[] list; }
const char* get_device_name(ibv_device* device) { return device->name; }

ibv_context* open_device(ibv_device* device) {
  const std::lock_guard guard(g_mutex);
  auto* const made = new FakeContext;
  made->context.device = device;
  made->family = FakeVerbs::family;
  ++g_counts.contexts;
  return &made->context;
}
int close_device(ibv_context* context) {
  const std::lock_guard guard(g_mutex);
  --g_counts.contexts;
  delete reinterpret_cast<FakeContext*>(context);
  return 0;
}

int query_device(ibv_context*, ibv_device_attr* out) {
  *out = {};
  out->phys_port_cnt = 2;
  out->max_mr_size = FakeVerbs::settings.most_bytes_of_region;
  out->max_qp_wr = FakeVerbs::settings.depth;
  out->max_cqe = FakeVerbs::settings.completions;
  out->max_qp_rd_atom = 16;
  out->max_qp_init_rd_atom = 200;
  return 0;
}

int query_port(ibv_context*, uint8_t port, ibv_port_attr* out) {
  *out = {};
  out->state = port == 2 && FakeVerbs::settings.active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  out->active_mtu = IBV_MTU_4096;
  out->gid_tbl_len = 4;
  out->pkey_tbl_len = 2;
  out->link_layer = IBV_LINK_LAYER_ETHERNET;
  out->max_msg_sz = FakeVerbs::settings.most_bytes_of_message;
  return 0;
}

// fe80::1 as RoCE v1 and v2, then ::ffff:10.0.0.1 or, in the other family, fd00::2.
int query_gid(ibv_context* context, uint32_t, uint32_t index, ibv_gid_entry* out) {
  if (!FakeVerbs::settings.has_gids || index > 2) {
    return ENODATA;
  }
  const int family = reinterpret_cast<FakeContext*>(context)->family;
  const char* const text = index < 2 ? "fe80::1" : family == 0 ? "::ffff:10.0.0.1" : "fd00::2";
  ::inet_pton(AF_INET6, text, out->gid.raw);
  out->gid_type = index == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
  return 0;
}

int query_pkey(ibv_context*, uint8_t, int index, __be16* out) {
  *out = htons(index == 0 ? 0xffff : 0x8007);
  return 0;
}

ibv_pd* alloc_pd(ibv_context* context) {
  auto* const made = new ibv_pd{};
  made->context = context;
  return made;
}
int dealloc_pd(ibv_pd* domain) {
  delete domain;
  return 0;
}

ibv_mr* reg_mr(ibv_pd*, void* address, size_t bytes, int access) {
  const std::lock_guard guard(g_mutex);
  if (bytes > FakeVerbs::settings.most_bytes_of_region) {
    wrong("a region larger than the device takes");
  }
  if (g_registered + bytes > FakeVerbs::settings.most_registered) {
    errno = ENOMEM;
    return nullptr;
  }
  auto* const made = new ibv_mr{};
  made->length = bytes;
  made->lkey = made->rkey = g_next++;
  g_registered += bytes;
  ++g_counts.regions;
  g_regions[made->lkey] = {reinterpret_cast<uint64_t>(address), bytes, access};
  return made;
}
int dereg_mr(ibv_mr* region) {
  const std::lock_guard guard(g_mutex);
  g_registered -= region->length;
  --g_counts.regions;
  g_regions.erase(region->lkey);
  delete region;
  return 0;
}

ibv_cq* create_cq(ibv_context* context, int entries, void*, ibv_comp_channel*, int) {
  auto* const made = new FakeCompletions;
  made->queue.context = context;
  made->room = static_cast<size_t>(entries);
  return &made->queue;
}
int destroy_cq(ibv_cq* queue) {
  delete reinterpret_cast<FakeCompletions*>(queue);
  return 0;
}

ibv_qp* create_qp(ibv_pd*, ibv_qp_init_attr* wanted) {
  const std::lock_guard guard(g_mutex);
  auto* const made = new FakePair;
  made->pair.send_cq = wanted->send_cq;
  made->pair.qp_num = g_next++;
  made->depth = wanted->cap.max_send_wr;
  if (static_cast<int>(made->depth) > FakeVerbs::settings.depth) {
    wrong("a queue pair deeper than the device has");
  }
  ++g_counts.pairs;
  g_pairs[made->pair.qp_num] = made;
  return &made->pair;
}
int destroy_qp(ibv_qp* pair) {
  const std::lock_guard guard(g_mutex);
  --g_counts.pairs;
  g_pairs.erase(pair->qp_num);
  delete reinterpret_cast<FakePair*>(pair);
  return 0;
}

int modify_qp(ibv_qp* pair, ibv_qp_attr* attributes, int mask) {
  const std::lock_guard guard(g_mutex);
  if ((mask & IBV_QP_STATE) == 0 || attributes->qp_state != pair->state + 1) {
    wrong("states of a queue pair out of order");
  }
  pair->state = attributes->qp_state;
  if (pair->state == IBV_QPS_RTR) {
    reinterpret_cast<FakePair*>(pair)->other = attributes->dest_qp_num;
    g_counts.service_level = attributes->ah_attr.sl;
    g_counts.traffic_class = attributes->ah_attr.grh.traffic_class;
    if (attributes->max_dest_rd_atomic != 16) {
      wrong("more reads than the device answers");
    }
  }
  if (pair->state == IBV_QPS_RTS &&
      (attributes->retry_cnt > 6 || attributes->max_rd_atomic != 16)) {
    wrong("repetitions without an end, or more reads than the other device answers");
  }
  return 0;
}

const char* status_text(ibv_wc_status status) {
  return status == IBV_WC_REM_ACCESS_ERR ? "remote access error" : "another status";
}

bool inside(uint32_t key, uint64_t address, uint64_t bytes, int access) {
  const auto found = g_regions.find(key);
  return found != g_regions.end() && (found->second.access & access) != 0 &&
         address >= found->second.begin &&
         address + bytes <= found->second.begin + found->second.bytes;
}

ibv_wc_status carry_out(const FakePair& pair, const FakeRead& read) {
  const auto& [request, place] = read;
  if (request.opcode != IBV_WR_RDMA_READ || request.num_sge != 1 ||
      pair.pair.state != IBV_QPS_RTS || place.length > FakeVerbs::settings.most_bytes_of_message ||
      place.length == 0) {
    wrong("a request that is no read");
    return IBV_WC_LOC_QP_OP_ERR;
  }
  if (!inside(place.lkey, place.addr, place.length, IBV_ACCESS_LOCAL_WRITE)) {
    wrong("a read into memory that is not registered for it");
    return IBV_WC_LOC_PROT_ERR;
  }
  if (!g_pairs.contains(pair.other)) {
    return IBV_WC_RETRY_EXC_ERR;
  }
  if (!inside(request.wr.rdma.rkey, request.wr.rdma.remote_addr, place.length,
              IBV_ACCESS_REMOTE_READ)) {
    return IBV_WC_REM_ACCESS_ERR;
  }
  std::memcpy(reinterpret_cast<void*>(place.addr),
              reinterpret_cast<const void*>(request.wr.rdma.remote_addr), place.length);
  return IBV_WC_SUCCESS;
}

void complete(FakePair& pair, uint64_t id, ibv_wc_status status, uint32_t reads) {
  auto& queue = *reinterpret_cast<FakeCompletions*>(pair.pair.send_cq);
  if (queue.entries.size() == queue.room) {
    wrong("completions ran over");
    return;
  }
  ibv_wc entry{};
  entry.wr_id = id;
  entry.status = status;
  entry.qp_num = pair.pair.qp_num;
  queue.entries.push_back(entry);
  pair.signalled.push_back(reads);
}

void answer(FakePair& pair) {
  uint32_t unsignalled = 0;
  for (const FakeRead& read : std::exchange(pair.asked, {})) {
    ++unsignalled;
    const ibv_wc_status status = pair.broken ? IBV_WC_WR_FLUSH_ERR : carry_out(pair, read);
    pair.broken |= status != IBV_WC_SUCCESS;
    if (pair.broken || (read.request.send_flags & IBV_SEND_SIGNALED) != 0) {
      complete(pair, read.request.wr_id, status, std::exchange(unsignalled, 0));
    }
  }
  if (unsignalled != 0) {
    wrong("the last read of a chain tells nobody");
  }
}

int post_send(ibv_qp* given, ibv_send_wr* first, ibv_send_wr**) {
  const std::lock_guard guard(g_mutex);
  auto& pair = *reinterpret_cast<FakePair*>(given);
  uint64_t length = 0;
  for (const ibv_send_wr* request = first; request != nullptr; request = request->next) {
    ++length;
    if (++pair.open > pair.depth) {
      wrong("more reads under way than the queue pair is deep");
    }
    pair.asked.push_back({*request, request->sg_list[0]});
  }
  if (FakeVerbs::settings.answers) {
    answer(pair);
  }
  g_counts.reads += length;
  ++g_counts.chains;
  g_counts.longest_chain = std::max(g_counts.longest_chain, length);
  return 0;
}

int poll_cq(ibv_cq* given, int most, ibv_wc* out) {
  const std::lock_guard guard(g_mutex);
  auto& queue = *reinterpret_cast<FakeCompletions*>(given);
  if (FakeVerbs::settings.answers) {
    for (const auto& [number, pair] : g_pairs) {
      if (pair->pair.send_cq == given && !pair->asked.empty()) {
        answer(*pair);
      }
    }
  }
  int count = 0;
  for (; count < most && !queue.entries.empty(); ++count) {
    out[count] = queue.entries.front();
    queue.entries.pop_front();
    FakePair& pair = *g_pairs.at(out[count].qp_num);
    pair.open -= pair.signalled.front();
    pair.signalled.pop_front();
  }
  return count;
}

}  // namespace

FakeVerbs::Settings FakeVerbs::settings;
thread_local int FakeVerbs::family = 0;

FakeVerbs::Counts FakeVerbs::counts() {
  const std::lock_guard guard(g_mutex);
  return g_counts;
}

void FakeVerbs::reset() {
  const std::lock_guard guard(g_mutex);
  CHECK(g_counts.wrong == "");
  CHECK(g_counts.regions == 0);
  CHECK(g_counts.pairs == 0);
  CHECK(g_counts.contexts == 0);
  g_counts = {};
  settings = {};
}

const transport::verbs::VerbsLibrary& FakeVerbs::library() {
  static const transport::verbs::VerbsLibrary fake = {
      "fake",       get_device_list, free_device_list, get_device_name, open_device, close_device,
      query_device, query_port,      query_gid,        query_pkey,      alloc_pd,    dealloc_pd,
      reg_mr,       dereg_mr,        create_cq,        destroy_cq,      create_qp,   modify_qp,
      destroy_qp,   status_text,     post_send,        poll_cq};
  return fake;
}

}  // namespace gear::testing
