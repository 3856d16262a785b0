// The list of classes: which one is chosen, how often it is used, and its editor.
import { $, element, percent, post, say } from "./label_api.js";

export class ClassList {
  constructor(on_choose) {
    this.on_choose = on_choose; this.classes = []; this.chosen = null; this.edited = null; this.drawn = "";
    $("add-class").addEventListener("submit", (event) => {
      event.preventDefault();
      const name = $("new-class").value.trim();
      if (name) this.ask("classes/add", { name }, (made) => { $("new-class").value = ""; this.choose(made.number); });
    });
  }

  async ask(path, body, after = () => {}) {
    try { after(await post(path, body)); say(""); } catch (error) { say(error.message, true); }
  }

  update(classes) {
    this.classes = classes;
    if (this.chosen !== 0 && !classes.some((own) => own.number === this.chosen)) this.chosen = classes.length ? classes[0].number : null;
    this.draw();
  }

  choose(number) { this.chosen = number; this.draw(); this.on_choose(number); }
  of(number) { return this.classes.find((own) => own.number === number); }
  colour(number) { const own = this.of(number); return own ? own.colour : "#888"; }
  name(number) { const own = this.of(number); return own ? own.name : "a class that is gone"; }

  draw() {
    const drawn = JSON.stringify([this.classes, this.chosen, this.edited]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const typed = document.activeElement && document.activeElement.closest(".editor") && this.edited !== null;
    if (typed && this.kept === this.edited) return;  // nobody's typing is interrupted; it is drawn when it ends
    const focused = document.activeElement && document.activeElement.id;
    this.kept = this.edited;
    const rows = this.classes.map((own, place) => element("li", {},
      element("button", { type: "button", class: "class", id: `class-${own.number}`, "data-class": own.number, "aria-pressed": String(own.number === this.chosen),
        onclick: () => this.choose(own.number) },
      element("kbd", { text: place < 9 ? place + 1 : "" }), element("span", { class: "swatch", "--colour": own.colour }),
      element("span", { class: "name", text: own.name, title: own.name }),
      element("span", { class: "count", text: `${own.labels}${own.share === null ? "" : ` · ${percent(own.share)}`}`,
        title: `${own.labels} labelled cells${own.share === null ? "" : `; ${percent(own.share, 1)} of the map`}` })),
      element("button", { type: "button", class: "edit", id: `edit-${own.number}`, "aria-label": `Change ${own.name}`, "aria-expanded": String(own.number === this.edited), text: "⋯",
        onclick: () => { this.edited = this.edited === own.number ? null : own.number; this.kept = null; this.draw(); } }),
      own.number === this.edited ? this.editor(own) : null));
    if (this.classes.length) rows.push(element("li", {}, element("button", { type: "button", class: "class", id: "class-0", "data-class": 0, "aria-pressed": String(this.chosen === 0), onclick: () => this.choose(0) },
      element("kbd", { text: 0 }), element("span", { class: "swatch", "--colour": "transparent" }), element("span", { class: "name", text: "clear a label" }), element("span"))));
    $("classes").replaceChildren(...rows);
    if (focused && $(focused)) $(focused).focus();
  }

  // Nothing goes that is not asked about, and the service counts: others may have labelled meanwhile, or contradict.
  async remove(own, into, done) {
    const count = own.all === 1 ? "1 label" : `${own.all} labels`, never = "This cannot be undone; the history keeps who said what.";
    if (into !== null) {
      if (confirm(`Merge '${own.name}' with ${count} into '${this.name(into)}'? ${never}`)) await this.ask("classes/remove", { number: own.number, into }, done);
      return;
    }
    if (!own.all && !confirm(`Remove '${own.name}'? This cannot be undone.`)) return;
    await this.ask("classes/remove", { number: own.number, with_labels: false }, ({ removed, labels }) => {
      if (removed) { done(); return; }
      const question = `Remove '${own.name}' with ${labels === 1 ? "its label" : `all of its ${labels} labels`}? ${never}`;
      if (confirm(question)) this.ask("classes/remove", { number: own.number, with_labels: true }, done);
    });
  }

  end() { this.edited = this.kept = null; this.draw(); }

  editor(own) {
    const name = element("input", { value: own.name, maxlength: 100, "aria-label": "Name", class: "edit-name" });
    const colour = element("input", { type: "color", value: own.colour, "aria-label": "Colour" });
    const into = element("select", { "aria-label": "Merge into" }, element("option", { value: "", text: "merge into…" }),
      ...this.classes.filter((each) => each.number !== own.number).map((each) => element("option", { value: each.number, text: each.name })));
    const done = () => this.end();
    const merge_into = () => {
      if (!into.value) { say("choose the class that takes the labels", true); into.focus(); return; }
      this.remove(own, Number(into.value), done);
    };
    return element("form", { class: "editor", onsubmit: (event) => {
      event.preventDefault();
      this.ask("classes/change", { number: own.number, name: name.value, colour: colour.value }, done);
    } }, colour, name, element("button", { type: "submit", text: "Save" }),
    element("div", { class: "row" }, into, element("button", { type: "button", text: "Merge", onclick: merge_into })),
    element("div", { class: "row" }, element("button", { type: "button", text: "Remove", onclick: () => this.remove(own, null, done) }), element("button", { type: "button", text: "Cancel", onclick: done })));
  }
}
