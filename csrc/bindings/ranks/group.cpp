#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "bindings/arrays/updates.h"
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
  store::save_shard(peers.shard(), path, peers.outbox().kept());
}

}  // namespace

void register_group(py::module_& module) {
  py::class_<BufferPeers, std::shared_ptr<BufferPeers>> peers(module, "Peers");
  peers
      .def(py::init(&make_peers), py::arg("shard"), py::arg("transport"), py::arg("nodes"),
           py::arg("hide_names"))
      .def("publish", &BufferPeers::publish, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("published",
                             [](const BufferPeers& peers) { return peers.published != nullptr; })
      .def("save", &save_part, py::arg("path"));
  def_updates(peers);
}

}  // namespace gear::bindings
