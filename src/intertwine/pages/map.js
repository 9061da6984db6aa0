// The map of a network: a click on a band or a chip shows its axis; names are only ever text.
(() => {
  const map = document.getElementById("map"), panel = document.getElementById("map-panel");
  const axes = JSON.parse(document.getElementById("map-data").textContent);
  const rows = map.querySelector(".map-rows");
  const part = (tag, text) => { const made = document.createElement(tag); made.textContent = text; return made; };
  const describe = axis => {
    const list = document.createElement("ul");
    for (const member of axis.members) list.append(part("li", member));
    panel.replaceChildren(part("h3", axis.name), part("p", axis.words), part("p", axis.why), list);
  };
  const choose = number => {
    rows.classList.add("choosing");
    for (const each of rows.querySelectorAll("[data-axes]"))
      each.classList.toggle("off", !each.dataset.axes.split(" ").includes(String(number)));
    for (const each of rows.querySelectorAll("[data-axis]"))
      each.classList.toggle("on", each.dataset.axis === String(number));
    describe(axes[number]);
  };
  rows.addEventListener("click", event => {
    const at = event.target.closest("[data-axis]");
    if (at) choose(Number(at.dataset.axis));
  });
  document.getElementById("map-search").addEventListener("input", event => {
    const wanted = event.target.value.trim().toLowerCase();
    rows.classList.toggle("choosing", wanted !== "");
    let first = null;
    for (const each of rows.querySelectorAll(".map-row")) {
      const found = each.dataset.name.toLowerCase().includes(wanted);
      each.classList.toggle("off", !found);
      if (found && wanted && !first) first = each;
    }
    for (const each of rows.querySelectorAll("rect")) each.classList.remove("off");
    if (first) first.scrollIntoView({ block: "nearest" });
  });
  if (axes.length) describe(axes[0]);
})();
