# Two commands: `make demo` and `make test`. Each sets up what it needs in .venv first.
# `make test-all` is lint, every test once, natives under ASan and UBSan: what CI runs. `make test-nightly` is everything.
# `make dist` makes a release's files in dist/; `make dist DIST=--kind=cpu` some of them (tools/dist.sh).
# `make test REQUIRE=mpi,slurm` fails where a test would be skipped for want of these.
.PHONY: demo test test-all test-nightly setup lint native stubs bench gpu docs dist clean

demo: ; tools/demo.sh
test: ; tools/test.sh $(if $(REQUIRE),--require=$(REQUIRE))
test-all: ; tools/test.sh --all $(if $(REQUIRE),--require=$(REQUIRE))
test-nightly: ; tools/test.sh --nightly $(if $(REQUIRE),--require=$(REQUIRE))
setup: ; tools/setup.sh dev
lint: setup ; tools/lint.sh
native: setup ; tools/native.sh
stubs: setup ; tools/check_stubs.sh --write
bench: setup ; .venv/bin/python benchmarks/replay.py
gpu: ; tests/gpu/run.sh
docs: setup ; .venv/bin/python -W error -m pdoc -d google gear gear.distributed -o build/docs
dist: ; tools/dist.sh $(DIST)
clean: ; rm -rf build dist .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
