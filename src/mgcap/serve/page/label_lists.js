// Lists of cells in the side panel: suggestions, cells that are alike, likely mistakes and conflicts.
import { $, element, get, percent, say } from "./label_api.js";

export class Lists {
  constructor(page) {
    this.page = page; this.proposed = []; this.at = -1; this.alike = []; this.wrong = []; this.conflicting = [];
    $("suggest").addEventListener("click", () => this.suggest());
    $("mode").addEventListener("change", () => this.suggest());
    $("find-similar").addEventListener("click", () => this.find_similar());
    $("similar-end").addEventListener("click", () => this.end_similar());
    $("find-mistakes").addEventListener("click", () => this.find_mistakes());
  }

  async suggest() {
    $("suggest").disabled = true;
    say("looking for places that teach most");
    try {
      this.proposed = (await get("suggest", { mode: $("mode").value })).cells.map((own) => ({ ...own, done: false }));
      this.mode = $("mode").value;
      say(this.proposed.length ? "" : "there is nothing to suggest");
      this.end_similar();
      if (this.proposed.length) this.go(0);
    } catch (error) { say(error.message, true); }
    $("suggest").disabled = false;
    this.draw();
  }

  // After a refit the rest of the list is what teaches most by now; what is labelled, selected or drawn at random stays.
  async rerank() {
    const list = this.proposed, open = () => list.filter((own, number) => !own.done && !own.random && number !== this.at);
    if (this.ranking) { this.stale = true; return; }
    if (this.mode !== "teach" || !open().length) return;
    this.ranking = true; this.stale = false;
    try {
      const kept = list.filter((own) => !own.done && !open().includes(own)).map((own) => ["keep", own.cell.join(",")]);
      const { cells } = await get("suggest", [["mode", "teach"], ["count", open().length], ["measure", 0], ...kept]);
      if (list !== this.proposed) return;
      const rest = open(), stays = new Set(list.filter((own) => !rest.includes(own)).map((own) => String(own.cell)));
      const found = cells.filter((own) => !stays.has(String(own.cell)));
      rest.forEach((own, number) => { if (number < found.length) Object.assign(own, found[number]); });
      const many = list.length;
      const seen = new Set();  // where fewer are left than there were
      this.proposed = list.filter((own) => !seen.has(String(own.cell)) && seen.add(String(own.cell)));
      if (this.proposed.length < many && this.at >= 0) this.at = this.proposed.indexOf(list[this.at]);
      this.draw();
    } catch (error) { say(error.message, true); } finally { this.ranking = false; }
    if (this.stale) await this.rerank();
  }

  // Whether cells were suggested because they are hard, or like one that was looked at: they teach, but say little of how
  // right the map is elsewhere.
  is_hard(cells) {
    const keys = new Set(cells.map(String));
    return this.alike.some((own) => keys.has(String(own.cell))) || this.proposed.some((own) => !own.random && keys.has(String(own.cell)));
  }

  go(number) {
    this.at = number;
    this.page.go(this.proposed[number].cell);
    this.draw();
  }

  // After the cell of a suggestion was labelled: the next one that is not done.
  labelled(cells) {
    const keys = new Set(cells.map(String));
    let here = false;
    this.proposed.forEach((own, number) => {
      if (!keys.has(String(own.cell))) return;
      own.done = true;
      here = here || number === this.at;
    });
    this.wrong = this.wrong.filter((own) => !keys.has(String(own.cell)));
    if (here) {
      const next = this.proposed.findIndex((own, number) => number > this.at && !own.done);
      const any = next >= 0 ? next : this.proposed.findIndex((own) => !own.done);
      if (any >= 0) { this.go(any); return true; }
      this.at = -1;
      say("all of them are labelled; N suggests ten more");
    }
    this.draw();
    return false;
  }

  async find_similar() {
    const cell = this.page.selected();
    if (!cell) { say("select a cell first: choose Look and click one", true); return; }
    try {
      this.alike = (await get("similar", { raster: cell[0], row: cell[1], col: cell[2] })).cells;
      this.page.show_marks();
      $("similar-section").hidden = !this.alike.length;
      if (this.alike.length) { $("similar-section").scrollIntoView({ block: "nearest" }); this.page.show_all(this.alike.map((own) => own.cell)); }
      say(this.alike.length ? "a number labels all that are outlined in yellow" : "nothing is like this");
    } catch (error) { say(error.message, true); }
    this.draw();
  }

  end_similar() {
    this.alike = []; $("similar-section").hidden = true;
    this.page.show_marks(); this.draw();
  }

  async find_mistakes() {
    try {
      this.wrong = (await get("mistakes")).cells;
      say(this.wrong.length ? "" : "no label is contradicted by the others");
    } catch (error) { say(error.message, true); }
    this.draw();
  }

  async load_conflicts(count) {
    if (count) this.conflicting = (await get("conflicts")).cells; else this.conflicting = [];
    $("conflict-section").hidden = !count;
    this.draw();
  }

  marks() {
    if (this.alike.length) return this.alike.map((own) => [own.cell, ""]);
    return this.proposed.flatMap((own, number) => own.done ? [] : [[own.cell, String(number + 1)]]);
  }

  draw() {
    const name = (number) => this.page.classes.name(number);
    const row = (number, title, text, cell, given = {}) => element("li", {}, element("button", { type: "button", ...given, onclick: given.onclick || (() => this.page.go(cell)) },
      element("b", { text: number }), element("span", {}, title, text ? element("br") : null, text || null)));
    $("suggestions").replaceChildren(...this.proposed.map((own, number) => row(number + 1, own.reason, "", own.cell,
      { class: own.done ? "done" : null, "aria-current": number === this.at ? "true" : null, onclick: () => this.go(number) })));
    $("similar").replaceChildren(...this.alike.map((own, number) => row(number + 1, `row ${own.cell[1] + 1}, column ${own.cell[2] + 1}`, `${percent(own.score)} alike`, own.cell,
      { onclick: () => { this.alike = this.alike.filter((each) => each !== own); this.page.show_marks(); this.draw(); } })));
    $("mistakes").replaceChildren(...this.wrong.map((own, number) => row(number + 1, `${name(own.given)}: more like ${name(own.likely)}`, `the other labels say so with ${percent(own.probability)}`, own.cell)));
    $("conflicts").replaceChildren(...this.conflicting.map((own, number) => row(number + 1, own.labels.map((each) => `${each.who}: ${name(each.number)}`).join(", "), "", own.cell)));
    this.page.show_marks();
  }
}
