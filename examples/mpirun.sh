#!/usr/bin/env bash
# Trains with one rank per host, on all cores of each: examples/mpirun.sh HOST,HOST,… DATA RUN [FLAG…]
#
# Flags are passed to `halograph train`. DATA is a dataset that every host sees, or the directory that `halograph partition
# DATASET -k HOSTS -o DATA` wrote; a host then needs only the part of its rank (part-0000 on the first host, and so on).
# RUN is the run directory; if it exists, it is resumed.
# HALOGRAPH is the binary on the hosts, built with `cargo build --release --features mpi`.
set -euo pipefail
[ $# -ge 3 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
hosts=$1 data=$2 run=$3
shift 3
count=$(tr ',' '\n' <<<"$hosts" | wc -l)

# No binding, so that the threads of a rank use all cores. 60 s to finish an epoch and save after SIGTERM or Ctrl-C.
exec mpirun -n "$count" --host "$hosts" --map-by node --bind-to none --mca odls_base_sigkill_timeout 60 \
  "${HALOGRAPH:-halograph}" train "$data" --out "$run" --resume "$@"
