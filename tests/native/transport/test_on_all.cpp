// A step that all ranks take or none: whoever fails in it, all hear of it.
#include "transport/on_all.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "base/errors.h"
#include "ranks.h"
#include "transport/loopback.h"

using namespace gear;
using namespace gear::testing;
using transport::on_all;
using transport::Transport;

namespace {

// What is thrown there, by its class: "IoError 28: words".
std::string thrown_in(const std::function<void()>& body) {
  try {
    body();
  } catch (const base::InvalidArgument& error) {
    return base::cat("InvalidArgument: ", error.what());
  } catch (const base::OutOfMemory& error) {
    return base::cat("OutOfMemory: ", error.what());
  } catch (const base::CudaError& error) {
    return base::cat("CudaError: ", error.what());
  } catch (const base::TransportError& error) {
    return base::cat("TransportError: ", error.what());
  } catch (const base::CorruptData& error) {
    return base::cat("CorruptData: ", error.what());
  } catch (const base::IoError& error) {
    return base::cat("IoError ", error.code(), ": ", error.what());
  } catch (const std::logic_error& error) {
    return base::cat("logic_error: ", error.what());
  } catch (const std::bad_alloc&) {
    return "bad_alloc";
  }
  return "";
}

// By rank, where `step` fails on those of `failing`.
std::vector<std::string> said_by(const std::vector<uint32_t>& failing,
                                 const std::function<void(uint32_t rank)>& step) {
  auto ranks = transport::make_loopback(3, 60);
  std::vector<std::string> said(3);
  for (const std::string& error : errors_of(ranks, [&](Transport& control) {
         const uint32_t rank = control.rank();
         said[rank] = thrown_in([&] {
           on_all(control, [&] {
             if (std::ranges::find(failing, rank) != failing.end()) {
               step(rank);
             }
           });
         });
         on_all(control, [] {});  // they go on
       })) {
    CHECK(error == "");
  }
  return said;
}

}  // namespace

TEST_CASE("on all: a step that fails nowhere is taken by all") {
  CHECK(said_by({}, [](uint32_t) {}) == std::vector<std::string>(3));
}

TEST_CASE("on all: the class and the words of what one rank threw come to all") {
  const std::vector<std::pair<std::function<void(uint32_t)>, std::string>> cases = {
      {[](uint32_t) { throw base::InvalidArgument("[a] x"); }, "InvalidArgument: @[a] x"},
      {[](uint32_t) { throw base::OutOfMemory("[a] x"); }, "OutOfMemory: @[a] x"},
      {[](uint32_t) { throw base::CudaError("[a] x"); }, "CudaError: @[a] x"},
      {[](uint32_t) { throw base::TransportError("[a] x"); }, "TransportError: @[a] x"},
      {[](uint32_t) { throw base::CorruptData("[a] x"); }, "CorruptData: @[a] x"},
      {[](uint32_t) { throw base::IoError("[a] x", 28); }, "IoError 28: @[a] x"},
  };
  for (const auto& [step, want] : cases) {
    const auto said = said_by({1}, step);
    const size_t at = want.find('@');
    const auto words = [&](const char* where) {
      return want.substr(0, at) + where + want.substr(at + 1);
    };
    CHECK(said[0] == words("on rank 1: "));
    CHECK(said[1] == words(""));
    CHECK(said[2] == words("on rank 1: "));
  }
}

TEST_CASE("on all: what is no error of the core is one of the transport elsewhere") {
  const auto said = said_by({2}, [](uint32_t) { throw std::logic_error("[internal] x"); });
  CHECK(said[0] == "TransportError: on rank 2: [internal] x");
  CHECK(said[2] == "logic_error: [internal] x");
  const auto none_left = said_by({2}, [](uint32_t) { throw std::bad_alloc(); });
  CHECK(none_left[0] == "OutOfMemory: on rank 2: no memory left");
  CHECK(none_left[2] == "bad_alloc");
}

TEST_CASE("on all: the first of several ranks is named, and each throws its own") {
  const auto said = said_by({1, 2}, [](uint32_t rank) {
    throw base::InvalidArgument(base::cat(std::string(2000, 'x'), rank));
  });
  CHECK(said[0] == "InvalidArgument: on rank 1: " + std::string(1015, 'x'));
  CHECK(said[1] == "InvalidArgument: " + std::string(2000, 'x') + "1");
  CHECK(said[2] == "InvalidArgument: " + std::string(2000, 'x') + "2");
}

TEST_CASE("on all: a step that ends the transport throws its own words") {
  auto ranks = transport::make_loopback(2, 1);
  std::vector<std::string> said(2);
  errors_of(ranks, [&](Transport& control) {
    said[control.rank()] = thrown_in([&] {
      if (control.rank() == 0) {
        on_all(control, [] { throw base::InvalidArgument("[a] came first"); });
      }
    });
  });
  CHECK(said[0] == "InvalidArgument: [a] came first");
}
