// Figures take the colours of the page, are drawn to size when what hides them is opened, and print in full.
(() => {
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const paint = () => {
    const ink = colour("--ink"), line = colour("--line"), paper = colour("--paper");
    for (const plot of document.querySelectorAll(".js-plotly-plot")) {
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
  addEventListener("load", paint);
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", paint);
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(each => { each.open = true; }));
  document.addEventListener("toggle", event => {
    if (event.target.open)
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
