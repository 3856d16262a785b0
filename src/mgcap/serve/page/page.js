// The page of the service. Everything it shows is text or a data URI that the service made; nothing is parsed as HTML.
const $ = (id) => document.getElementById(id);
const status = $("status"), result = $("result"), form = $("form"), file = $("file"), go = $("go");
let models = [], under_way = null;

function element(name, attributes = {}, ...children) {
  const made = name === "svg" || element.svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "text") made.textContent = value;
    else if (key.startsWith("--")) made.style.setProperty(key, value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}
function drawing(make) { element.svg = true; try { return make(); } finally { element.svg = false; } }

function say(text, bad = false) { status.textContent = text; status.classList.toggle("bad", bad); }

function token_of_address() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return;
  sessionStorage.setItem("token", given);
  history.replaceState(null, "", location.pathname);
}
token_of_address();

function headers() {
  const token = $("token").value || sessionStorage.getItem("token") || "";
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function ask(path, body, signal) {
  let reply;
  try { reply = await fetch(path, { method: body ? "POST" : "GET", body, headers: headers(), signal }); }
  catch (error) { if (error.name === "AbortError") throw error; throw new Error("the service does not answer"); }
  if (reply.status === 401) $("token-label").hidden = false;
  const found = await reply.json().catch(() => ({ error: `the service answered ${reply.status}` }));
  if (!reply.ok) throw new Error(found.error || `the service answered ${reply.status}`);
  if ($("token").value) sessionStorage.setItem("token", $("token").value);
  return found;
}

function show_job() {
  for (const part of document.querySelectorAll("[data-job]")) part.hidden = part.dataset.job !== $("job").value;
}

const chosen_model = () => models.find((model) => model.name === $("model").value);

function show_classes() {
  const own = chosen_model();
  for (const id of ["target", "contrast"]) {
    const first = $(id).options[0];
    $(id).replaceChildren(first, ...(own ? own.classes : []).map((label, i) => element("option", { value: label, text: own.names[i] })));
  }
}

async function load_models() {
  try {
    models = await ask("/api/models");
    $("model").replaceChildren(...models.map((model) => element("option", { value: model.name, text: model.name })));
    show_classes();
    if (!under_way) say("");
  } catch (error) { say(error.message, true); }
}

const percent = (value) => `${(100 * value).toFixed(1)} %`;

function bars(top) {
  return element("ul", { class: "bars" }, ...top.map((entry) => element("li", { "--part": `${100 * entry.probability}%` },
    element("span", { text: entry.name }), element("span", { text: percent(entry.probability) }))));
}

function rose(angles, votes, colour, winner) {
  const most = Math.max(...votes), half = Math.PI / angles.length;
  return drawing(() => element("svg", { class: "rose", viewBox: "-76 -60 152 120", role: "img",
    "aria-label": `Votes: ${angles.map((a, i) => `${a} degrees ${percent(votes[i])}`).join(", ")}` },
    element("circle", { r: 44, fill: "none", stroke: "currentColor", "stroke-opacity": .25 }),
    ...angles.map((angle, i) => {
      const r = 44 * votes[i] / most, a = angle * Math.PI / 180;
      const at = (t) => `${(r * Math.sin(t)).toFixed(2)} ${(-r * Math.cos(t)).toFixed(2)}`;
      return element("path", { d: `M0 0 L${at(a - half)} A${r} ${r} 0 0 1 ${at(a + half)} Z`, fill: colour,
        "fill-opacity": angle === winner ? .95 : .4, stroke: colour });
    }),
    element("text", { x: 0, y: -49, "text-anchor": "middle", text: "0°" }),
    element("text", { x: 48, y: 3, text: "90°" })));
}

function outlined(found) {
  const lines = drawing(() => element("svg", { viewBox: `0 0 ${found.width} ${found.height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    ...found.granularities.map((g) => { const [l, t, r, b] = g.box; return element("rect", { x: l, y: t, width: r - l, height: b - t, fill: "none",
      stroke: g.colour, "stroke-width": 2.5, "vector-effect": "non-scaling-stroke", "stroke-dasharray": "8 5" }); })));
  return element("div", { class: "frame" }, element("img", { src: found.image, alt: "The image, with the crops outlined" }), lines);
}

// Beyond which limits an answer or a cell lies: what is far from the training images, or not confident enough.
function doubt(distance, limits) {
  const far = distance !== null && limits.distance !== null && distance > limits.distance;
  return far ? `unlike the training images: ${distance.toFixed(2)} away, where ${limits.distance.toFixed(2)} is usual at most` : "not confident enough";
}

function show_explanation(found) {
  const own = models.find((model) => model.name === found.model);
  const name = (label) => own ? own.names[own.classes.indexOf(label)] : label;
  const why = found.contrast ? `${name(found.target)}, and not ${name(found.contrast)}` : name(found.target);
  result.replaceChildren(element("div", { class: "cards" },
    element("article", { class: "card" }, element("h2", { text: found.unknown ? "unknown" : `${found.name}: ${percent(found.probability)}` }),
      ...(found.unknown ? [element("p", { class: "note", text: doubt(found.distance, found.limits) })] : []), bars(found.top)),
    element("article", { class: "card" }, element("h2", { text: "What it looks at" }), outlined(found)),
    element("article", { class: "card" }, element("h2", { text: `Evidence for ${why}` }),
      element("img", { src: found.heat, alt: `Heat map of the evidence for ${why}` })),
    ...found.granularities.map((g) => element("article", { class: "card" },
      element("h2", { text: `Granularity ${g.ratio}: rotated by ${g.angle}°` }),
      element("div", { class: "pair" }, element("img", { src: g.view, alt: "Canonical appearance" }),
        element("img", { src: g.heat, alt: "Heat map on the canonical appearance" })),
      rose(found.rotations, g.votes, g.colour, g.angle)))));
}

function show_map(found) {
  const canvas = element("canvas", { tabindex: "0", role: "application",
    "aria-label": "Class map. Arrow keys move from cell to cell.", width: found.width > 1400 ? 1400 : found.width });
  canvas.height = Math.round(canvas.width * found.height / found.width);
  const context = canvas.getContext("2d");
  const opacity = element("input", { type: "range", min: 0, max: 100, value: 50, "aria-label": "Opacity of the classes" });
  const answer = element("p", { class: "cell", role: "status", "aria-live": "polite", text: "Point at a cell, or use the arrow keys." });
  const [cw, ch] = found.cell.map((side, i) => side * (i ? canvas.height / found.height : canvas.width / found.width));
  let chosen = null;
  function draw() {
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.globalAlpha = opacity.value / 100;
    found.cells.forEach((number, i) => {
      if (number < 0) return;
      context.fillStyle = found.legend[number].colour;
      context.fillRect((i % found.columns) * cw, Math.floor(i / found.columns) * ch, cw, ch);
    });
    context.globalAlpha = 1;
    if (chosen === null) return;
    context.lineWidth = 3; context.strokeStyle = "#fff";
    context.strokeRect((chosen % found.columns) * cw, Math.floor(chosen / found.columns) * ch, cw, ch);
  }
  function choose(i) {
    chosen = i;
    const number = found.cells[i];
    const why = number >= 0 && (found.probabilities[i] === null ? doubt(found.distances ? found.distances[i] : null, found.limits) : percent(found.probabilities[i]));
    answer.textContent = number < 0 ? "no data" : `${found.legend[number].name}: ${why}, canonical angle ${found.angles[i]}° (row ${Math.floor(i / found.columns) + 1}, column ${i % found.columns + 1})`;
    draw();
  }
  function at(event) {
    const box = canvas.getBoundingClientRect();
    const x = Math.floor((event.clientX - box.left) / box.width * canvas.width / cw);
    const y = Math.floor((event.clientY - box.top) / box.height * canvas.height / ch);
    if (x >= 0 && y >= 0 && x < found.columns && y < found.rows) choose(y * found.columns + x);
  }
  canvas.addEventListener("pointermove", at);
  canvas.addEventListener("pointerdown", at);
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const x = chosen === null ? 0 : Math.min(found.columns - 1, Math.max(0, chosen % found.columns + step[0]));
    const y = chosen === null ? 0 : Math.min(found.rows - 1, Math.max(0, Math.floor(chosen / found.columns) + step[1]));
    choose(y * found.columns + x);
  });
  opacity.addEventListener("input", draw);
  const present = found.legend.filter((entry) => entry.share > 0).sort((a, b) => b.share - a.share);
  const links = Object.entries(found.downloads).map(([name, path]) => {
    const link = element("a", { href: path, download: name, text: name });
    link.addEventListener("click", async (event) => {
      if (!headers().Authorization) return;
      event.preventDefault();
      const reply = await fetch(path, { headers: headers() });
      const address = URL.createObjectURL(await reply.blob());
      const own = element("a", { href: address, download: name }); own.click();
      setTimeout(() => URL.revokeObjectURL(address), 10000);
    });
    return element("li", {}, link);
  });
  result.replaceChildren(element("article", { class: "card" },
    element("h2", { text: `Map of ${found.cells.filter((c) => c >= 0).length} cells` }),
    element("div", { class: "map" }, element("img", { src: found.image, alt: "The raster" }), canvas), answer,
    ...(found.shift ? [element("p", { text: `${percent(found.shift.known)} of the cells are like the training images; unknown: ${percent(found.shift.far)} are far from them, on ${percent(found.shift.unsure)} the model is not confident.` })] : []),
    ...found.notes.map((note) => element("p", { class: "note", role: "note", text: note })),
    element("label", {}, "Opacity ", opacity),
    element("ul", { class: "legend" }, ...present.map((entry) => { const swatch = element("i", { "aria-hidden": "true" }); swatch.style.background = entry.colour;
      return element("li", {}, swatch, element("span", { text: `${entry.name}: ${percent(entry.share)}` })); })),
    element("h2", { text: "Download" }), element("ul", {}, ...links)));
  draw();
}

async function work(event) {
  if (event) event.preventDefault();
  if (!models.length) await load_models();
  const chosen = file.files[0];
  if (!chosen) { say("Choose a file first.", true); file.focus(); return; }
  if (under_way) under_way.abort();
  under_way = new AbortController();
  const job = $("job").value, body = new FormData();
  body.append("file", chosen);
  body.append("model", $("model").value);
  for (const part of job === "map" ? ["overlap", "tile", "bands", "scale"] : ["target", "contrast"])
    if ($(part).value) body.append(part, $(part).value);
  const own = chosen_model(), usual = job === "explain" && own && own.limits ? own.limits.share : "";  // maps know it
  if ($("unknown").value || usual) body.append("unknown", $("unknown").value || usual);
  const began = performance.now();
  const tick = setInterval(() => say(`Working on ${chosen.name}: ${Math.round((performance.now() - began) / 1000)} s`), 1000);
  say(`Working on ${chosen.name} …`);
  go.disabled = true;
  try {
    const found = await ask(`/api/${job}`, body, under_way.signal);
    (job === "map" ? show_map : show_explanation)(found);
    result.hidden = false;
    say(`${chosen.name}: done in ${((performance.now() - began) / 1000).toFixed(1)} s`);
    result.focus({ preventScroll: false });
  } catch (error) { if (error.name !== "AbortError") { say(error.message, true); result.hidden = true; } }
  finally { clearInterval(tick); go.disabled = false; under_way = null; }
}

// The tags of a TIFF's first directory: width, height and whether it says where it lies. Rasters of at most this side are tiles.
const TILE_SIDE = 512;
async function is_raster_to_map(chosen) {
  const at = async (place, length) => new DataView(await chosen.slice(place, place + length).arrayBuffer());
  const head = await at(0, 16);
  if (head.byteLength < 16 || ![0x4949, 0x4d4d].includes(head.getUint16(0))) return false;
  const little = head.getUint16(0) === 0x4949, kind = head.getUint16(2, little), big = kind === 43;
  if (kind !== 42 && !big) return false;
  const place = big ? Number(head.getBigUint64(8, little)) : head.getUint32(4, little);
  const [word, size] = big ? [8, 20] : [2, 12];
  const start = await at(place, word);
  if (start.byteLength < word) return false;
  const count = Math.min(1000, big ? Number(start.getBigUint64(0, little)) : start.getUint16(0, little));
  const tags = await at(place + word, count * size);
  let longest = 0, located = false;
  for (let i = 0; i + size <= tags.byteLength; i += size) {
    const tag = tags.getUint16(i, little), value = i + (big ? 12 : 8);
    if (tag === 256 || tag === 257) longest = Math.max(longest, tags.getUint16(i + 2, little) === 3 ? tags.getUint16(value, little) : tags.getUint32(value, little));
    located ||= tag === 33550 || tag === 34264 || tag === 34735;
  }
  return located && longest > TILE_SIDE;
}

async function take_file() {
  if (file.files[0] && $("job").value !== "map" && await is_raster_to_map(file.files[0]).catch(() => false)) { $("job").value = "map"; show_job(); }
  work();
}

form.addEventListener("submit", work);
file.addEventListener("change", take_file);
$("job").addEventListener("change", show_job);
$("model").addEventListener("change", show_classes);
const drop = $("drop");
for (const kind of ["dragover", "dragenter"]) drop.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
drop.addEventListener("dragleave", () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => {
  event.preventDefault(); drop.classList.remove("over");
  if (!event.dataTransfer.files.length) return;
  file.files = event.dataTransfer.files; take_file();
});
show_job();
load_models();
