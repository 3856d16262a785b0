// The page on which a raster is labelled: what is pressed becomes labels, and what the service learns becomes the map.
import { $, element, get, percent, post, say } from "./label_api.js";
import { accuracy, curve } from "./label_charts.js";
import { ClassList } from "./label_classes.js";
import { Files } from "./label_files.js";
import { Lists } from "./label_lists.js";
import { RasterMap } from "./label_map.js";
import { Tools } from "./label_tools.js";
import { Unsent } from "./label_unsent.js";

const classes = new ClassList(() => lists.draw());
const view = new RasterMap($("map"), (number) => classes.colour(number));
const page = { classes, selected: () => selected, go, show_marks, show_all };
const lists = new Lists(page);
const tools = new Tools(view, (cells) => label(cells.map(full)), (cell) => select(full(cell)));
const files = new Files();
let state = null, all = [], selected = null, drawn = {};
const unsent = new Unsent({
  saved({ number }, { changed }) { show_pending(); say(`${changed === 1 ? "1 label" : `${changed} labels`} saved: ${number ? classes.name(number) : "cleared"}`); },
  refused(body, error) { show_labels(); say(error.message, true); drawn.labels = null; },
  waits(error) { show_pending(); say(waiting_words(error), true); },
  drained() { show_pending(); if (state) load_labels().catch((error) => say(error.message, true)); },
});
const waiting_words = (error) => unsent.size ? `${unsent.size} not saved yet, sent again soon: ${error.message}` : error.message;
const full = ([row, col]) => [state.rasters.indexOf(view.raster), row, col];

// labels

function label(cells, number = classes.chosen) {
  if (number === null) { say("add a class first: type its name at the right, as forest, and press Enter", true); $("new-class").focus(); return; }
  if (!cells.length) return;
  const resolve = number > 0 && cells.every((cell) => value_of(cell) === 0);  // who labels a conflict settles it
  const suggested = lists.is_hard(cells);
  set_labels(cells, number || null);
  unsent.add({ cells, number: number || null, resolve, suggested });
  show_pending();
  if (lists.alike.length && cells.length > 1) lists.end_similar();
  if (!lists.labelled(cells) && selected && cells.some((cell) => String(cell) === String(selected))) select(null);
}

function set_labels(cells, number) {
  for (const [raster, row, col] of cells) {
    if (state.rasters[raster] !== view.raster) continue;
    if (number === null) view.labels.delete(view.key(row, col)); else view.labels.set(view.key(row, col), number);
  }
  view.outlines.repaint();
}

const value_of = ([raster, row, col]) => state.rasters[raster] === view.raster ? view.labels.get(view.key(row, col)) : undefined;

function show_labels() {
  const raster = state.rasters.indexOf(view.raster);
  view.labels = new Map(all.filter((own) => own[0] === raster).map((own) => [view.key(own[1], own[2]), own[3]]));
  for (const { body } of unsent.queue) set_labels(body.cells, body.number);
  show_pending();
}

// Cells of which it is not known whether they are saved are drawn otherwise.
function show_pending() {
  $("map").dataset.unsent = unsent.size;
  if (!state || !view.raster) return;
  const here = unsent.queue.flatMap(({ body }) => body.cells).filter(([raster]) => state.rasters[raster] === view.raster);
  view.pending = new Set(here.map(([, row, col]) => view.key(row, col)));
  view.outlines.repaint();
}

async function load_labels() {
  const wanted = state.labels_revision, saved = unsent.saved;
  const found = await get("labels");
  if (unsent.saved !== saved) return;  // there are newer ones, which are asked for when all are saved
  all = found.labels; drawn.labels = Math.max(wanted, found.labels_revision);
  show_labels();
}

async function step(which) {
  if (!unsent.lost) await unsent.send();
  if (unsent.size) {
    if (which === "undo" && unsent.drop()) { show_labels(); say("undone: it was not sent yet"); }
    else say(`${which} is possible when the service answers again`, true);
    return;
  }
  try {
    const { cells, left } = await post(which);
    if (left) say(`${which === "undo" ? "undone" : "done again"}: ${cells.length}; ${left} ${left === 1 ? "label stays" : "labels stay"}, as somebody has said something else since`);
    else say(cells.length ? `${which === "undo" ? "undone" : "done again"}: ${cells.length === 1 ? "1 cell" : `${cells.length} cells`}` : `nothing to ${which}`);
    await load_labels();
  } catch (error) { say(error.message, true); }
}

// cells

function select(cell, look = true) {
  selected = cell;
  if (cell && state.rasters[cell[0]] !== view.raster) open_raster(cell[0]);
  view.select(cell ? cell.slice(1) : null);
  $("cell-section").hidden = !cell;
  $("map").dataset.cell = cell ? `${cell[1]},${cell[2]}` : "";
  if (!cell) return;
  $("cell").replaceChildren(heading(cell));  // at once: a number may be pressed before more is known
  if (look) show_cell();
}

const heading = (cell, number) => element("p", { class: "cell-head" }, `Row ${cell[1] + 1}, column ${cell[2] + 1}`,
  number ? element("span", { class: "swatch", "--colour": classes.colour(number) }) : null);

function go(cell) { select(cell); view.fly(cell.slice(1)); }

async function show_cell() {
  const asked = selected;
  let found;
  try { found = await get("cell", { raster: asked[0], row: asked[1], col: asked[2] }); }
  catch (error) { say(error.message, true); return; }
  if (String(asked) !== String(selected)) return;
  const by = found.labels.map((own) => `${own.who}: ${classes.name(own.number)}`).join(", ");
  const parts = [heading(asked, found.number)];
  if (!found.data) parts.push(element("p", { class: "hint", text: "There is no data here." }));
  if (by) parts.push(element("p", { class: "hint", text: found.conflict ? `In conflict. ${by}` : by }));
  if (found.unknown) parts.push(element("p", { class: "hint", text: "Unknown: unlike all that is labelled." }));
  parts.push(element("ul", { class: "bars small" }, ...found.probabilities.slice(0, 3).map((own) => element("li", { "--part": `${100 * own.probability}%` },
    element("span", { text: classes.name(own.number) }), element("span", { text: percent(own.probability) })))));
  parts.push(element("p", { class: "hint", text: "Press the number of a class to label it, 0 to clear it." }));
  $("cell").replaceChildren(...parts);
}

function show_marks() {
  if (!view.raster || !state) return;
  const raster = state.rasters.indexOf(view.raster);
  view.marks = new Map(lists.marks().filter(([cell]) => cell[0] === raster).map(([cell, text]) => [view.key(cell[1], cell[2]), text]));
  view.outlines.repaint();
}

function show_all(cells) {
  const here = cells.filter((cell) => state.rasters[cell[0]] === view.raster).map((cell) => view.box(cell[1], cell[2]));
  if (selected) here.push(view.box(selected[1], selected[2]));
  if (here.length) view.map.fitBounds(here.reduce((whole, box) => whole.extend(box)), { padding: [40, 40], maxZoom: view.raster.finest });
}

// what the service says

function open_raster(number) {
  view.set_opacity($("opacity").value / 100);
  view.open(state.rasters[number]);
  $("raster").value = number;
  show_labels(); show_marks(); show_layer();
}

async function show_layer() {
  drawn.overlay = state.fitted_revision;
  try { await view.show_layer($("layer").value); } catch (error) { say(error.message, true); }
}

function apply(found) {
  const first = state === null;
  const rasters = first ? found.rasters.map((own, number) => ({ ...own, number })) : state.rasters;
  const before = state;
  state = { ...found, rasters };
  $("token-section").hidden = true;
  $("project").textContent = found.project; document.title = `${found.project} – mgcap label`;
  $("person").textContent = found.person;
  $("undo").disabled = !found.undo; $("redo").disabled = !found.redo;
  if (first) {
    $("raster").replaceChildren(...rasters.map((own) => element("option", { value: own.number, text: own.name })));
    $("raster-label").hidden = rasters.length < 2;
  }
  const colours = JSON.stringify(found.classes.map((own) => [own.number, own.colour]));
  classes.update(found.classes);
  const left = unsent.open(found.id, found.person);
  if (first) open_raster(0); else if (left) show_labels();
  if (unsent.size) unsent.send();
  if (drawn.colours !== colours) { drawn.colours = colours; view.outlines.repaint(); drawn.overlay = null; }
  if (drawn.labels !== found.labels_revision) load_labels().catch((error) => say(error.message, true));
  if (before && before.fitted_revision !== found.fitted_revision) lists.rerank();
  if (drawn.overlay !== found.fitted_revision) { show_layer(); if (selected) show_cell(); }
  if ((before ? before.conflicts : 0) || found.conflicts) lists.load_conflicts(found.conflicts).catch(() => {});
  $("accuracy").replaceChildren(...accuracy(found));
  $("advice").textContent = found.problem || found.advice;
  $("curve").replaceChildren(...curve(found.curve));
  $("map").dataset.refitting = found.refitting; $("map").dataset.labels = found.labels; $("map").dataset.fitted = found.fitted_revision;
  files.update(found.job);
}

async function watch() {
  for (;;) {
    try {
      apply(await get("state", state ? { after: state.revision } : {}));
      if (drawn.lost) { drawn.lost = false; say("the service is back"); }
    } catch (error) {
      if (error.status === 401 || error.status === 429) { $("token-section").hidden = false; say(error.message, true); return; }
      drawn.lost = true;
      say(waiting_words(error), true);
      await new Promise((done) => setTimeout(done, 1500));
    }
  }
}

// what is pressed

function number_pressed(digit) {
  const own = digit === 0 ? { number: 0 } : classes.classes[digit - 1];
  if (!own) { say(`there is no class ${digit}`, true); return; }
  classes.choose(own.number);
  if (lists.alike.length) label([...lists.alike.map((each) => each.cell), ...(selected ? [selected] : [])], own.number);
  else if (selected) label([selected], own.number);
}

function moved(rows, columns) {
  const { rows: count, columns: wide } = view.raster;
  const middle = selected ? selected.slice(1) : view.cell_at(view.map.getCenter()) || [0, 0];
  const cell = selected ? [Math.max(0, Math.min(count - 1, middle[0] + rows)), Math.max(0, Math.min(wide - 1, middle[1] + columns))] : middle;
  select(full(cell)); view.show(cell);
}

const LETTERS = { p: () => choose_tool("point"), r: () => choose_tool("rectangle"), b: () => choose_tool("brush"), v: () => choose_tool("look"),
  n: () => lists.suggest(), s: () => lists.find_similar(), m: () => choose_layer("map"), u: () => choose_layer("uncertainty"), o: () => choose_layer("unknown"),
  h: () => choose_layer("none"), "+": () => view.map.zoomIn(), "=": () => view.map.zoomIn(), "-": () => view.map.zoomOut(), "?": () => $("help").showModal() };
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

document.addEventListener("keydown", (event) => {
  const inside = event.target.closest("input:not([type=range]), select, textarea, dialog[open]");
  if (inside || !state || event.altKey) return;
  const key = event.key.toLowerCase();
  if (event.ctrlKey || event.metaKey) {
    if (key === "z" || key === "y") { event.preventDefault(); step(key === "y" || event.shiftKey ? "redo" : "undo"); }
    return;
  }
  if (/^[0-9]$/.test(key)) number_pressed(Number(key));
  else if (key === "escape") { select(null); lists.end_similar(); tools.end(); }
  else if (LETTERS[key]) LETTERS[key]();
  else if (ARROWS[event.key] && !event.target.closest("input, aside")) { event.preventDefault(); moved(...ARROWS[event.key]); }
  else if (key === "enter" && selected && event.target === $("map")) label([selected]);
});

function choose_tool(tool) {
  tools.choose(tool);
  if (tool !== "look") select(null);
  for (const button of document.querySelectorAll("[data-tool]")) button.setAttribute("aria-pressed", String(button.dataset.tool === tool));
}
function choose_layer(layer) { $("layer").value = layer; show_layer(); }

for (const button of document.querySelectorAll("[data-tool]")) button.addEventListener("click", () => choose_tool(button.dataset.tool));
$("undo").addEventListener("click", () => step("undo"));
$("redo").addEventListener("click", () => step("redo"));
$("layer").addEventListener("change", show_layer);
$("opacity").addEventListener("input", () => view.set_opacity($("opacity").value / 100));
$("raster").addEventListener("change", () => { select(null); open_raster(Number($("raster").value)); });
$("help-open").addEventListener("click", () => $("help").showModal());
$("token-form").addEventListener("submit", (event) => { event.preventDefault(); sessionStorage.setItem("token", $("token").value.trim()); say(""); watch(); });
watch();
