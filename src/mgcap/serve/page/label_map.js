// The raster in its own pixels, the layers over it, and the marks of cells. Pictures are drawn onto canvases, as they are
// fetched with the token.
import { picture, say } from "./label_api.js";

const L = window.L, SIDE = 256;

// Like pictures of the raster, but drawn here, and drawn again in place when what they show has changed.
const Painted = L.GridLayer.extend({
  initialize(paint, options) { this.paint = paint; this.open = new Map(); L.GridLayer.prototype.initialize.call(this, options); },
  createTile(coords) {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = SIDE;
    this.open.set(canvas, coords);
    this.draw(canvas, coords);
    return canvas;
  },
  draw(canvas, coords) {
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, SIDE, SIDE);
    this.paint(context, coords);
  },
  repaint() { for (const [canvas, coords] of this.open) this.draw(canvas, coords); },
});

const Image_ = L.GridLayer.extend({
  createTile(coords, done) {
    const canvas = document.createElement("canvas"), stop = new AbortController();
    canvas.width = canvas.height = SIDE;
    canvas.stop = stop;
    const { number, changed } = this.options.raster;
    picture(`tiles/${number}/${coords.z}/${coords.x}/${coords.y}.jpg?v=${encodeURIComponent(changed)}`, stop.signal)
      .then((blob) => createImageBitmap(blob))
      .then((bitmap) => { canvas.getContext("2d").drawImage(bitmap, 0, 0); bitmap.close(); done(null, canvas); })
      .catch((error) => { if (error.name !== "AbortError") say(error.message, true); done(error, canvas); });
    return canvas;
  },
});

export class RasterMap {
  constructor(container, colour_of) {
    this.colour_of = colour_of;
    this.labels = new Map();  // of this raster: row * columns + column -> number, 0 for a conflict
    this.marks = new Map();  // cells that are proposed, or alike: key -> text
    this.pending = new Set();  // cells of which it is not known whether they are saved
    this.overlay = null;
    this.map = L.map(container, { crs: L.CRS.Simple, attributionControl: false, keyboard: false, boxZoom: false,
      doubleClickZoom: false, zoomControl: false, wheelPxPerZoomLevel: 90, zoomAnimationThreshold: 8, fadeAnimation: false });
    L.control.zoom({ position: "bottomright" }).addTo(this.map);
  }

  open(raster) {
    this.raster = raster;
    for (const layer of [this.image, this.painted, this.outlines, this.chosen, this.tile]) if (layer) layer.remove();
    const scale = 1 / 2 ** raster.finest;
    this.map.options.crs = L.Util.extend({}, L.CRS.Simple, { transformation: new L.Transformation(scale, 0, scale, 0) });
    this.bounds = L.latLngBounds([0, 0], [raster.height, raster.width]);
    const options = { bounds: this.bounds, noWrap: true, tileSize: SIDE, maxZoom: raster.finest + 3, keepBuffer: 3, updateWhenZooming: false };
    this.map.setMinZoom(0).setMaxZoom(raster.finest + 3).setMaxBounds(this.bounds.pad(0.5));
    this.image = new Image_({ ...options, maxNativeZoom: raster.finest, raster, zIndex: 1 });
    this.painted = new Painted((context, coords) => this.paint_overlay(context, coords), { ...options, zIndex: 2, opacity: this.opacity });
    this.outlines = new Painted((context, coords) => this.paint_marks(context, coords), { ...options, zIndex: 3 });
    this.overlay = null; this.labels.clear(); this.marks.clear(); this.pending.clear(); this.selected = null;
    this.map.fitBounds(this.bounds, { animate: false });
    for (const layer of [this.image, this.painted, this.outlines]) layer.addTo(this.map);
    this.chosen = L.rectangle(this.bounds, { interactive: false, fill: false, color: "#fff", weight: 3 });
    this.tile = L.rectangle(this.bounds, { interactive: false, fill: false, color: "#fff", weight: 1.5, dashArray: "5 5", opacity: 0.9 });
  }

  set_opacity(value) { this.opacity = value; if (this.painted) this.painted.setOpacity(value); }

  key(row, col) { return row * this.raster.columns + col; }
  place(key) { return [Math.floor(key / this.raster.columns), key % this.raster.columns]; }

  cell_at(latlng) {
    const { cell: [width, height], rows, columns } = this.raster;
    if (!this.bounds.contains(latlng)) return null;
    return [Math.min(rows - 1, Math.floor(latlng.lat / height)), Math.min(columns - 1, Math.floor(latlng.lng / width))];
  }

  box(row, col) {
    const { cell: [width, height], width: right, height: lower } = this.raster;
    return L.latLngBounds([row * height, col * width], [Math.min(lower, (row + 1) * height), Math.min(right, (col + 1) * width)]);
  }

  async show_layer(layer) {
    const asked = this.asked = Symbol(layer), raster = this.raster;
    const bitmap = layer === "none" ? null : await createImageBitmap(await picture(`overlays/${raster.number}/${layer}.png`));
    if (this.asked !== asked || this.raster !== raster) return;
    this.overlay = bitmap;
    this.painted.repaint();
  }

  // Left and upper edge of a picture in pixels of the raster, and how many of these a pixel of the picture is wide.
  frame(coords) {
    const step = 2 ** (this.raster.finest - coords.z);
    return [coords.x * SIDE * step, coords.y * SIDE * step, step];
  }

  paint_overlay(context, coords) {
    if (!this.overlay) return;
    const [left, top, step] = this.frame(coords), { cell: [width, height], width: right, height: lower } = this.raster;
    const wide = Math.min(SIDE, (right - left) / step), high = Math.min(SIDE, (lower - top) / step);
    if (wide <= 0 || high <= 0) return;
    context.imageSmoothingEnabled = false;
    context.drawImage(this.overlay, left / width, top / height, wide * step / width, high * step / height, 0, 0, wide, high);
  }

  paint_marks(context, coords) {
    const [left, top, step] = this.frame(coords), { cell: [width, height], rows, columns } = this.raster;
    const first = [Math.max(0, Math.floor(top / height)), Math.max(0, Math.floor(left / width))];
    const last = [Math.min(rows - 1, Math.floor((top + SIDE * step) / height)), Math.min(columns - 1, Math.floor((left + SIDE * step) / width))];
    const inside = ([row, col]) => row >= first[0] && row <= last[0] && col >= first[1] && col <= last[1];
    const { width: right, height: lower } = this.raster;
    const place = ([row, col]) => [(col * width - left) / step, (row * height - top) / step, (Math.min(right, (col + 1) * width) - col * width) / step,
      (Math.min(lower, (row + 1) * height) - row * height) / step];
    for (const [key, number] of this.labels) {
      const at = this.place(key);
      if (inside(at)) this.outline(context, place(at), number, this.pending.has(key));
    }
    for (const key of this.pending) {  // that are to be cleared
      const at = this.place(key);
      if (!this.labels.has(key) && inside(at)) this.outline(context, place(at), null, true);
    }
    for (const [key, text] of this.marks) {
      const at = this.place(key);
      if (inside(at)) this.mark(context, place(at), text);
    }
  }

  outline(context, [x, y, wide, high], number, pending = false) {
    const line = Math.max(1.5, Math.min(3, wide / 8));
    if (wide < 6) {
      context.fillStyle = number ? this.colour_of(number) : "#000";
      context.globalAlpha = pending ? 0.5 : 1;
      context.fillRect(x, y, Math.max(2, wide), Math.max(2, high));
      context.globalAlpha = 1;
      return;
    }
    if (number === 0) this.hatch(context, x, y, wide, high);
    const inset = line / 2 + 1;
    if (pending) context.setLineDash([3, 3]);
    context.lineWidth = line + 2; context.strokeStyle = "rgb(0 0 0 / 55%)";
    context.strokeRect(x + inset, y + inset, wide - 2 * inset, high - 2 * inset);
    context.lineWidth = line; context.strokeStyle = number ? this.colour_of(number) : "#fff";
    context.strokeRect(x + inset, y + inset, wide - 2 * inset, high - 2 * inset);
    context.setLineDash([]);
  }

  hatch(context, x, y, wide, high) {
    context.save();
    context.beginPath(); context.rect(x, y, wide, high); context.clip();
    context.fillStyle = "rgb(255 255 255 / 65%)"; context.fillRect(x, y, wide, high);
    context.lineWidth = 2; context.strokeStyle = "#c2185b"; context.beginPath();
    for (let at = -high; at < wide; at += 7) { context.moveTo(x + at, y + high); context.lineTo(x + at + high, y); }
    context.stroke(); context.restore();
  }

  mark(context, [x, y, wide, high], text) {
    context.setLineDash([4, 3]); context.lineWidth = 4; context.strokeStyle = "rgb(0 0 0 / 70%)"; context.strokeRect(x + 1, y + 1, wide - 2, high - 2);
    context.lineWidth = 2; context.strokeStyle = "#ffe14d"; context.strokeRect(x + 1, y + 1, wide - 2, high - 2);
    context.setLineDash([]);
    if (!text || wide < 12) return;
    context.font = "600 12px system-ui, sans-serif"; context.textAlign = "center"; context.textBaseline = "middle";
    context.lineWidth = 3; context.strokeStyle = "#000"; context.fillStyle = "#ffe14d";
    context.strokeText(text, x + wide / 2, y + high / 2); context.fillText(text, x + wide / 2, y + high / 2);
  }

  // The cell that number keys label, with the tile around it that it is judged by.
  select(cell) {
    this.selected = cell;
    if (!cell) { this.chosen.remove(); this.tile.remove(); return; }
    const box = this.box(...cell), middle = box.getCenter(), { cell: [width, height], tile } = this.raster;
    this.chosen.setBounds(box).addTo(this.map);
    this.tile.setBounds([[middle.lat - tile * height / 2, middle.lng - tile * width / 2], [middle.lat + tile * height / 2, middle.lng + tile * width / 2]]).addTo(this.map);
  }

  fly(cell) {
    const middle = this.box(...cell).getCenter(), size = this.map.getSize();
    const wanted = Math.min(size.x, size.y) / (4 * this.raster.tile * Math.max(...this.raster.cell));
    const zoom = Math.max(0, Math.min(this.raster.finest + 2, Math.round(this.raster.finest + Math.log2(wanted))));
    this.map.setView(middle, zoom, { animate: !matchMedia("(prefers-reduced-motion: reduce)").matches, duration: 0.35 });
  }

  // So that it is seen, without a jump where it is.
  show(cell) { if (!this.map.getBounds().pad(-0.05).contains(this.box(...cell))) this.map.panTo(this.box(...cell).getCenter(), { duration: 0.2 }); }
}
