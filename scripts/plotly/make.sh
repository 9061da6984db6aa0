#!/bin/sh
# src/intertwine/pages/vendor/plotly-*.min.js.gz for the plotly.js that plotly.py carries (needs npm and its registry):
#   scripts/plotly/make.sh "$(python -c 'import plotly.offline as p; print(p.get_plotlyjs_version())')"
# cartesian is plotly's own bundle of two dimensions; solid is ours, of two and three (entry.js).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
vendor=$here/../../src/intertwine/pages/vendor
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/entry.js" "$here/build.js" "$work"
cd "$work"
npm init -y > /dev/null
npm install --silent --ignore-scripts "plotly.js@$1" "plotly.js-cartesian-dist-min@$1" esbuild esbuild-plugin-environment \
    esbuild-plugin-glsl esbuild-plugin-inline-css stream-browserify buffer
node build.js
gzip -9 -n -c plotly-solid.min.js > "$vendor/plotly-solid.min.js.gz"
gzip -9 -n -c node_modules/plotly.js-cartesian-dist-min/plotly-cartesian.min.js > "$vendor/plotly-cartesian.min.js.gz"
