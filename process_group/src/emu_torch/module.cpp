// The Python extension gear.emu._emu.

#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "base/threads/interrupt.h"
#include "emu/history.h"
#include "emu_torch/emulated_group.h"

namespace py = pybind11;

namespace gear::emu {
namespace {

// Python's answer to Ctrl-C, in the middle of a wait.
void check_signals() {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) {
    throw py::error_already_set();
  }
}

EmulatedGroup::Pointer held(const py::object& backend) {
  if (backend.is_none()) {
    return nullptr;
  }
  return backend.cast<EmulatedGroup::Pointer>();
}

py::dict told(const Tally& tally) {
  py::dict one;
  one["calls"] = tally.calls;
  one["bytes"] = tally.bytes;
  one["seconds"] = tally.seconds;
  one["late_calls"] = tally.late_calls;
  one["late_s"] = tally.late_s;
  one["waited_s"] = tally.waited_s;
  one["unseen_calls"] = tally.unseen_calls;
  return one;
}

// On the clock of Python's time.monotonic().
double seconds_of(Time time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

// Of the operations that have ended: (name, group, ranks, call, bytes, seconds from and to).
py::list operations_told() {
  py::list all;
  for (const History::Operation& one : History::instance().operations()) {
    if (Holds::instance().has_ended(one.flow)) {
      all.append(py::make_tuple(one.name, one.group, one.ranks, one.call, one.bytes,
                                seconds_of(one.flow->start),
                                seconds_of(std::max(one.flow->end, one.valued))));
    }
  }
  return all;
}

// (name, seconds from and to)
py::list waits_told() {
  py::list all;
  for (const History::Wait& one : History::instance().waits()) {
    all.append(py::make_tuple(one.name, seconds_of(one.began), seconds_of(one.ended)));
  }
  return all;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.doc() = "Process groups of which a few ranks are real.";
  base::interrupt_check.store(&check_signals);

  py::class_<base::Curve>(module, "Curve")
      .def(py::init<std::vector<uint64_t>, std::vector<double>, std::vector<int>>(),
           py::arg("bytes"), py::arg("seconds"), py::arg("bases"));
  py::class_<Plan>(module, "Plan")
      .def(py::init(
               [](Links links, int ranks,
                  const std::vector<
                      std::tuple<uint64_t, double, std::vector<std::array<double, 3>>>>& copies,
                  const std::vector<std::pair<int, uint64_t>>& dead,
                  const std::vector<std::pair<double, int>>& changes, uint64_t seed,
                  bool has_one_clock, std::function<base::Curve(const std::string&, size_t)> ask) {
                 Plan plan{.links = links,
                           .ranks = ranks,
                           .seed = seed,
                           .has_one_clock = has_one_clock,
                           .ask = std::move(ask)};
                 for (const auto& [rank, sigma, slow] : copies) {
                   Copy& copy = plan.copies.emplace_back(Copy{.rank = rank, .sigma = sigma});
                   for (const auto& [by, from_s, to_s] : slow) {
                     copy.slow.push_back({by, from_s, to_s});
                   }
                 }
                 for (const auto& [rank, call] : dead) {
                   plan.dead.push_back({rank, call});
                 }
                 for (const auto& [from_s, stopped] : changes) {
                   plan.changes.push_back({from_s, stopped});
                 }
                 return plan;
               }),
           py::arg("links"), py::arg("ranks"), py::arg("copies"), py::arg("dead"),
           py::arg("changes"), py::arg("seed"), py::arg("has_one_clock"), py::arg("ask"));
  py::class_<OnGpus>(module, "OnGpus")
      .def(py::init(
               [](std::function<std::pair<uintptr_t, uintptr_t>()> load,
                  std::function<py::object()> connect,
                  const std::map<std::string,
                                 std::vector<std::tuple<uint64_t, unsigned, unsigned, unsigned>>>&
                      footprints,
                  std::string refused) {
                 OnGpus on_gpus{.load =
                                    [load = std::move(load)] {
                                      const auto [mark, hold] = load();
                                      return Kernels{.mark = mark, .hold = hold};
                                    },
                                .connect =
                                    [connect = std::move(connect)] {
                                      const py::gil_scoped_acquire gil;
                                      return held(connect());
                                    },
                                .refused = std::move(refused)};
                 for (const auto& [operation, found] : footprints) {
                   for (const auto& [bytes, blocks, threads, shared] : found) {
                     on_gpus.footprints[operation].push_back({bytes, blocks, threads, shared});
                   }
                 }
                 return on_gpus;
               }),
           py::arg("load"), py::arg("connect"), py::arg("footprints"), py::arg("refused"));
  using Options = EmulatedGroup::Options;
  py::class_<Options, ::c10d::Backend::Options, c10::intrusive_ptr<Options>>(module, "Options")
      .def(py::init([](double timeout_s) {
             return c10::make_intrusive<Options>(
                 std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1e3)));
           }),
           py::arg("timeout_s"));
  using PythonSplit = std::function<py::object(c10::intrusive_ptr<::c10d::Store>, std::vector<int>,
                                               std::chrono::milliseconds)>;
  py::class_<EmulatedGroup, ::c10d::Backend, c10::intrusive_ptr<EmulatedGroup>>(module, "Group")
      .def(py::init([](std::vector<int> world_ranks, std::vector<int> real, int own,
                       const py::object& on_host, Plan plan, OnGpus on_gpus, PythonSplit split,
                       c10::intrusive_ptr<Options> options) {
             const auto size = static_cast<int>(world_ranks.size());
             auto by_torch = [split = std::move(split)](const auto& store, const auto& members,
                                                        const auto& given) {
               const py::gil_scoped_acquire gil;
               return held(split(store, members, given->timeout));
             };
             return c10::make_intrusive<EmulatedGroup>(
                 Members(size, std::move(real), own), std::move(world_ranks), held(on_host),
                 std::move(plan), std::move(on_gpus), std::move(by_torch), std::move(options));
           }),
           py::arg("world_ranks"), py::arg("real"), py::arg("own"), py::arg("on_host"),
           py::arg("plan"), py::arg("on_gpus"), py::arg("split"), py::arg("options"));
  module.def("tallies", [] {
    py::dict all;
    for (const auto& [operation, tally] : tallies()) {
      all[operation.c_str()] = told(tally);
    }
    return all;
  });
  module.def("operations", &operations_told);
  module.def("waits", &waits_told);
  module.def("begin_history", [] { History::instance().begin(); });
  module.def("left_out", [] { return History::instance().left_out(); });
  module.attr("version") = GEAR_VERSION;
  module.attr("form") = 3;  // of this interface: gear/emu/library.py
}

}  // namespace gear::emu
