#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <algorithm>

#include "base/errors.h"
#include "bindings/arrays/updates.h"
#include "store/checkpoint/manifest.h"
#include "store/checkpoint/snapshot.h"
#include "store/shard.h"

namespace gear::bindings {
namespace {
using ColumnTuple = std::tuple<std::string, std::vector<int64_t>, std::string>;

store::Schema make_schema(const std::vector<ColumnTuple>& columns) {
  std::vector<store::Column> made;
  for (const auto& [name, shape, dtype] : columns) {
    made.push_back({name, shape, base::kDTypes.parse(dtype)});
  }
  return store::Schema(std::move(made));
}

py::list schema_columns(const store::Schema& schema) {
  py::list columns;
  for (const store::Column& column : schema.columns()) {
    columns.append(py::make_tuple(column.name, py::tuple(py::cast(column.shape)),
                                  std::string(base::kDTypes.name(column.dtype))));
  }
  return columns;
}

// (samples_per_insert, min_steps, slack)
using RateLimitTuple = std::tuple<double, uint64_t, double>;

store::RateLimiter make_rate_limiter(const std::optional<RateLimitTuple>& given) {
  if (!given) {
    return {};
  }
  const auto [samples_per_insert, min_steps, slack] = *given;
  return {samples_per_insert, min_steps, slack};
}

std::shared_ptr<store::Shard> make_shard(const std::vector<ColumnTuple>& columns, uint64_t capacity,
                                         uint64_t page_steps, const std::string& tier,
                                         const std::string& name, const std::string& evict,
                                         uint32_t max_times_sampled, uint32_t owner,
                                         std::optional<RateLimitTuple> rate_limit) {
  store::ShardOptions options;
  options.capacity = capacity;
  options.page_steps = page_steps;
  const memory::TierChoice choice = memory::parse_tier_choice(tier);
  options.tier = choice.tier;
  options.device = choice.device;
  options.name = name;
  options.evict = store::kEvictions.parse(evict);
  options.max_times_sampled = max_times_sampled;
  options.owner = owner;
  options.rate_limiter = make_rate_limiter(rate_limit);
  store::Schema schema = make_schema(columns);
  const py::gil_scoped_release release;  // memory is made and, where pinned, page-locked: seconds
  return base::make_shared_here<store::Shard>(std::move(schema), options);
}

// Makes sure that the index holds the priorities that GPUs are ahead with, and calls `look` under
// the lock. Without the GIL: this may wait for a GPU.
// While a draw is out it holds what it held before.
template <class Look>
void with_settled(store::Shard& shard, Look look) {
  const py::gil_scoped_release release;
  auto lock = shard.lock();
  static_cast<void>(shard.settle(lock));
  look(shard.index());
}

// A function of a shard: what `look` finds in its index.
template <class Look>
auto under_lock(Look look) {
  return [look](store::Shard& shard) {
    const py::gil_scoped_release release;
    const auto lock = shard.lock();
    return look(shard.index());
  };
}

py::dict stats(store::Shard& shard) {
  store::Counters counters;
  uint64_t steps = 0, episodes = 0, anchors = 0, pages = 0, pages_free = 0;
  float max_priority = 0;
  const uint64_t bytes = shard.bytes();
  with_settled(shard, [&](const store::Index& index) {
    const store::IndexState& state = index.state();
    counters = state.counters;
    steps = state.num_steps;
    episodes = state.num_episodes;
    anchors = index.steps().counts().total();
    pages = state.pages.size();
    pages_free = state.free_pages.size();
    max_priority = state.max_priority;
  });
  py::dict stats;
  stats["steps"] = steps;
  stats["episodes"] = episodes;
  stats["anchors"] = anchors;
  stats["pages"] = pages;
  stats["pages_free"] = pages_free;
  stats["bytes"] = bytes;
  stats["max_priority"] = max_priority;
  stats["steps_inserted"] = counters.steps_inserted;
  stats["steps_evicted"] = counters.steps_evicted;
  stats["steps_sampled"] = counters.steps_sampled;
  stats["stale_updates"] = counters.stale_updates;
  stats["saturated_weights"] = counters.saturated_weights;
  return stats;
}

struct EpisodeRow {
  uint64_t uid, begin, end;
  store::EpisodeState state;
  double priority;
  std::vector<int64_t> runs;  ///< of ids that follow each other: the first one, and how many
};

py::list episodes(store::Shard& shard) {
  std::vector<EpisodeRow> rows;
  with_settled(shard, [&](const store::Index& index) {
    for (uint32_t e = index.state().oldest; e != store::kNone; e = index.episode(e).newer) {
      const store::Episode& episode = index.episode(e);
      EpisodeRow row{episode.uid,
                     episode.begin,
                     episode.end,
                     episode.state,
                     store::episode_priority(index.state(), episode),
                     {}};
      for (uint32_t p = episode.head; p != store::kNone; p = index.page(p).next) {
        const store::Page& page = index.page(p);
        const uint64_t steps = std::min<uint64_t>(page.rows, episode.end - page.first_step);
        row.runs.push_back(index.id({p, 0}, store::Unit::kStep));
        row.runs.push_back(static_cast<int64_t>(steps));  // without the closing step
      }
      rows.push_back(std::move(row));
    }
  });
  py::list list;
  for (const EpisodeRow& row : rows) {
    list.append(py::make_tuple(
        row.uid, row.begin, row.end, store::kEpisodeStates.name(row.state), row.priority,
        py::array_t<int64_t>({static_cast<py::ssize_t>(row.runs.size() / 2), py::ssize_t{2}},
                             row.runs.data())));
  }
  return list;
}

py::array_t<float> priorities_of(store::Shard& shard, const Ids& ids) {
  py::array_t<float> priorities(ids.size());
  const std::span wanted(ids.data(), static_cast<size_t>(ids.size()));
  float* out = priorities.mutable_data();
  with_settled(shard, [&](const store::Index& index) {
    for (int64_t id : wanted) {
      *out++ = index.priority(index.resolve(id));
    }
  });
  return priorities;
}

void save(store::Shard& shard, const std::string& path) {
  const py::gil_scoped_release release;
  store::save_shard(shard, path);
}

// The shard, and what Outbox::update is to be given: ids and priorities.
std::tuple<std::shared_ptr<store::Shard>, py::array_t<int64_t>, py::array_t<float>> load(
    const std::string& path, const std::string& tier, const std::string& name, uint32_t owner) {
  const memory::TierChoice choice = memory::parse_tier_choice(tier);
  store::LoadedShard loaded;
  {
    const py::gil_scoped_release release;
    loaded = store::load_shard(path, choice, name, owner);
  }
  const auto count = static_cast<py::ssize_t>(loaded.kept_updates.size());
  py::array_t<int64_t> ids(count);
  py::array_t<float> priorities(count);
  int64_t* id = ids.mutable_data();
  float* priority = priorities.mutable_data();
  for (const store::KeptUpdate& one : loaded.kept_updates) {
    *id++ = one.id;
    *priority++ = one.priority;
  }
  return {std::move(loaded.shard), std::move(ids), std::move(priorities)};
}

std::shared_ptr<store::Shard> load_share(const std::vector<std::string>& paths,
                                         const std::string& tier, const std::string& name,
                                         uint32_t rank, uint32_t size) {
  const memory::TierChoice choice = memory::parse_tier_choice(tier);
  const py::gil_scoped_release release;
  return store::load_share(paths, choice, name, rank, size);
}

py::dict inspect(const std::string& path) {
  store::CheckpointInfo info;
  {
    const py::gil_scoped_release release;
    info = store::inspect_checkpoint(path);
  }
  py::dict out;
  out["format"] = info.format;
  out["columns"] = schema_columns(store::Schema::parse(info.schema_text));
  out["schema_hash"] = info.schema_hash;
  out["step_bytes"] = info.step_bytes;
  out["page_steps"] = info.page_steps;
  out["pages"] = info.pages;
  out["pages_used"] = info.pages_used;
  out["steps"] = info.steps;
  out["episodes"] = info.episodes;
  out["bytes"] = info.bytes;
  out["errors"] = info.errors;
  return out;
}

}  // namespace

void register_store(py::module_& module) {
  module.def(
      "describe_schema",
      [](const std::vector<ColumnTuple>& columns) {
        const store::Schema schema = make_schema(columns);
        return py::make_tuple(schema.step_bytes(), schema.hash());
      },
      py::arg("columns"), "Checks columns (name, shape, dtype); returns (step_bytes, hash).");

  py::class_<store::Shard, std::shared_ptr<store::Shard>> shard(module, "Shard");
  shard
      .def(py::init(&make_shard), py::arg("columns"), py::kw_only(), py::arg("capacity"),
           py::arg("page_steps"), py::arg("tier"), py::arg("name"), py::arg("evict"),
           py::arg("max_times_sampled"), py::arg("owner"), py::arg("rate_limit"))
      .def_property_readonly("columns",
                             [](store::Shard& shard) { return schema_columns(shard.schema()); })
      .def_property_readonly("capacity",
                             [](store::Shard& shard) { return shard.index().num_slots(); })
      .def_property_readonly("page_steps",
                             [](store::Shard& shard) { return shard.layout().page_steps; })
      .def_property_readonly(
          "forked", &store::Shard::forked,
          "Whether this is a copy, in a forked child of the process that made it.")
      .def_property_readonly("num_steps", under_lock([](const store::Index& index) {
                               return index.state().num_steps;
                             }))
      .def_property_readonly("num_episodes", under_lock([](const store::Index& index) {
                               return index.state().num_episodes;
                             }))
      .def_property_readonly("num_bytes",
                             [](store::Shard& shard) {
                               const py::gil_scoped_release release;
                               return shard.bytes();
                             })
      .def_property_readonly(
          "identity", under_lock([](const store::Index& index) { return index.state().identity; }))
      .def("take_seed_number",
           under_lock([](store::Index& index) { return index.take_seed_number(); }))
      .def(
          "pass_seed_numbers",
          [](store::Shard& shard, uint64_t below) {
            const py::gil_scoped_release release;
            const auto lock = shard.lock();
            shard.index().pass_seed_numbers(below);
          },
          py::arg("below"))
      .def(
          "set_rate_limit",
          [](store::Shard& shard, const std::optional<RateLimitTuple>& rate_limit) {
            const store::RateLimiter limiter = make_rate_limiter(rate_limit);
            const py::gil_scoped_release release;
            shard.set_rate_limiter(limiter);
          },
          py::arg("rate_limit"))
      .def("stats", &stats)
      .def("episodes", &episodes)
      .def("priorities", &priorities_of, py::arg("ids"));
  def_updates(shard);
  module.attr("CHECKPOINT_FORMAT") = store::kCheckpointFormat;
  module.def("save", &save, py::arg("shard"), py::arg("path"));
  module.def("load", &load, py::arg("path"), py::kw_only(), py::arg("tier"), py::arg("name"),
             py::arg("owner"));
  module.def("load_share", &load_share, py::arg("paths"), py::kw_only(), py::arg("tier"),
             py::arg("name"), py::arg("rank"), py::arg("size"));
  module.def("inspect", &inspect, py::arg("path"));
}

}  // namespace gear::bindings
