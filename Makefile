# The only door. `make run` and `make test` are all that a fresh machine needs.
CARGO ?= cargo
JOBS  ?= 2
# The file `make run` sends, how many paths it is sprayed over, and the loss of every link.
FILE  ?= out/verilog/card.v
PATHS ?= 4
LOSS  ?= 1%
SEED  ?= 7
# The pictures of `make headlines` that are kept.
PICTURES = incast.goodput.svg incast.queue.svg plane-outage.goodput.svg sync-messages.completions.svg all-to-all-64.completions.svg

.PHONY: help setup run test gen lint check verilog fmt nightly headlines bench-fabric clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: ## install what is missing (Debian packages)
	@.ci/setup

run: setup ## send a file (the card's own Verilog) across two simulated cards at 1 % loss
	@$(CARGO) build -q -j$(JOBS) -p nicsim -p nic-gen
	@target/debug/nic-gen verilog --out out/verilog
	@target/debug/nicsim transfer --file $(FILE) --out out/received --paths $(PATHS) --loss $(LOSS) --seed $(SEED)
	@cmp $(FILE) out/received && echo "the received file equals the sent one: $(FILE)"

test: setup check lint ## everything: generated files, format, clippy, all tests
	$(CARGO) test -q -j$(JOBS) --workspace --no-fail-fast

nightly: setup ## slow proofs: more seeds, longer runs (about half an hour)
	RUN_SLOW=1 $(CARGO) test -j$(JOBS) --workspace --no-fail-fast

headlines: setup ## run every headline plan; table in sim/nic-plan/HEADLINES.md, plots and data in out/headlines (a few minutes)
	@$(CARGO) build -q -j$(JOBS) -p nicsim
	@target/debug/nicsim fabric sim/nic-plan/plans/*.toml --plot out/headlines --markdown sim/nic-plan/HEADLINES.md; \
	status=$$?; cd out/headlines && cp $(PICTURES) ../../sim/nic-plan/pictures/ && exit $$status

bench-fabric: ## link-hops per CPU-second, 64 nodes with the full model
	$(CARGO) run --release -q -j$(JOBS) -p nic-node --example bench_model -- 16 0 12 21

lint: ## clippy over everything, every warning an error
	$(CARGO) clippy -q -j$(JOBS) --workspace --all-targets -- -D warnings

check: ## generated files are current, code is formatted
	$(CARGO) fmt --all --check
	$(CARGO) run -q -j$(JOBS) -p nic-gen -- all --check

gen: ## write hdl/nic-spec/generated from the tables
	$(CARGO) run -q -j$(JOBS) -p nic-gen -- all

verilog: ## write the card's Verilog to out/verilog
	$(CARGO) run -q -j$(JOBS) -p nic-gen -- verilog --out out/verilog

fmt: ## format the code
	$(CARGO) fmt --all

clean: ## remove what was built
	$(CARGO) clean
	rm -rf out
