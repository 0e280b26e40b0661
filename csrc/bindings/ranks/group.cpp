#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "bindings/arrays/input_rows.h"
#include "bindings/ranks/buffer_peers.h"
#include "store/checkpoint/snapshot.h"

namespace gear::bindings {
namespace {

// The GIL is given up: other ranks may be threads of this process.
std::shared_ptr<BufferPeers> make_peers(std::shared_ptr<store::Shard> shard,
                                        std::shared_ptr<transport::Transport> transport,
                                        std::vector<uint32_t> nodes, bool hide_names) {
  const py::gil_scoped_release release;
  return base::make_shared_here<BufferPeers>(std::move(shard), std::move(transport),
                                             std::move(nodes), hide_names);
}

void save_part(BufferPeers& peers, const std::string& path) {
  const py::gil_scoped_release release;
  peers.shard().check_process("save");  // before a GPU is asked for what it keeps
  store::save_shard(peers.shard(), path, peers.kept_updates());
}

void update_peers(BufferPeers& peers, const Ids& ids, const Priorities& priorities) {
  check_update(ids, priorities);
  peers.update({ids.data(), static_cast<size_t>(ids.size())},
               {priorities.data(), static_cast<size_t>(priorities.size())});
}

// Arrays in the host's memory, by address.
void update_peers_at(BufferPeers& peers, uintptr_t ids, uintptr_t priorities, uint64_t count) {
  peers.update({reinterpret_cast<const int64_t*>(ids), count},
               {reinterpret_cast<const float*>(priorities), count});
}

// Arrays in a GPU's memory, by address.
void update_peers_from_device(BufferPeers& peers, uintptr_t ids, uintptr_t priorities,
                              uint64_t count, uintptr_t stream) {
  const py::gil_scoped_release release;
  peers.update_from_device(reinterpret_cast<const int64_t*>(ids),
                           reinterpret_cast<const float*>(priorities), count, stream);
}

}  // namespace

void register_group(py::module_& module) {
  py::class_<BufferPeers, std::shared_ptr<BufferPeers>>(module, "Peers")
      .def(py::init(&make_peers), py::arg("shard"), py::arg("transport"), py::arg("nodes"),
           py::arg("hide_names"))
      .def("publish", &BufferPeers::publish, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("published",
                             [](const BufferPeers& peers) { return peers.published != nullptr; })
      .def("update", &update_peers, py::arg("ids"), py::arg("priorities"))
      .def("update_at", &update_peers_at, py::arg("ids"), py::arg("priorities"), py::arg("count"))
      .def("update_from_device", &update_peers_from_device, py::arg("ids"), py::arg("priorities"),
           py::arg("count"), py::arg("stream"))
      .def("save", &save_part, py::arg("path"));
}

}  // namespace gear::bindings
