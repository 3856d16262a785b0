// What the pointer does on the map: clicks, rectangles and brush strokes, each of which is one step to undo.
const L = window.L;

export class Tools {
  constructor(view, on_cells, on_look) {
    this.view = view; this.on_cells = on_cells; this.on_look = on_look;
    this.tool = "point"; this.stroke = null;
    const container = view.map.getContainer();
    view.map.on("click", (event) => this.click(event));
    container.addEventListener("pointerdown", (event) => this.down(event), true);
    container.addEventListener("pointermove", (event) => this.move(event));
    window.addEventListener("pointerup", (event) => this.up(event));
    window.addEventListener("pointercancel", () => this.end());
    window.addEventListener("blur", () => this.end());
    this.choose("point");
  }

  choose(tool) {
    this.end();
    this.tool = tool;
    const dragged = tool === "rectangle" || tool === "brush";
    this.view.map.dragging[dragged ? "disable" : "enable"]();
    const container = this.view.map.getContainer();
    for (const each of ["point", "rectangle", "brush", "look"]) container.classList.toggle(`tool-${each}`, each === tool);
  }

  click(event) {
    if (this.tool === "rectangle" || this.tool === "brush") return;
    const cell = this.view.cell_at(event.latlng);
    if (!cell) return;
    if (this.tool === "look") this.on_look(cell);
    else this.on_cells([cell]);
  }

  at(event) { return this.view.cell_at(this.view.map.mouseEventToLatLng(event)); }

  down(event) {
    const drag = event.shiftKey && this.tool !== "brush" ? "rectangle" : this.tool;
    if (event.button !== 0 || (drag !== "rectangle" && drag !== "brush") || event.target.closest(".leaflet-control")) return;
    const cell = this.at(event);
    if (!cell) return;
    event.preventDefault(); event.stopPropagation();
    this.view.map.getContainer().focus({ preventScroll: true });
    this.view.map.dragging.disable();
    this.stroke = { drag, first: cell, last: cell, cells: new Map([[this.view.key(...cell), cell]]), pointer: event.pointerId };
    this.preview();
  }

  move(event) {
    if (!this.stroke || event.pointerId !== this.stroke.pointer) return;
    const cell = this.at(event);
    if (!cell) return;
    if (this.stroke.drag === "brush") for (const each of between(this.stroke.last, cell)) this.stroke.cells.set(this.view.key(...each), each);
    this.stroke.last = cell;
    this.preview();
  }

  preview() {
    const { drag, first, last, cells } = this.stroke;
    if (drag === "brush") {
      for (const key of cells.keys()) this.view.marks.set(key, "");
      this.view.outlines.repaint();
      return;
    }
    const bounds = this.view.box(...first).extend(this.view.box(...last));
    if (!this.frame) this.frame = L.rectangle(bounds, { interactive: false, color: "#ffe14d", weight: 2, fillOpacity: 0.15 }).addTo(this.view.map);
    else this.frame.setBounds(bounds);
  }

  up(event) {
    if (!this.stroke || event.pointerId !== this.stroke.pointer) return;
    const { drag, first, last, cells } = this.stroke;
    this.end();
    this.on_cells(drag === "brush" ? [...cells.values()] : rectangle(first, last));
  }

  end() {
    if (this.frame) { this.frame.remove(); this.frame = null; }
    if (this.stroke) {
      for (const key of this.stroke.cells.keys()) if (this.stroke.drag === "brush") this.view.marks.delete(key);
      this.stroke = null;
      if (this.view.outlines) this.view.outlines.repaint();
    }
    if (this.tool === "point" || this.tool === "look") this.view.map.dragging.enable();
  }
}

function rectangle([r, c], [s, d]) {
  const cells = [];
  for (let row = Math.min(r, s); row <= Math.max(r, s); row++) for (let col = Math.min(c, d); col <= Math.max(c, d); col++) cells.push([row, col]);
  return cells;
}

// Cells along a straight line, so that a quick stroke has no gaps.
function between([r, c], [s, d]) {
  const steps = Math.max(Math.abs(s - r), Math.abs(d - c), 1), cells = [];
  for (let step = 1; step <= steps; step++) cells.push([Math.round(r + (s - r) * step / steps), Math.round(c + (d - c) * step / steps)]);
  return cells;
}
