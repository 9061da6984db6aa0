// The settings of plotly.js's own custom-bundle task.
const { environmentPlugin } = require("esbuild-plugin-environment");
const { glsl } = require("esbuild-plugin-glsl");
const inlineCss = require("esbuild-plugin-inline-css");
const { version } = require("plotly.js/package.json");

require("esbuild").build({
  entryPoints: ["entry.js"], outfile: "plotly-solid.min.js", format: "iife", globalName: "Plotly",
  bundle: true, minify: true, target: "es2016", logLevel: "warning",
  banner: { js: `/**\n* plotly.js (solid - minified) v${version}\n* Copyright 2012-2026, Plotly, Inc.\n`
    + "* All rights reserved.\n* Licensed under the MIT license\n*/" },
  plugins: [inlineCss(), glsl({ minify: true }), environmentPlugin({ NODE_DEBUG: false })],
  alias: { regl: "@plotly/regl", stream: "stream-browserify" },
  define: { global: "window", "define.amd": "false" },
}).catch(() => process.exit(1));
