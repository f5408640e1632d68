#!/usr/bin/env bash
# One rank a host, all cores of each: examples/mpirun.sh HOST,HOST,… DATA RUN [FLAG…]
#
# DATA is a dataset that every host sees, or the folder that `halograph partition DATASET -k HOSTS -o DATA` made, of which
# a host needs the part of its rank (part-0000 on the first host, and so on). RUN is continued if it is there.
# HALOGRAPH names the binary on the hosts, built with `cargo build --release --features mpi`.
set -euo pipefail
[ $# -ge 3 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
hosts=$1 data=$2 run=$3
shift 3
count=$(tr ',' '\n' <<<"$hosts" | wc -l)

# No binding: a rank's threads use all cores. A minute to end an epoch and save when it is stopped.
exec mpirun -n "$count" --host "$hosts" --map-by node --bind-to none --mca odls_base_sigkill_timeout 60 \
  "${HALOGRAPH:-halograph}" train "$data" --out "$run" --resume "$@"
