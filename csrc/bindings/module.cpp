#include "bindings/bindings.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The C++ core of GEAR. Use the classes of the package `gear`; these may change.";
  gear::bindings::register_base(module);
  gear::bindings::register_devices(module);
  gear::bindings::register_store(module);
  gear::bindings::register_ingest(module);
  gear::bindings::register_vector_writer(module);
  gear::bindings::register_batch(module);
  gear::bindings::register_transport(module);
  gear::bindings::register_emulated(module);
  gear::bindings::register_group(module);
  gear::bindings::register_collect(module);
}
