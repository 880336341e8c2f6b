# The whole workflow. Every target does its own set-up, so `make demo` in a fresh clone is enough.
.DEFAULT_GOAL := help
.PHONY: help venv demo test test-slow lint types layers check format bench bench-local bench-operator docs crds train results results-own results-gpu results-papers inspectors queue-policies study-hpc windows-hpc results-hpc clean

PY := .venv/bin/python
# Workers of the test run; WITHOUT_TORCH=1 leaves out the [training] extra, and its tests are then skipped.
WORKERS ?= 2
TEST_EXTRAS := $(if $(WITHOUT_TORCH),dev,dev,training)
PYTEST := $(PY) -m pytest -q -n $(WORKERS) --dist loadfile --benchmark-disable

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: ## .venv with everything that developing needs
	@scripts/bootstrap $(TEST_EXTRAS)

# What `make results` asks of the shipped model.
EVALUATE := $(PY) -m fermata.cli evaluate default
SOME := syn_80,norm50,norm200,express_k2,express_k2_80,k8s_poisson
MIXES := syn_80,norm50,norm200,express_k2,express_k2_80
WEIGHED := norm200,express_k2,k8s_poisson,k8s_cron,dag_pods
DAGS := dag_pods,dag_wide,dag_tasks
LARGER := syn_80,norm50,norm200,express_k2,k8s_poisson,k8s_cron,dag_pods,dag_wide

demo: ## Three pools side by side on an embedded control plane, in under two minutes
	@scripts/bootstrap operator,sim
	@$(PY) -m fermata.cli demo $(DEMO_ARGS)

test: ## All tests but the slow ones
	@scripts/bootstrap $(TEST_EXTRAS)
	@$(PYTEST) -m "not slow"

test-slow: ## All tests
	@scripts/bootstrap $(TEST_EXTRAS)
	@$(PYTEST)

lint: ## Style and formatting
	@scripts/bootstrap dev
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

types: ## mypy --strict
	@scripts/bootstrap dev
	@$(PY) -m mypy

layers: ## Who may import whom
	@scripts/bootstrap dev
	@.venv/bin/lint-imports

check: lint types layers ## lint, types and layers

format: ## Put the code into the one format
	@scripts/bootstrap dev
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

bench: ## Measure, on this machine
	@scripts/bootstrap dev
	@$(PY) -m pytest -q tests/bench --benchmark-only

bench-operator: ## Measure the operator, on an embedded control plane or (BENCH_ARGS="--kubeconfig FILE") any cluster
	@scripts/bootstrap operator,sim
	@$(PY) scripts/bench_operator.py $(BENCH_ARGS)

bench-local: ## Measure `fermata local up`: start, requests a second, memory with 10,000 pods
	@scripts/bootstrap sim,operator
	@$(PY) scripts/bench_local.py $(BENCH_ARGS)

docs: ## Generated pages, then the site, in site/
	@scripts/bootstrap dev,docs
	@$(PY) scripts/docs.py
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet

crds: ## Custom resource definitions, from the models, into deploy/crds/
	@scripts/bootstrap operator,sim
	@$(PY) -m fermata.operator.crds
	@$(PY) -m fermata.operator.crds deploy/helm/fermata/crds

train: ## Train the shipped model's configuration and export it, in runs/; TPCH=DIR: and the allocation on Spark beside it
	@scripts/bootstrap training
	@$(PY) -m fermata.cli train --config default --device cpu --out runs/default
	@$(PY) -m fermata.cli export-onnx runs/default --out runs/default/policy.onnx
ifdef TPCH
	@$(PY) -m fermata.cli train --config spark-default --tpch-dir $(TPCH) --out runs/spark
	@$(PY) -m fermata.cli export-onnx runs/spark --beside runs/default/policy.onnx --out runs/default/combined.onnx
endif

HPC := runs/hpc
LUBLIN_MODEL := $(HPC)/lublin-model.swf.xz
$(LUBLIN_MODEL):
	@mkdir -p $(HPC)
	@$(PY) -m fermata.cli hpc generate --jobs 120000 --seed 701 --load 1.06 --out $@

results: ## The shipped model's tables in docs/results.md: benchmark, wrong estimates, other clusters, caps
	@scripts/bootstrap dev
	$(EVALUATE) --scenarios all
	$(EVALUATE) --scenarios all --seeds 8000-8099
	$(PY) scripts/best_known.py
	$(PY) scripts/random_workloads.py
	$(PY) scripts/random_workloads.py --first 1500
	$(PY) scripts/random_workloads_paused.py --first 1500
	$(PY) scripts/random_workloads.py --slots --first 6000
	$(PY) scripts/random_workloads.py --slots --first 7524 --workloads 500 --most-executors 128
	$(PY) scripts/random_workloads.py fifo --slots
	$(PY) scripts/random_workloads_paused.py --slots
	$(PY) scripts/random_workloads_paused.py --slots --seeds 620000-620009 7440 6669 7400 6888 7296 6204 7476 6268 6352
	$(EVALUATE) --scenarios $(SOME),express_k4,k8s_cron --noise class-flips=0.2
	$(EVALUATE) --scenarios $(SOME) --noise lognormal=0.3
	$(EVALUATE) --scenarios $(SOME) --noise lognormal=0.3 --corrections none
	$(EVALUATE) --scenarios $(SOME) --noise lognormal=0.7
	$(EVALUATE) --scenarios $(SOME) --noise lognormal=0.7 --corrections none
	$(EVALUATE) --scenarios $(SOME) --noise lognormal=0.7 --corrections all
	$(EVALUATE) --scenarios $(SOME) --noise lognormal=1.2
	$(EVALUATE) --scenarios $(SOME),k8s_cron,express_k4,$(DAGS) --noise lognormal=0.7 --seeds 8000-8099
	$(EVALUATE) --scenarios $(SOME) --noise class-means
	$(EVALUATE) --scenarios $(SOME) --set load=0.3
	$(EVALUATE) --scenarios $(SOME) --set load=0.9
	$(EVALUATE) --scenarios $(SOME) --set load=1.6 --episode-jobs 400
	$(EVALUATE) --scenarios $(SOME) --set executors=3
	$(EVALUATE) --scenarios $(SOME) --set executors=8
	$(EVALUATE) --scenarios $(MIXES) --set long_share=0.03
	$(EVALUATE) --scenarios $(MIXES) --set long_share=0.3
	$(EVALUATE) --scenarios $(MIXES) --set long_s=1000
	$(EVALUATE) --scenarios $(MIXES) --later long_share=0.3
	$(EVALUATE) --scenarios $(MIXES) --later long_s=1000
	$(EVALUATE) --scenarios $(SOME) --max-hold 60 --max-wait 300
	for weights in long=2 long=4 long=16 any=4; do \
	  $(EVALUATE) --scenarios $(WEIGHED) --weights $$weights || exit 1; done
	$(EVALUATE) --scenarios $(DAGS) --noise exact
	$(EVALUATE) --scenarios $(DAGS) --noise class-flips=0.2
	$(EVALUATE) --scenarios $(DAGS) --noise lognormal=0.7
	$(EVALUATE) --scenarios $(DAGS) --noise lognormal=0.7 --corrections none
	$(EVALUATE) --scenarios $(DAGS) --noise lognormal=0.7 --corrections all
	$(EVALUATE) --scenarios $(DAGS) --noise lognormal=1.2
	$(EVALUATE) --scenarios $(DAGS) --set load=0.9
	for executors in 12 20 40; do for load in 0.7 0.9; do \
	  $(EVALUATE) --scenarios $(LARGER) --set executors=$$executors --set load=$$load || exit 1; done; done

results-own: ## What random workloads with tasks of several executors teach themselves, in docs/results.md; an hour
	@scripts/bootstrap dev,training
	$(PY) scripts/random_workloads_own.py
	$(PY) scripts/random_workloads_own.py --seeds 620000-620019 7440 6669 7400 6888 7296 6204 7476 6268 6352

results-gpu: ## The jobs of a real GPU cluster, in docs/results.md, which says where PHILLY=philly.csv is; some minutes
	@scripts/bootstrap dev
	$(PY) scripts/gpu_jobs.py $(PHILLY)
	$(PY) scripts/gpu_jobs.py $(PHILLY) --load 0.7
	$(PY) scripts/gpu_jobs.py $(PHILLY) --backfill

PAPERS := runs/papers
ABLATE := $(PY) -m fermata.cli ablate --seeds 2000-2007 --processes 1 --json
TRAINING_SEEDS ?= 1-5

results-papers: ## The idle-slots papers' tables and figures, in docs/results-papers.md; trains sixty agents
	@scripts/bootstrap dev,training
	@mkdir -p $(PAPERS)
	@$(ABLATE) --training-seeds $(TRAINING_SEEDS) --config graph-paper --scenarios syn_60,syn_80 --episode-jobs 800 \
	  --out $(PAPERS)/synthetic > $(PAPERS)/synthetic.json
	@$(ABLATE) --training-seeds $(TRAINING_SEEDS) --config graph-paper-mixed --scenarios mixed@0.6,mixed@0.8 \
	  --episode-jobs 300 --out $(PAPERS)/mixed > $(PAPERS)/mixed.json
	@$(PY) scripts/results_papers.py $(PAPERS)/synthetic.json $(PAPERS)/mixed.json

SEARCH := $(PY) -m fermata.cli hpc train --log $(LUBLIN_MODEL) --part all --estimates exact --method search
# An inspector of starts, in steps of one to three minutes: what was found is searched around with less noise. The last
# two are settings: the first waits longer.
STARTS := $(SEARCH) --policy saf+easy/skip
FINE := --set sigma=0.03 --set rate=0.01 --set pairs=16

inspectors: ## Train the inspectors of docs/results-hpc.md; DATA=DIR holds lublin_256.swf.xz; goes on where it was ended
	@scripts/bootstrap training
	@$(MAKE) --no-print-directory $(LUBLIN_MODEL)
	@mkdir -p $(HPC)/steps
	@$(STARTS) --set features=20 --set wait_price=6 --set generations=90 --set rate=0.02 --set pairs=12 \
	  --set sequences=60 --out $(HPC)/steps/first.onnx
	@$(STARTS) $(FINE) --set features=20 --set wait_price=9 --set generations=60 --set sequences=100 \
	  --set 'start="$(HPC)/steps/first.onnx"' --out $(HPC)/steps/second.onnx
	@$(STARTS) $(FINE) --set wait_price=6 --set generations=40 --set sequences=100 --set judged=800 \
	  --set 'start="$(HPC)/steps/second.onnx"' --out $(HPC)/steps/third.onnx
	@$(STARTS) $(FINE) --set wait_price=5 --set generations=30 --set sequences=120 --set judged=1000 --set seed=1 \
	  --set 'start="$(HPC)/steps/third.onnx"' --out $(HPC)/steps/fourth.onnx
	@$(STARTS) $(FINE) --set wait_price=6 --set generations=30 --set sequences=120 --set judged=1000 --set seed=2 \
	  --set 'start="$(HPC)/steps/fourth.onnx"' --out $(HPC)/search-saf-easy-patient.onnx
	@$(STARTS) $(FINE) --set wait_price=7 --set generations=20 --set sequences=150 --set judged=1000 --set seed=3 \
	  --set 'start="$(HPC)/search-saf-easy-patient.onnx"' --out $(HPC)/search-saf-easy.onnx
	@$(SEARCH) --policy sjf --set features=20 --set 'scope="picks"' --set max_rejections=300 --set max_wait_ratio=3.5 \
	  --set wait_price=0.5 --set generations=60 --set rate=0.02 --out $(HPC)/search-sjf.onnx
	@$(PY) -m fermata.cli hpc train --log $(DATA)/lublin_256.swf.xz --estimates exact --method ppo --policy sjf \
	  --cleaning schedinspector --out $(HPC)/ppo-sjf.onnx

QUEUE_MODEL := $(PY) -m fermata.cli hpc train --method queue
QUEUE_LUBLIN := $(QUEUE_MODEL) --estimates exact --part all --log $(LUBLIN_MODEL)
# Two settings a log; on its first fifth the one waits about as long as SAF EASY, the other longer.
NOISY_FROM_EVEN := $(QUEUE_MODEL) --estimates user --cleaning schedinspector --set 'estimates=["lognormal:0.7"]' \
  --set 'start="queue-even"'
QUEUE_NOISY := $(NOISY_FROM_EVEN) --set rate=0.03 --set generations=20
# Small steps from a policy for users' estimates: larger ones unlearn it on a fifth of a log with little load.
QUEUE_USER := $(QUEUE_MODEL) --estimates user --cleaning schedinspector --set 'start="queue-robust"' \
  --set wait_price=0.5 --set sigma=0.05 --set rate=0.01 --set generations=20
QUEUE_SDSC := --set rate=0.03 --set wait_price=2 --set generations=40 --set 'start="queue-prompt"' --cleaning schedinspector
FINER := --set rate=0.02 --set sequences=150 --set pairs=16
# The first fifth of SDSC-SP2 has little load, and how long a policy waits there says little of more: jobs take a fifth
# longer.
QUEUE_GROWN := $(NOISY_FROM_EVEN) $(FINER) --set generations=30 --stretch 1.2 --log $(DATA)/SDSC-SP2-recon.swf.xz
# Slowdown alone, or nearly: wait has hardly a price.
QUEUE_SLOWDOWN := $(QUEUE_MODEL) --estimates exact --cleaning schedinspector --set 'start="queue-patient"' \
  --set rate=0.03 --set generations=60

queue-policies: ## Train the policies over the queue: what ships, in runs/hpc/shipped, and others on two logs in DATA; goes on where it was ended
	@scripts/bootstrap training
	@mkdir -p $(HPC)/shipped $(HPC)/steps
	@$(MAKE) --no-print-directory $(LUBLIN_MODEL)
	@$(QUEUE_LUBLIN) --set wait_price=4 --set generations=70 --out $(HPC)/shipped/begin.onnx
	@$(QUEUE_LUBLIN) $(FINER) --set wait_price=6 --set generations=60 --set 'start="$(HPC)/shipped/begin.onnx"' \
	  --out $(HPC)/shipped/queue-prompt.onnx
	@$(QUEUE_LUBLIN) $(FINER) --set wait_price=3 --set generations=40 --set 'start="$(HPC)/shipped/queue-prompt.onnx"' \
	  --out $(HPC)/shipped/queue-even.onnx
	@$(QUEUE_LUBLIN) --set rate=0.03 --set wait_price=30 --set jobs=1000 --set sequences=25 --set judged=80 \
	  --set generations=60 --set 'start="$(HPC)/shipped/queue-prompt.onnx"' --out $(HPC)/shipped/queue-swift.onnx
	@$(QUEUE_LUBLIN) --set wait_price=100 --set idle_price=1 --set jobs=1000 --set sequences=60 --set pairs=16 \
	  --set sigma=0.2 --set generations=150 --set 'yardstick="sjf/skip"' --set 'start="sjf"' \
	  --out $(HPC)/shipped/queue-full.onnx
	@$(QUEUE_LUBLIN) --set rate=0.03 --set wait_price=1.5 --set generations=40 \
	  --set 'start="$(HPC)/shipped/begin.onnx"' --out $(HPC)/shipped/queue-patient.onnx
	@$(QUEUE_LUBLIN) --set rate=0.03 --set wait_price=4 --set idle_price=0.6 --set generations=40 \
	  --set 'start="$(HPC)/shipped/queue-prompt.onnx"' --out $(HPC)/shipped/queue-busy.onnx
	@$(QUEUE_LUBLIN) --set rate=0.03 --set wait_price=8 --set 'estimates=["accuracy"]' --set generations=40 \
	  --set 'start="$(HPC)/shipped/queue-swift.onnx"' --out $(HPC)/shipped/queue-robust.onnx
	@$(QUEUE_LUBLIN) --set rate=0.03 --set wait_price=4 --set 'estimates=["lognormal:0.7","accuracy"]' \
	  --set generations=40 --set 'start="$(HPC)/shipped/queue-prompt.onnx"' --out $(HPC)/queue-lublin-model-noisy.onnx
	@$(QUEUE_MODEL) --estimates exact $(QUEUE_SDSC) --log $(DATA)/SDSC-SP2-recon.swf.xz \
	  --out $(HPC)/queue-SDSC-SP2-recon.onnx
	@$(QUEUE_USER) --log $(DATA)/SDSC-SP2-recon.swf.xz --out $(HPC)/queue-SDSC-SP2-recon-user.onnx
	@$(QUEUE_MODEL) --estimates exact --set rate=0.03 --set wait_price=0.5 --set generations=30 --set 'start="queue-even"' \
	  --log $(DATA)/CTC-SP2-recon.swf.xz --cleaning schedinspector --out $(HPC)/queue-CTC-SP2-recon.onnx
	@$(QUEUE_GROWN) --set wait_price=1.5 --out $(HPC)/queue-SDSC-SP2-recon-noisy.onnx
	@$(QUEUE_GROWN) --set wait_price=0.7 --out $(HPC)/queue-SDSC-SP2-recon-noisy-patient.onnx
	@$(QUEUE_NOISY) --set wait_price=0.5 --log $(DATA)/CTC-SP2-recon.swf.xz --out $(HPC)/queue-CTC-SP2-recon-noisy.onnx
	@$(QUEUE_NOISY) --set wait_price=0.25 --log $(DATA)/CTC-SP2-recon.swf.xz \
	  --out $(HPC)/queue-CTC-SP2-recon-noisy-patient.onnx
	@$(QUEUE_SLOWDOWN) --set wait_price=0.02 --log $(DATA)/SDSC-SP2-recon.swf.xz \
	  --out $(HPC)/queue-SDSC-SP2-recon-slowdown.onnx
	@$(QUEUE_SLOWDOWN) --set wait_price=0.001 --set sequences=150 --set pairs=16 --log $(DATA)/CTC-SP2-recon.swf.xz \
	  --out $(HPC)/queue-CTC-SP2-recon-slowdown.onnx

study-hpc: ## Train the inspectors of SchedInspector's tables and figures; goes on where it was ended
	@scripts/bootstrap training
	@$(PY) -m fermata.cli hpc study --data $(DATA) --out $(HPC)/study

windows-hpc: ## Train and compare Deep Back-Filling's agents; goes on where it was ended
	@scripts/bootstrap training
	@$(PY) -m fermata.cli hpc windows --out $(HPC)/windows --log $(DATA)/lublin_256.swf.xz

# What docs/hpc.md has of six hundred sequences.
SIX_HUNDRED := $(PY) -m fermata.cli hpc evaluate --cleaning schedinspector --estimates exact --sequences 600 --seed 77 \
  --policy saf+easy/skip --policy queue-prompt --policy queue-busy

results-hpc: inspectors queue-policies study-hpc windows-hpc ## Measure docs/results-hpc.md anew; DATA=DIR holds the three logs
	@$(PY) -m fermata.cli hpc report --data $(DATA) --inspectors $(HPC) --study $(HPC)/study \
	  --windows $(HPC)/windows --out docs/results-hpc.md
	@$(SIX_HUNDRED) --log $(DATA)/lublin_256.swf.xz --policy saf/skip+reserve:over_s=15600,share=0.2
	@$(SIX_HUNDRED) --log $(DATA)/SDSC-SP2-recon.swf.xz --policy saf+easy/skip+reserve:over_s=8640,share=0.1
	@$(SIX_HUNDRED) --log $(DATA)/CTC-SP2-recon.swf.xz --policy p2q+easy/skip+reserve:over_s=1100,share=0.1
	@$(SIX_HUNDRED) --log $(DATA)/SDSC-SP2-recon.swf.xz --estimates user \
	  --policy saf+easy/skip+reserve:over_s=10800,share=0.05 --policy queue-robust --policy queue-swift

clean: ## Everything that can be made again
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks .import_linter_cache .fermata build dist site report.html
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
