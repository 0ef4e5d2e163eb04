#!/bin/sh
# What Airflow needs before it starts. Safe to repeat, and repeated at every start: it is also how a new version brings
# the metadata up, and how new shards get their pools.
set -eu

airflow db migrate
sweepflow airflow pools
