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
  // Colours as three numbers from 0 to 255; a canvas knows every name that CSS does.
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = name => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = "#000";
    canvas.fillStyle = name;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = colour => {
    const [r, g, b] = colour.map(c => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  // The nearest shade of a colour that stands out from the paper by 3 : 1, which is what lines and dots need.
  const readable = (name, paper, ink) => {
    const own = rgb(name), ground = rgb(paper), towards = rgb(ink);
    for (let share = 0; share <= 1; share += 0.1) {
      const mixed = own.map((c, i) => Math.round(c + share * (towards[i] - c)));
      if (contrast(mixed, ground) >= 3) return share ? `rgb(${mixed})` : name;
    }
    return name;
  };
  const paint = () => {
    const ink = colour("--ink"), line = colour("--line"), paper = colour("--paper");
    const family = getComputedStyle(document.body).fontFamily;
    for (const plot of plots()) {
      const change = { paper_bgcolor: paper, plot_bgcolor: paper, "font.color": ink, "font.family": family };
      for (const key of Object.keys(plot._fullLayout || {})) {
        if (/^[xy]axis\d*$/.test(key))
          for (const part of ["gridcolor", "zerolinecolor", "linecolor"]) change[`${key}.${part}`] = line;
        if (/^scene\d*$/.test(key))
          for (const axis of "xyz") {
            change[`${key}.${axis}axis.gridcolor`] = line;
            change[`${key}.${axis}axis.backgroundcolor`] = paper;
          }
      }
      (plot.layout.annotations || []).forEach((each, i) => {
        if (each.bgcolor) change[`annotations[${i}].bgcolor`] = paper;
      });
      const onPaper = !plot._fullData.some(trace => /heatmap|contour|image/.test(trace.type));
      const shades = { "line.color": [], "marker.color": [], "error_y.color": [] };
      plot.given ||= plot._fullData.map(trace => [trace.line?.color, trace.marker?.color, trace.error_y?.color]);
      plot._fullData.forEach((trace, i) => Object.values(shades).forEach((list, part) => {
        const given = plot.given[i][part];
        list.push(onPaper && trace.type === "scatter" && typeof given === "string" ? readable(given, paper, ink) : undefined);
      }));
      Plotly.update(plot, shades, change);
    }
  };
  // On a narrow screen the legend stands above the picture, not beside it, and margins shrink; what stands in three
  // dimensions takes the whole width, from farther away, with its scale below.
  const fit = (data, layout, width) => {
    if (width > 520) return;
    const legend = layout.legend || {}, margin = layout.margin || {};
    const scenes = Object.keys(layout).filter(key => /^scene\d*$/.test(key));
    if (layout.width && layout.width <= 520) delete layout.width;
    if (scenes.length) {
      for (const key of scenes) {
        const eye = layout[key].camera?.eye || { x: 1.25, y: 1.25, z: 1.25 };
        layout[key].camera = { ...layout[key].camera, eye: { x: 1.5 * eye.x, y: 1.5 * eye.y, z: 1.5 * eye.z } };
      }
      for (const part of data.flatMap(trace => [trace, trace.marker]))
        if (part?.colorbar)
          part.colorbar = {
            ...part.colorbar, orientation: "h", x: 0.5, xanchor: "center", y: 0, yanchor: "top", len: 0.9,
            title: { ...part.colorbar.title, side: "bottom" },
          };
      layout.margin = { ...margin, l: 0, r: 0, b: 70 };
    } else {
      if (legend.yref !== "container" && layout.showlegend !== false)
        layout.legend = { ...legend, orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom" };
      if (!(layout.annotations || []).length)  // which may stand in the margins, as the titles of panels do
        layout.margin = { ...margin, l: Math.min(margin.l ?? 50, 50), r: Math.min(margin.r ?? 10, 10) };
    }
  };
  // What stands in the margins is measured once it is drawn: a legend that wraps, or a title, makes its own room.
  const settle = async plot => {
    const frame = plot.getBoundingClientRect(), { margin, height, legend } = plot._fullLayout;
    const boxes = query => [...plot.querySelectorAll(query)].map(each => each.getBoundingClientRect()).filter(box => box.width);
    const notes = boxes(".annotation"), change = {};
    const left = frame.left - Math.min(frame.left, ...notes.map(box => box.left));
    if (left > 0) change["margin.l"] = margin.l + left + 4;
    const below = boxes(".legend");
    if (below.length && legend.yref === "container" && legend.yanchor === "bottom") {
      const over = Math.max(...[...notes, ...boxes(".xtitle")].map(box => box.bottom), 0) - below[0].top + 8;
      if (over > 0) Object.assign(change, { "margin.b": margin.b + over, height: height + over });
    }
    if (!Object.keys(change).length) return false;
    await Plotly.relayout(plot, change);
    return true;
  };
  // A title is text of the page, which wraps and cannot run into the legend.
  const entitle = (layout, plot) => {
    const text = layout.title?.text ?? layout.title;
    delete layout.title;
    if (typeof text !== "string" || !text) return;
    const title = document.createElement("p");
    title.className = "plot-title";
    title.textContent = text.replace(/<br\s*\/?>/g, " ").replace(/<\/?(b|i|sub|sup)>/g, "");
    plot.before(title);
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
      entitle(layout, plot);
      fit(data, layout, each.parentElement.clientWidth);
      await Plotly.newPlot(plot, data, layout, { displayModeBar: false, responsive: true });
    }
    paint();
    for (const plot of plots())  // a wider margin may wrap the legend once more
      for (let round = 0; round < 3 && await settle(plot); round += 1);
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
