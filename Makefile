PYTHON ?= python3

.PHONY: help verify verify-iso test build check lint prove constraints clean

help: ## show this
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1	\2/p' Makefile | expand -t 20

verify: ## prove the recipes on PYTHON (default python3); needs nothing else
	$(PYTHON) scripts/verify-recipes.py

verify-iso: ## prove the chapter iso with chromadb and faiss, on each Python that has wheels of them
	scripts/verify-iso.sh

test: .venv/installed ## run the tests
	.venv/bin/python -m pytest -q tests

build: ## write what is generated from the recipes: Markdown, and the skills' copies
	$(PYTHON) scripts/build.py

check: lint ## what CI runs beside the tests: every Python, load, mutations, style and types
	$(PYTHON) scripts/build.py --check
	scripts/pythons.sh --install
	$(PYTHON) scripts/prove.py --once
	scripts/verify-iso.sh --ends

lint: .venv/installed ## style and types
	.venv/bin/python -m ruff check .
	.venv/bin/python -m ruff format --check .
	.venv/bin/python -m mypy
	.venv/bin/python -m mypy --allow-untyped-defs --allow-incomplete-defs --allow-untyped-calls --no-check-untyped-defs --allow-any-generics --disable-error-code var-annotated --disable-error-code attr-defined recipes

prove: .venv/installed verify-iso ## what takes long: repetitions, load, soaks, all versions
	.venv/bin/python scripts/prove.py

constraints: ## write constraints.txt anew
	scripts/constraints.sh

clean: ## remove what the other targets made
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache build site
	find . -name __pycache__ -prune -exec rm -rf {} +

.venv/installed: requirements.txt constraints.txt
	scripts/venv.sh '$(PYTHON)' .venv requirements.txt --constraint constraints.txt
	@touch .venv/installed
