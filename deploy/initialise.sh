#!/bin/sh
# Prepare Airflow before it starts. It can be repeated, and runs at every start: this also migrates the metadata to a new
# version, and creates the pools of new shards.
set -eu

airflow db migrate
sweepflow airflow pools
