// The plotting library is unpacked and every figure drawn; figures take the colours of the page, are drawn to size
// when what hides them is opened, and print in full.
(() => {
  const unpack = async packed => {
    const stream = new DecompressionStream("gzip");
    const writer = stream.writable.getWriter();
    writer.write(Uint8Array.from(atob(packed), letter => letter.charCodeAt(0)));
    writer.close();
    return new Response(stream.readable).text();
  };
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const plots = () => document.querySelectorAll(".js-plotly-plot");
  const paint = () => {
    const ink = colour("--ink"), line = colour("--line"), paper = colour("--paper");
    for (const plot of plots()) {
      const change = { paper_bgcolor: paper, plot_bgcolor: paper, "font.color": ink };
      for (const key of Object.keys(plot._fullLayout || {})) {
        if (/^[xy]axis\d*$/.test(key))
          for (const part of ["gridcolor", "zerolinecolor", "linecolor"]) change[`${key}.${part}`] = line;
        if (/^scene\d*$/.test(key))
          for (const axis of "xyz") {
            change[`${key}.${axis}axis.gridcolor`] = line;
            change[`${key}.${axis}axis.backgroundcolor`] = paper;
          }
      }
      Plotly.relayout(plot, change);
    }
  };
  // On a narrow screen the legend stands above the picture, not beside it, and margins shrink.
  const fit = (layout, width) => {
    if (width > 520) return layout;
    const legend = layout.legend || {}, margin = layout.margin || {};
    if (layout.width && layout.width <= 520) delete layout.width;
    if (legend.orientation !== "h" && layout.showlegend !== false && !/scene/.test(Object.keys(layout)))
      layout.legend = { ...legend, orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom" };
    if (!(layout.annotations || []).length)  // which may stand in the margins, as the titles of panels do
      layout.margin = { ...margin, l: Math.min(margin.l ?? 50, 50), r: Math.min(margin.r ?? 10, 10) };
    return layout;
  };
  const draw = async () => {
    const figures = [...document.querySelectorAll(".plot > script")];
    if (!window.DecompressionStream) {
      for (const each of figures) each.parentElement.textContent = "Figures need a browser of 2023 or newer.";
      return;
    }
    const library = document.createElement("script");
    library.textContent = await unpack(document.getElementById("plotly").textContent);
    document.head.append(library);
    for (const each of figures) {
      const { data, layout } = JSON.parse(each.textContent), plot = document.createElement("div");
      each.after(plot);
      await Plotly.newPlot(plot, data, fit(layout, each.parentElement.clientWidth), { displayModeBar: false, responsive: true });
    }
    paint();
    for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", paint);
  };
  window.drawn = draw();
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(each => { each.open = true; }));
  document.addEventListener("toggle", event => {
    if (event.target.open && window.Plotly)
      event.target.querySelectorAll(".js-plotly-plot").forEach(plot => Plotly.Plots.resize(plot));
  }, true);
  const show = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const folded = target && target.querySelector("details");
    if (folded) folded.open = true;
  };
  addEventListener("hashchange", show);
  addEventListener("load", show);
})();
