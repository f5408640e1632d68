#!/usr/bin/env bash
# One rank per host, on all its cores: examples/mpirun.sh HOST,HOST,… DATA RUN [FLAG…]
#
# Flags go to `halograph train`. DATA is a dataset that every host sees, or the folder of shards that `halograph partition
# DATASET -k HOSTS -o DATA` wrote; a host needs only the shard of its rank (part-0000 on the first host, and so on). An
# existing RUN is resumed. HALOGRAPH names the binary on the hosts, built with `cargo build --release --features mpi`.
set -euo pipefail
[ $# -ge 3 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
hosts=$1 data=$2 run=$3
shift 3
count=$(tr ',' '\n' <<<"$hosts" | wc -l)

# No binding: the threads of a rank use all cores. On a signal, ranks get a minute to finish an epoch and save.
exec mpirun -n "$count" --host "$hosts" --map-by node --bind-to none --mca odls_base_sigkill_timeout 60 \
  "${HALOGRAPH:-halograph}" train "$data" --out "$run" --resume "$@"
