#!/usr/bin/env bash
# Reads out of a log why its last command failed, and what to try. Sourced by build.sh.

# reason, what to try, pattern (extended regular expression); the first that matches counts.
causes=(
  'no space is left on the disk' 'free some space (df -h names the full file system), then repeat with --resume'
  'No space left on device|Disk quota exceeded|database or disk is full'
  'the file system is read-only' 'choose a --prefix that can be written'
  'Read-only file system'
  'the network does not answer' 'set proxy or pip_index in the site file, or wheelhouse to a folder with the packages, then repeat with --resume'
  'Max retries exceeded|NewConnectionError|Connection refused|Temporary failure in name resolution|Name or service not known|ConnectTimeout|Network is unreachable|ProxyError|No route to host'
  'a package is not available' 'add it to the wheelhouse, or correct pip_index in the site file, then repeat with --resume; with another torch_index the build starts afresh'
  'No matching distribution found|Could not find a version that satisfies|conflicting dependencies'
  'the compiler was killed, probably because memory ran out' 'set jobs = 1 in the site file, or build on a node with more memory'
  'Killed signal terminated program|: Killed$|c\+\+: fatal error: Killed'
  'this CUDA does not know one of cuda_architectures' 'remove that one from cuda_architectures in the site file (nvcc --list-gpu-arch shows what it knows)'
  "Unsupported gpu architecture|Value '.*' is not defined for option 'gpu-architecture'"
  'the host compiler is too new for this CUDA' 'set cxx in the site file to an older compiler'
  'unsupported GNU version'
)

# What a name without an address gives, and what pip says with it where the name is its index's.
no_address='Temporary failure in name resolution|Name or service not known'
of_pip='Max retries exceeded|NewConnectionError'

# The output of the last command that was run.
last_output() { awk '/^\+ /{text = ""} {text = text $0 "\n"} END {printf "%s", text}' "$1"; }

diagnose() { # log -> "reason<tab>what to try", or status 1
  local output i place
  for place in "$BUILD" "$CACHE" "${TMPDIR:-/tmp}"; do
    if [ "$(room_mib "$place")" -lt 2 ]; then
      printf '%s\t%s' "no space is left on the disk of $place" "${causes[1]}"
      return 0
    fi
  done
  output=$(last_output "$1")
  for ((i = 0; i < ${#causes[@]}; i += 3)); do
    if grep -qE -e "${causes[i + 2]}" <<<"$output"; then
      if grep -qE "$no_address" <<<"$output" && ! grep -qE "$of_pip" <<<"$output" && ! getent ahosts "$(hostname)" >/dev/null; then
        printf '%s\t%s' "this machine's own name, $(hostname), has no address" \
          'give it one in /etc/hosts or in the DNS, then repeat with --resume'
        return 0
      fi
      printf '%s\t%s' "${causes[i]}" "${causes[i + 1]}"
      return 0
    fi
  done
  return 1
}

# "line N: text" of the line that says most about the failure of the last command.
telling_line() { # log
  awk '
    /^\+ / {best = 0; last = NR; text = $0; next}
    NF {last = NR; text = $0}
    /([Ee]rror|ERROR|fatal|FATAL|No space left|not found|No such file|cannot|Cannot|undefined reference|Killed)/ && !best {
      best = NR; line = $0
    }
    END {if (best) {last = best; text = line}; printf "line %d: %s", last, substr(text, 1, 200)}' "$1"
}

# Free space at the nearest existing folder of PATH, in MiB.
room_mib() { # path
  local place=$1
  while [ ! -d "$place" ]; do place=$(dirname "$place"); done
  df -Pm -- "$place" | awk 'NR == 2 {print $4}'
}
