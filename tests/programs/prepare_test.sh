#!/usr/bin/env bash
# scripts/prepare.sh on a small project: it builds at first, is silent when nothing changed, and builds again when a source
# file was changed, added or removed. It asks for packages only where they are missing.
# prepare_test.sh SOURCE_FOLDER
set -euo pipefail
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
source "$1/scripts/prepare.sh"

mkdir "$root/parts"
cp "$1/cmake/files.cmake" "$root"
cat >"$root/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES CXX)
include(files.cmake)
attend_glob(sources ${PROJECT_SOURCE_DIR}/parts *.cc)
add_executable(small ${sources})
END
cat >"$root/CMakePresets.json" <<'END'
{"version": 6, "configurePresets": [{"name": "small", "generator": "Ninja", "binaryDir": "${sourceDir}/build/small"}]}
END

# expect SAID OBJECTS: what `build` says, line by line, and the object files of the program.
expect() {
  local said objects
  said=$(build small small 2>&1)
  objects=$(ninja -C "$root/build/small" -t inputs small | grep -o '[a-z]*\.cc\.o' | sort | xargs)
  if [ "$said" != "$1" ] || [ "$objects" != "$2" ]; then
    echo "said: $said" "made of: $objects" "expected: $1" "made of: $2" >&2
    exit 1
  fi
}

echo 'int main() {}' >"$root/parts/main.cc"
expect $'attend: configuring build/small\nattend: building, which takes a few minutes the first time' 'main.cc.o'
expect '' 'main.cc.o'
echo 'int one;' >"$root/parts/one.cc"
expect 'attend: building what changed' 'main.cc.o one.cc.o'
expect '' 'main.cc.o one.cc.o'
echo 'int two;' >"$root/parts/one.cc"
expect 'attend: building what changed' 'main.cc.o one.cc.o'
expect '' 'main.cc.o one.cc.o'
rm "$root/parts/one.cc"
expect 'attend: building what changed' 'main.cc.o'
expect '' 'main.cc.o'

# Packages: silent where all are there, else the line that installs the missing ones, for those who are not root.
if command -v dpkg-query >/dev/null; then
  mkdir "$root/cmake"
  printf '%s\n' '# kinds' 'build coreutils' 'build no-such-package bash' 'test no-such-test-package' >"$root/cmake/packages.txt"
  id() { echo 1000; }
  [ -z "$(need build 2>&1)" ] || { echo "asks for what is there" >&2; exit 1; }
  said=$( (need build test) 2>&1) && { echo "finds what is missing" >&2; exit 1; }
  [[ $said == *'apt-get install --no-install-recommends no-such-test-package' ]] || { echo "said: $said" >&2; exit 1; }
fi
