# Thin on purpose: each target is a documented command, so that a system without make misses nothing.
# Every target but help first installs, which takes no time once it is done. Choose a Python with
# `make book PYTHON=python3.12`; install.py finds a new enough one by itself where python3 is old.

PYTHON ?= python3
# What install.py makes on Linux and macOS; Windows users call the commands themselves (see README).
PY = .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help install book test lab notebooks record bench
# A recipe that fails halfway must not leave a target that looks made.
.DELETE_ON_ERROR:

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' Makefile

install: # the environment that every other target runs in
	@$(PYTHON) tools/install.py

# The notebooks are committed with their outputs, so that reading needs no execution.
book: install ## render the book and print the path of its start page
	@$(PY) -m labsupport.authoring book

# Readers work on a copy, so that an update of the book never touches an answer.
lab: install ## open JupyterLab on your own copy of the exercises
	@$(PY) -m labsupport.authoring lab

# For authors: executes only what changed in code; a changed sentence executes nothing.
notebooks: install ## turn the sources in book/ into executed notebooks
	@$(PY) -m labsupport.authoring build

# One script instead of a recipe, so that it also runs without make and its last line is pytest's.
test: install ## run every check and test
	@$(PY) tools/test.py

# Needs a CUDA GPU and says so where there is none.
record: install ## measure the kernels on this machine's GPU and store the runs
	@$(PY) -m labsupport.cuda record

bench: install ## print how fast import, notebooks, book and checks are, with their targets
	@$(PY) -m benchmarks
