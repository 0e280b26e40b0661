#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "bindings/input_rows.h"
#include "group/peers.h"

namespace gear::bindings {
namespace {

// The GIL is given up: other ranks may be threads of this process.
std::shared_ptr<group::Peers> make_peers(std::shared_ptr<store::Shard> shard,
                                         std::shared_ptr<transport::Transport> transport,
                                         std::vector<uint32_t> nodes, bool hide_names) {
  const py::gil_scoped_release release;
  return std::make_shared<group::Peers>(std::move(shard), std::move(transport), std::move(nodes),
                                        hide_names);
}

void exchange_updates(group::Peers& peers) {
  const py::gil_scoped_release release;
  peers.exchange_updates(peers.control());
}

void update_peers(group::Peers& peers, const Ids& ids, const Priorities& priorities) {
  check_update(ids, priorities);
  peers.update({ids.data(), static_cast<size_t>(ids.size())},
               {priorities.data(), static_cast<size_t>(priorities.size())});
}

}  // namespace

void register_group(py::module_& module) {
  py::class_<group::Peers, std::shared_ptr<group::Peers>>(module, "Peers")
      .def(py::init(&make_peers), py::arg("shard"), py::arg("transport"), py::arg("nodes"),
           py::arg("hide_names"))
      .def("update", &update_peers, py::arg("ids"), py::arg("priorities"))
      .def("exchange_updates", &exchange_updates);
}

}  // namespace gear::bindings
