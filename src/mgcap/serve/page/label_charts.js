// The accuracy with its interval, and the learning curve.
import { element, percent } from "./label_api.js";

export function accuracy(state) {
  const { estimate, random } = state;
  if (!estimate) return [];
  const x = (value) => (4 + 292 * value).toFixed(1);
  const words = `${(100 * estimate.low).toFixed(0)} to ${percent(estimate.high)}`;
  const parts = [
    element("p", { class: "big" }, percent(estimate.value), element("small", { text: ` right (${words})` })),
    element("svg", { viewBox: "0 0 300 30", role: "img", "aria-label": `Accuracy ${percent(estimate.value)}, 95 % interval ${words}` },
      element("rect", { x: 4, y: 9, width: 292, height: 6, rx: 3, fill: "currentColor", "fill-opacity": 0.12 }),
      element("rect", { x: x(estimate.low), y: 7, width: Math.max(2, 292 * (estimate.high - estimate.low)).toFixed(1), height: 10, rx: 3, fill: "var(--bar)" }),
      element("circle", { cx: x(estimate.value), cy: 12, r: 5, fill: "var(--accent)" }),
      random ? element("path", { d: `M${x(random.value)} 4 v16`, stroke: "currentColor", "stroke-width": 1.5, "stroke-dasharray": "2 2" }) : null,
      element("text", { x: 4, y: 29, text: "0" }), element("text", { x: 296, y: 29, "text-anchor": "end", text: "100 %" })),
  ];
  if (state.measured.suggested) {
    parts.push(element("p", { class: "hint", text: "Whole blocks of land are held out. Suggested cells are among them, which are hard: the map is better than this, and than the curve says." }));
    return parts;
  }
  if (state.measured.labels < state.fitted_labels) {
    parts.push(element("p", { class: "hint", text: `Measured by ${state.measured.labels} labels that were not suggested, each held out with its block of land: suggested cells are the hard ones.` }));
    return parts;
  }
  parts.push(element("p", { class: "hint", text: random
    ? `Whole blocks of land are held out, as neighbours are alike. A random split would say ${percent(random.value)} (dashed).`
    : "Whole blocks of land are held out, as neighbours are alike." }));
  return parts;
}

export function curve(points) {
  if (points.length < 2) return [];
  const most = points[points.length - 1].labels, least = Math.max(0, Math.floor(10 * Math.min(...points.map((p) => p.low)) - 0.01) / 10);
  const x = (labels) => 28 + 264 * (labels - points[0].labels) / Math.max(1, most - points[0].labels), y = (value) => 88 - 78 * (value - least) / (1 - least);
  const at = (p, value) => `${x(p.labels).toFixed(1)} ${y(value).toFixed(1)}`;
  const band = `M${points.map((p) => at(p, p.high)).join("L")}L${[...points].reverse().map((p) => at(p, p.low)).join("L")}Z`;
  const line = (value, text) => [element("line", { x1: 28, x2: 292, y1: y(value), y2: y(value), stroke: "currentColor", "stroke-opacity": 0.15 }),
    element("text", { x: 24, y: y(value) + 3, "text-anchor": "end", text })];
  return [element("svg", { viewBox: "0 0 300 110", role: "img",
    "aria-label": `Learning curve: ${points.map((p) => `${p.labels} labels ${percent(p.value)}`).join(", ")}` },
  ...line(1, "100"), ...line((1 + least) / 2, (50 * (1 + least)).toFixed(0)), ...line(least, (100 * least).toFixed(0)),
  element("path", { d: band, fill: "var(--bar)", "fill-opacity": 0.45 }),
  element("path", { d: `M${points.map((p) => at(p, p.value)).join("L")}`, fill: "none", stroke: "var(--accent)", "stroke-width": 2 }),
  ...points.map((p) => element("circle", { cx: x(p.labels), cy: y(p.value), r: 2.5, fill: "var(--accent)" })),
  element("text", { x: 28, y: 104, text: `${points[0].labels} labels` }), element("text", { x: 292, y: 104, "text-anchor": "end", text: `${most} labels` }))];
}
