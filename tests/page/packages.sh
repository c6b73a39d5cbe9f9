#!/usr/bin/env bash
# Fetches the packages that package-lock.json names, unless they are there. Their install scripts are not run.
set -euo pipefail
cd "$1"
if [ node_modules/.package-lock.json -nt package-lock.json ]; then exit 0; fi
npm ci --ignore-scripts --no-audit --no-fund
