#!/usr/bin/env bash
# Step manifest: what is installed, for `gear check --manifest`. Sourced by build.sh.

manifest_step() {
  local tool
  for tool in python compiler cmake mpi cuda; do record_tool "$tool" "$(tool_version "$tool")"; done
  site_values | write "$BUILD/share/gear/site"
  run "$BUILD/bin/python" "$SOURCE/recipes/manifest.py" --build "$BUILD" --version "$VERSION" --kind "$KIND" \
    --source-hash "$(source_hash)" --steps "$(active_steps | xargs)" ||
    fail "what is installed is not whole" "rm -rf $BASE $BUILD, then repeat the command"
  run "$BUILD/bin/gear" check --manifest "$BUILD/share/gear/manifest.json" ||
    fail "what is installed is not what its packages say" "rm -rf $BASE $BUILD, then repeat the command"
}
