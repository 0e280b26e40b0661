#include "transport/verbs/queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <random>

#include "base/errors.h"

namespace gear::transport::verbs {
namespace {

// Not 7: some devices take that for ever.
constexpr uint8_t kRetries = 6;
constexpr uint32_t kPacketBits = 0xffffff;

}  // namespace

uint8_t packet_timeout(double timeout_s) {
  uint8_t timeout = 18;
  while (timeout > 12 && 4.096e-6 * (1 << timeout) * (kRetries + 1) * 2 > timeout_s) {
    --timeout;
  }
  return timeout;
}

QueuePair::QueuePair(const VerbsPort& port, ibv_cq* completions, uint32_t depth) : port_(port) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = completions;
  wanted.recv_cq = completions;
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap.max_send_wr = depth;
  wanted.cap.max_recv_wr = 1;
  wanted.cap.max_send_sge = 1;
  wanted.cap.max_recv_sge = 1;
  pair_ = own(port.library().create_qp(port.domain(), &wanted), port.library().destroy_qp);
  if (!pair_) {
    throw base::TransportError(base::cat("[transport] ibv_create_qp on ", port.device_name(), ": ",
                                         base::errno_text(errno), "; it has ", port.limits().max_qp,
                                         " queue pairs for all processes"));
  }
  address_ = {pair_->qp_num, std::random_device()() & kPacketBits};
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = port.number();
  attributes.pkey_index = port.pkey_index();
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
}

void QueuePair::connect(const PortAddress& port, QueuePairAddress other, uint8_t timeout) {
  const PortAddress& own_port = port_.address();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::min(own_port.mtu, port.mtu));
  attributes.dest_qp_num = other.number;
  attributes.rq_psn = other.first_packet;
  attributes.max_dest_rd_atomic = std::min(own_port.reads_in, port.reads_out);
  attributes.min_rnr_timer = 12;
  attributes.ah_attr.port_num = port_.number();
  attributes.ah_attr.dlid = port.lid;
  attributes.ah_attr.sl = port_.service_level();
  if (own_port.global != 0 || port.global != 0) {
    attributes.ah_attr.is_global = 1;
    std::ranges::copy(port.gid, attributes.ah_attr.grh.dgid.raw);
    attributes.ah_attr.grh.sgid_index = port_.gid_index();
    attributes.ah_attr.grh.hop_limit = 64;
    attributes.ah_attr.grh.traffic_class = port_.traffic_class();
  }
  modify(attributes,
         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
         "RTR");
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = address_.first_packet;
  attributes.timeout = timeout;
  attributes.retry_cnt = kRetries;
  attributes.rnr_retry = kRetries;
  attributes.max_rd_atomic = std::min(own_port.reads_out, port.reads_in);
  modify(attributes,
         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
             IBV_QP_MAX_QP_RD_ATOMIC,
         "RTS");
}

void QueuePair::post(ibv_send_wr* first) {
  ibv_send_wr* bad = nullptr;
  if (const int code = port_.library().post_send(pair_.get(), first, &bad); code != 0) {
    throw base::TransportError(base::cat("[transport] ibv_post_send on ", port_.device_name(), ": ",
                                         base::errno_text(code)));
  }
}

void QueuePair::modify(ibv_qp_attr& attributes, int mask, const char* state) {
  if (const int code = port_.library().modify_qp(pair_.get(), &attributes, mask); code != 0) {
    throw base::TransportError(
        base::cat("[transport] ", port_.text(), ": a queue pair does not become ", state, ": ",
                  base::errno_text(code < 0 ? -code : code),
                  "; its port must be active, and the other rank's address reachable from it"));
  }
}

}  // namespace gear::transport::verbs
