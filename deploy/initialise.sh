#!/bin/sh
# What must be there before anything else starts. Safe to repeat, and repeated at every start: it is also how a new
# version brings metadata and store up, and how new shards get their pools.
set -eu

airflow db migrate
sweepflow init
sweepflow airflow pools
