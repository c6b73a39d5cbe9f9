# Sourced by ./run and ./test: installs what the build needs from Debian and builds one preset.

# need KIND...: installs the packages of these kinds (see cmake/packages.txt) that are missing. Without root it prints
# the one line that would, and stops.
need() {
  local kinds wanted=() installed missing=() package command
  kinds="^($(IFS='|'; echo "$*")) "
  while read -r _ package command; do
    if [ -n "$command" ] && command -v "$command" >/dev/null; then continue; fi
    wanted+=("$package")
  done < <(grep -E "$kinds" "$root/cmake/packages.txt")
  # All at once: this runs at every start.
  installed=$(dpkg-query -W -f='${Package}: ${Status}\n' "${wanted[@]}" 2>/dev/null || true)
  for package in "${wanted[@]}"; do
    [[ $'\n'$installed$'\n' == *$'\n'"$package: install ok installed"$'\n'* ]] || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then return 0; fi
  if ! command -v apt-get >/dev/null; then
    echo "attend: these packages are missing and this is no Debian system: ${missing[*]}" >&2
    echo "attend: install their equivalents and call cmake yourself (see README.md, \"Building\")" >&2
    exit 1
  fi
  if [ "$(id -u)" -ne 0 ]; then
    echo "attend: some packages are missing. As root, run:" >&2
    echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  echo "attend: installing ${missing[*]}" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1 ||
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2; } ||
    { echo "attend: apt-get could not install: ${missing[*]}" >&2; exit 1; }
}

# build PRESET [TARGET...]: configures once and builds what changed; silent when nothing did.
build() {
  local preset=$1 log
  shift
  log=$root/build/$preset.log
  mkdir -p "$root/build"
  if [ ! -f "$root/build/$preset/build.ninja" ]; then
    echo "attend: configuring build/$preset" >&2
    (cd "$root" && cmake --preset "$preset") >"$log" 2>&1 ||
      { cat "$log" >&2; echo "attend: configuring failed; the log is build/$preset.log" >&2; exit 1; }
  fi
  if ninja -C "$root/build/$preset" -n "$@" 2>/dev/null | grep -q 'no work to do'; then return 0; fi
  if [ -f "$root/build/$preset/.built" ]; then echo "attend: building what changed" >&2
  else echo "attend: building, which takes a few minutes the first time" >&2; fi
  if [ -t 2 ]; then
    NINJA_STATUS='[%f/%t, %es] ' ninja -C "$root/build/$preset" "$@" >&2 ||
      { echo "attend: the build failed" >&2; exit 1; }
  else
    ninja -C "$root/build/$preset" "$@" >"$log" 2>&1 ||
      { tail -n 60 "$log" >&2; echo "attend: the build failed; the whole log is build/$preset.log" >&2; exit 1; }
  fi
  touch "$root/build/$preset/.built"
}
