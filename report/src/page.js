// The values under the pointer: the nearest point of each series, and a line through them.
for (const figure of document.querySelectorAll("figure")) {
  const svg = figure.querySelector("svg");
  const { x, y, top, bottom, series } = JSON.parse(figure.querySelector("script").textContent);
  const tip = figure.appendChild(Object.assign(document.createElement("div"), { className: "tip", hidden: true }));
  const marks = svg.appendChild(document.createElementNS(svg.namespaceURI, "g"));

  const write = (value, axis) => {
    if (axis.categories.length) return axis.categories[Math.round(value)];
    const number = (v) => v.toLocaleString("en", { maximumSignificantDigits: Math.abs(v) >= 1000 ? 7 : 4 });
    switch (axis.unit) {
      case "time": return new Date(value * 1000).toISOString().slice(0, 16).replace("T", " ");
      case "dollars": return "$" + number(value);
      case "share": return number(value * 100) + " %";
      case "hours": return number(value) + " h";
      default: return number(value);
    }
  };
  const cell = (text, name) => Object.assign(document.createElement(name), { textContent: text });

  const nearest = (places, at) => {
    let best = -1;
    for (let n = 0; n < places.length; n++) {
      if (best < 0 || Math.abs(places[n][0] - at) < Math.abs(places[best][0] - at)) best = n;
    }
    return best;
  };

  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const at = (event.clientX - box.left) * scale;
    const found = series.map((s, n) => [s, n, nearest(s.places, at)]).filter(([, , k]) => k >= 0);
    if (!found.length) return;
    const closest = found.reduce((a, b) =>
      Math.abs(b[0].places[b[2]][0] - at) < Math.abs(a[0].places[a[2]][0] - at) ? b : a);
    const line = closest[0].places[closest[2]][0];
    const value = closest[0].points[closest[2]].x;
    marks.replaceChildren();
    tip.replaceChildren(cell(write(value, x), "b"));
    const cross = marks.appendChild(document.createElementNS(svg.namespaceURI, "path"));
    cross.setAttribute("class", "cross");
    cross.setAttribute("d", `M${line} ${top}V${bottom}`);
    for (const [s, n, k] of found) {
      if (Math.abs(s.places[k][0] - line) > 12) continue;
      const group = marks.appendChild(document.createElementNS(svg.namespaceURI, "g"));
      group.setAttribute("class", "s" + (n % 8));
      const dot = group.appendChild(document.createElementNS(svg.namespaceURI, "circle"));
      dot.setAttribute("class", "hit");
      dot.setAttribute("cx", s.places[k][0]);
      dot.setAttribute("cy", s.places[k][1]);
      dot.setAttribute("r", 3.5);
      const row = tip.appendChild(cell("", "div"));
      row.className = "s" + (n % 8);
      row.appendChild(cell("", "i"));
      const { y: mean, range } = s.points[k];
      const between = range ? ` (${write(range[0], y)} – ${write(range[1], y)})` : "";
      row.appendChild(cell(`${s.name ? s.name + ": " : ""}${write(mean, y)}${between}`, "span"));
    }
    tip.hidden = false;
    const place = figure.getBoundingClientRect();
    const left = event.clientX - place.left + 14;
    const over = left + tip.offsetWidth > place.width - 6;
    tip.style.left = (over ? Math.max(4, left - tip.offsetWidth - 28) : left) + "px";
    tip.style.top = Math.max(4, event.clientY - place.top - tip.offsetHeight - 10) + "px";
  });
  svg.addEventListener("pointerleave", () => { tip.hidden = true; marks.replaceChildren(); });
}
