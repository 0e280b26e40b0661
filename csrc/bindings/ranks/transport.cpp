#include "transport/transport.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "bindings/bindings.h"
#include "bindings/ranks/group_transport.h"
#include "memory/shared/made_up_name.h"
#include "transport/by_node/by_node.h"
#include "transport/fabric.h"
#include "transport/failure.h"
#include "transport/loopback.h"
#include "transport/mpi.h"
#include "transport/one_sided/first_exchange.h"
#include "transport/shared/shared_memory.h"
#include "transport/verbs.h"

namespace gear::bindings {
namespace {

using transport::Bytes;
using transport::ConstBytes;
using transport::Failure;
using transport::Transport;
using SharedTransport = std::shared_ptr<Transport>;

ConstBytes bytes_of(const py::bytes& object) {
  const std::string_view text = object;
  return std::as_bytes(std::span(text));
}

// Bytes of Python that are filled before anyone sees them.
struct Filled {
  explicit Filled(size_t size)
      : object(py::reinterpret_steal<py::bytes>(
            PyBytes_FromStringAndSize(nullptr, static_cast<py::ssize_t>(size)))) {
    if (!object) {
      throw py::error_already_set();
    }
    bytes = {reinterpret_cast<std::byte*>(PyBytes_AS_STRING(object.ptr())), size};
  }

  py::bytes object;
  Bytes bytes;
};

py::bytes allgather(Transport& self, const py::bytes& mine) {
  const ConstBytes sent = bytes_of(mine);
  const Filled all(self.size() * sent.size());
  {
    const py::gil_scoped_release release;
    self.allgather(sent, all.bytes);
  }
  return all.object;
}

std::vector<py::bytes> exchange(Transport& self, const std::vector<py::bytes>& to,
                                const std::optional<std::vector<uint64_t>>& sizes) {
  std::vector<ConstBytes> sent;
  for (const py::bytes& entry : to) {
    sent.push_back(bytes_of(entry));
  }
  if (sizes && sizes->empty()) {
    throw base::InvalidArgument(base::cat("[transport] exchange with no sizes: give one for each ",
                                          "of ", self.size(), " ranks, or None"));
  }
  std::span<const ConstBytes> arrived;
  {
    const py::gil_scoped_release release;
    arrived = sizes ? self.exchange(sent, *sizes) : self.exchange(sent);
  }
  std::vector<py::bytes> received;
  for (const ConstBytes one : arrived) {
    received.emplace_back(reinterpret_cast<const char*>(one.data()), one.size());
  }
  return received;
}

std::vector<py::bytes> exchange_sparse(Transport& self, const std::vector<py::bytes>& to,
                                       const std::vector<bool>& sends) {
  std::vector<ConstBytes> sent;
  for (const py::bytes& entry : to) {
    sent.push_back(bytes_of(entry));
  }
  const std::vector<uint8_t> from(sends.begin(), sends.end());
  std::span<const ConstBytes> arrived;
  {
    const py::gil_scoped_release release;
    arrived = self.exchange_sparse(sent, from);
  }
  std::vector<py::bytes> received;
  for (const ConstBytes one : arrived) {
    received.emplace_back(reinterpret_cast<const char*>(one.data()), one.size());
  }
  return received;
}

// Memory that rank 0 made for a transport.
struct SharedRoom {
  SharedRoom(const std::string& name, uint32_t size)
      : region(transport::make_shared_memory_region(name, size)) {}

  std::shared_ptr<memory::Region> region;
};

using OfGroup = std::optional<std::shared_ptr<Failure>>;

std::vector<SharedTransport> loopback_transports(
    uint32_t size, double timeout_s, const std::vector<std::shared_ptr<Failure>>& failures) {
  if (!failures.empty() && failures.size() != size) {
    throw base::InvalidArgument(base::cat("[transport] ", failures.size(), " failures of ", size,
                                          " ranks: give one for each, or none"));
  }
  std::vector<SharedTransport> ranks;
  for (auto& rank : transport::make_loopback(size, timeout_s, failures)) {
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

SharedTransport group_transport(py::object channel, uint32_t rank, uint32_t size,
                                double timeout_s) {
  return make_group_transport(std::move(channel), rank, size, timeout_s);
}

SharedTransport shared_memory_transport(const std::string& name, uint32_t rank, uint32_t size,
                                        double timeout_s, OfGroup failure,
                                        const std::optional<SharedRoom>& made) {
  const py::gil_scoped_release release;
  if (!made) {
    return transport::make_shared_memory(name, rank, size, timeout_s,
                                         std::move(failure).value_or(nullptr));
  }
  SharedTransport joined = transport::make_shared_memory(made->region, rank, size, timeout_s,
                                                         std::move(failure).value_or(nullptr));
  made->region->hide_name();
  return joined;
}

SharedTransport mpi_transport(int communicator, double timeout_s, uint64_t message_bytes,
                              OfGroup failure) {
  const py::gil_scoped_release release;
  return transport::make_mpi(
      {communicator, timeout_s, message_bytes, std::move(failure).value_or(nullptr)});
}

SharedTransport verbs_transport(SharedTransport messages, OfGroup failure, bool required) {
  const py::gil_scoped_release release;
  transport::VerbsOptions options;
  options.required = required;
  options.failure = std::move(failure).value_or(nullptr);
  return transport::make_verbs(std::move(messages), options);
}

SharedTransport fabric_transport(SharedTransport messages, OfGroup failure, bool required) {
  const py::gil_scoped_release release;
  transport::FabricOptions options;
  options.required = required;
  options.failure = std::move(failure).value_or(nullptr);
  return transport::make_fabric(std::move(messages), options);
}

using transport::FabricPlace;

std::shared_ptr<FabricPlace> fabric_place(uint64_t token, const std::string& interface) {
  const py::gil_scoped_release release;
  return transport::make_fabric_place(token, interface);
}

// rank, pid, start time in clock ticks from boot, inode of the namespace of pids
using Neighbour = std::tuple<uint32_t, int64_t, uint64_t, uint64_t>;

// The memory of a node's ranks: its name, and where this rank has made it, that.
using Room = std::tuple<std::string, std::optional<SharedRoom>>;

std::unique_ptr<Transport> near_of(const Room& room, uint32_t rank,
                                   const std::vector<uint32_t>& nodes, double timeout_s,
                                   const std::shared_ptr<Failure>& failure) {
  std::vector<uint32_t> own;
  for (uint32_t r = 0; r < nodes.size(); ++r) {
    if (nodes[r] == nodes[rank]) {
      own.push_back(r);
    }
  }
  if (own.size() < 2) {
    return nullptr;
  }
  const auto size = static_cast<uint32_t>(own.size());
  const auto place = static_cast<uint32_t>(std::ranges::find(own, rank) - own.begin());
  const auto& [name, made] = room;
  if (!made) {
    return transport::make_shared_memory(name, place, size, timeout_s, failure, own);
  }
  auto joined = transport::make_shared_memory(made->region, place, size, timeout_s, failure, own);
  made->region->hide_name();
  return joined;
}

SharedTransport connect(FabricPlace& place, const std::vector<py::bytes>& addresses, uint32_t rank,
                        double timeout_s, OfGroup of_group,
                        const std::vector<Neighbour>& neighbours,
                        const std::optional<std::vector<uint32_t>>& nodes, const Room& room) {
  const auto failure = transport::or_own(std::move(of_group).value_or(nullptr));
  std::vector<std::vector<std::byte>> known;
  for (const py::bytes& address : addresses) {
    const ConstBytes bytes = bytes_of(address);
    known.emplace_back(bytes.begin(), bytes.end());
  }
  std::vector<FabricPlace::Neighbour> near;
  for (const auto& [r, pid, start_time, pid_namespace] : neighbours) {
    near.push_back({r, {pid, start_time, pid_namespace}});
  }
  const py::gil_scoped_release release;
  if (!nodes) {
    return place.connect(std::move(known), rank, timeout_s, failure, near);
  }
  if (nodes->size() != known.size()) {
    throw base::InvalidArgument(base::cat("[transport] nodes of ", nodes->size(), " ranks for ",
                                          known.size(), " addresses: give one for each"));
  }
  const double limit_s = transport::by_node_limit_s(timeout_s);
  auto far = place.connect(std::move(known), rank, limit_s, failure, near);
  return transport::make_by_node(near_of(room, rank, *nodes, limit_s, failure), std::move(far),
                                 *nodes, timeout_s, failure);
}

}  // namespace

void register_transport(py::module_& module) {
  py::class_<Failure, std::shared_ptr<Failure>>(module, "Failure")
      .def(py::init<>())
      .def("tell", &Failure::tell, py::arg("text"), py::call_guard<py::gil_scoped_release>(),
           "Ends the group: all waits of its transports end, here and on the ranks they reach.\n"
           "The first words count.")
      .def("finish_telling", &Failure::finish_telling, py::call_guard<py::gil_scoped_release>(),
           "Waits until what was told has left for the other ranks, some seconds at most: for a\n"
           "process that is about to end.")
      .def("doing", &Failure::set_doing, py::arg("what"),
           "The user's call that this rank is in, for the words of an interrupt; \"\": none.")
      .def_property_readonly("text", &Failure::text, "What was told; empty: nothing.");
  py::class_<Transport, SharedTransport>(module, "Transport")
      .def_property_readonly("name", &Transport::name)
      .def_property_readonly("rank", &Transport::rank)
      .def_property_readonly("size", &Transport::size)
      .def_property(
          "timeout_s", &Transport::timeout_s, &Transport::set_timeout_s,
          "Seconds: the longest wait of a call. Set, it is that of the calls from now on, "
          "the same on\nall ranks.")
      .def(
          "look", &Transport::look, py::call_guard<py::gil_scoped_release>(),
          "Raises TransportError where the group has failed, as far as this rank can tell at once.")
      .def(
          "present", &Transport::present, py::arg("wait_s"),
          py::call_guard<py::gil_scoped_release>(),
          "The ranks that make this call too within `wait_s`, after a failure too; all, where the\n"
          "transport cannot tell.")
      .def("allgather", &allgather, py::arg("mine"),
           "The bytes of all ranks, by rank; of one size on all. Collective.")
      .def("exchange", &exchange, py::arg("to"), py::arg("sizes") = py::none(),
           "Sends to[r] to rank r; returns what every rank sent here, by rank. sizes: how many\n"
           "bytes come, by rank: other ones are an error, and where none come no message is sent.\n"
           "All ranks know them, or none does. Collective.")
      .def("exchange_sparse", &exchange_sparse, py::arg("to"), py::arg("from_"),
           "The same where ranks know who sends whom something, and nobody how much: from_[r],\n"
           "whether rank r has bytes for this one. Pairs that have nothing send no message.")
      .def(
          "duplicate", [](Transport& self) { return SharedTransport(self.duplicate()); },
          py::call_guard<py::gil_scoped_release>(),
          "Another transport between the same ranks, for another thread. Collective.")
      .def("__reduce_ex__", [](const Transport&, int) -> py::object {
        throw base::InvalidArgument(
            "[pickle] a Transport is of the process that made it and can be neither pickled nor "
            "copied: make one in each process, with group.transport()");
      });
  py::class_<SharedRoom>(module, "SharedRoom", "The memory of a shared_memory transport.")
      .def(py::init<const std::string&, uint32_t>(), py::arg("name"), py::arg("size"));
  module.def("loopback_transports", &loopback_transports, py::arg("size"), py::arg("timeout_s"),
             py::arg("failures") = std::vector<std::shared_ptr<Failure>>(),
             "The ranks of a group whose ranks are threads of this process.");
  module.def("shared_memory_transport", &shared_memory_transport, py::arg("name"), py::arg("rank"),
             py::arg("size"), py::arg("timeout_s"), py::arg("failure") = py::none(),
             py::arg("made") = py::none(),
             "A rank of a group on this node; `name` is this group's alone. Collective.\n"
             "made: rank 0's SharedRoom of that name, where it has made one.");
  module.def(
      "made_up_name", &memory::made_up_name, py::call_guard<py::gil_scoped_release>(),
      "A name for memory that the ranks of one group map, which nobody else learns. Removes\n"
      "what ranks left behind under such names that were killed before the others mapped it.");
  module.def("mpi_transport", &mpi_transport, py::arg("communicator"), py::arg("timeout_s"),
             py::kw_only(), py::arg("message_bytes") = transport::MpiOptions{}.message_bytes,
             py::arg("failure") = py::none(),
             "The ranks of an MPI communicator: its handle in Fortran, 0 for all. Collective.");
  module.def("verbs_transport", &verbs_transport, py::arg("messages"),
             py::arg("failure") = py::none(), py::arg("required") = true,
             "A transport that reads rows by RDMA; all else goes by `messages`. Collective.");
  module.def("verbs_port", &transport::describe_verbs_port,
             py::call_guard<py::gil_scoped_release>(),
             "The RDMA port that verbs_transport would take here, in words.");
  module.def("fabric_transport", &fabric_transport, py::arg("messages"),
             py::arg("failure") = py::none(), py::arg("required") = true,
             "A transport that reads rows through libfabric; all else goes by `messages`.\n"
             "Collective.");
  py::class_<FabricPlace, std::shared_ptr<FabricPlace>>(
      module, "FabricPlace", "Where messages for this rank arrive by libfabric.")
      .def(py::init(&fabric_place), py::arg("token"), py::arg("interface"),
           "token: of the launch, the same on all its ranks and on no others. interface: of the\n"
           "network, for a provider over TCP; \"\": its first.")
      .def_property_readonly("address",
                             [](const FabricPlace& place) {
                               const std::vector<std::byte> bytes = place.address();
                               return py::bytes(reinterpret_cast<const char*>(bytes.data()),
                                                bytes.size());
                             })
      .def_property_readonly("provider", &FabricPlace::provider)
      .def_property_readonly("text", &FabricPlace::text, "\"tcp on eth0\"")
      .def(
          "connect", &connect, py::arg("addresses"), py::arg("rank"), py::arg("timeout_s"),
          py::arg("failure") = py::none(), py::arg("neighbours") = std::vector<Neighbour>(),
          py::arg("nodes") = py::none(), py::arg("room") = Room(),
          "Messages to the ranks of these addresses, once. neighbours: the ranks on this machine,\n"
          "(rank, pid, start time, namespace of pids), which are named soon where they have "
          "ended.\n"
          "nodes: of every rank; then what all are told goes inside the nodes first, over memory\n"
          "that the lowest rank of each has made: room, (its name, the SharedRoom on that rank).");
  module.def("fabric_port", &transport::describe_fabric, py::call_guard<py::gil_scoped_release>(),
             "What fabric_transport would take here, in words: \"cxi on cxi0\".");
  module.def(
      "first_exchange",
      [](Transport& transport, const std::vector<uint32_t>& sources, double patience_s) {
        return transport::first_exchange(transport, sources, patience_s);
      },
      py::arg("transport"), py::arg("sources"), py::arg("patience_s"),
      py::call_guard<py::gil_scoped_release>(),
      "Bytes a second of rank sources[r]'s rows that come to rank r: the slowest rank's, the same\n"
      "on all. Collective.");
  module.def(
      "group_transport", &group_transport, py::arg("channel"), py::arg("rank"), py::arg("size"),
      py::arg("timeout_s"),
      "A transport over channel.allgather(mine, all), .exchange_bytes(to, sizes), .duplicate().");
}

}  // namespace gear::bindings
