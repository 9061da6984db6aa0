// What pages draw in two and in three dimensions: `make.sh` bundles it.
var Plotly = require("plotly.js/lib/core");
Plotly.register([
  require("plotly.js/lib/bar"), require("plotly.js/lib/box"), require("plotly.js/lib/contour"),
  require("plotly.js/lib/heatmap"), require("plotly.js/lib/histogram"), require("plotly.js/lib/histogram2d"),
  require("plotly.js/lib/image"), require("plotly.js/lib/pie"), require("plotly.js/lib/violin"),
  require("plotly.js/lib/isosurface"), require("plotly.js/lib/mesh3d"), require("plotly.js/lib/scatter3d"),
  require("plotly.js/lib/surface"), require("plotly.js/lib/volume"),
]);
module.exports = Plotly;
