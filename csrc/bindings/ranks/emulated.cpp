#include "transport/emulated.h"

#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "group/lone_draw.h"

namespace gear::bindings {
namespace {

using transport::Traffic;
using transport::Transport;
using SharedTransport = std::shared_ptr<Transport>;

// Points of a gear.emu.Curve: bytes, seconds, numbers of bases. A class would be one of the
// extension gear.emu._emu, too, which the two may not both register.
using CurvePoints = std::tuple<std::vector<uint64_t>, std::vector<double>, std::vector<int>>;

base::Curve curve_of(CurvePoints points) {
  auto& [bytes, seconds, bases] = points;
  return {std::move(bytes), std::move(seconds), std::move(bases)};
}

SharedTransport emulated_transport(SharedTransport inner, std::shared_ptr<Traffic> traffic,
                                   CurvePoints all_gather, CurvePoints all_to_all, CurvePoints send,
                                   bool holds) {
  return transport::make_emulated(
      std::move(inner), {{curve_of(std::move(all_gather)), curve_of(std::move(all_to_all)),
                          curve_of(std::move(send))},
                         std::move(traffic),
                         holds ? transport::wait_out : std::function<void(Transport&, double)>()});
}

py::dict told(const Traffic& traffic) {
  py::dict calls;
  for (const transport::Counted call :
       {transport::Counted::kAllgather, transport::Counted::kExchange, transport::Counted::kRead,
        transport::Counted::kDuplicate}) {
    const transport::Tally tally = traffic.of(call);
    py::dict one;
    one["calls"] = tally.calls;
    one["messages"] = tally.messages;
    one["bytes"] = tally.bytes;
    one["seconds"] = tally.seconds;
    calls[py::str(std::string(transport::kCounted.name(call)))] = one;
  }
  return calls;
}

// The law of gear.Uniform().
std::unique_ptr<group::LoneDraw> lone_draw(std::shared_ptr<store::Shard> shard, uint64_t batch_size,
                                           const std::string& locality,
                                           const std::vector<uint32_t>& nodes) {
  const py::gil_scoped_release release;
  return std::make_unique<group::LoneDraw>(std::move(shard), select::SamplerOptions(), batch_size,
                                           group::kLocalities.parse(locality), nodes);
}

}  // namespace

void register_emulated(py::module_& module) {
  py::class_<Traffic, std::shared_ptr<Traffic>>(
      module, "Traffic", "What the calls of emulated transports that share it came to.")
      .def(py::init<>())
      .def("tallies", &told,
           "By call (allgather, exchange, read, duplicate): calls, messages, bytes, and seconds "
           "that the\ncurves say, by gear.emu.BASES.");
  module.def("emulated_transport", &emulated_transport, py::arg("inner"), py::arg("traffic"),
             py::kw_only(), py::arg("all_gather"), py::arg("all_to_all"), py::arg("send"),
             py::arg("holds"),
             "A transport whose calls are counted, and take what curves say, each of them (bytes, "
             "seconds,\nnumbers of bases); with `holds`, they last as long.");
  py::class_<group::LoneDraw>(module, "LoneDraw",
                              "What the draws of a batch of all ranks cost one of them.")
      .def(py::init(&lone_draw), py::arg("shard"), py::arg("batch_size"), py::arg("locality"),
           py::arg("nodes"),
           "nodes: of every rank; the others hold as much as this one, the first, does.")
      .def("draw", &group::LoneDraw::draw, py::call_guard<py::gil_scoped_release>(),
           "The next batch's draws; returns how many fall on this rank.");
}

}  // namespace gear::bindings
