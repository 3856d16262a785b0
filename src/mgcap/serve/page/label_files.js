// Models, maps and labels as files: written into the project's folder, and offered to be taken from there.
import { $, element, percent, picture, post, say } from "./label_api.js";

const count = (number, one, many) => `${number} ${number === 1 ? one : many}`;

export class Files {
  constructor() {
    $("save").addEventListener("click", () => this.begin("save"));
    $("export").addEventListener("click", () => this.begin("export"));
    $("load").addEventListener("change", () => { $("load-go").disabled = !$("load").files.length; });
    $("load-form").addEventListener("submit", (event) => { event.preventDefault(); this.load(); });
    this.drawn = "";
  }

  async begin(what) {
    try { await post(what); } catch (error) { say(error.message, true); }
  }

  async load() {
    const body = new FormData();
    body.append("field", $("field").value.trim());
    body.append("file", $("load").files[0]);
    $("load-go").disabled = true;
    try {
      const found = await post("load", body);
      const left = Object.entries(found.left_out).map(([why, number]) => `${number} ${why}`);
      say([`${count(found.labels, "label", "labels")} loaded`, found.conflicts ? `${count(found.conflicts, "conflict", "conflicts")}` : "",
        left.length ? `left out: ${left.join(", ")}` : ""].filter(Boolean).join("; "));
      $("load").value = "";
    } catch (error) { say(error.message, true); $("load-go").disabled = false; }
  }

  async take(name) {
    try {
      const address = URL.createObjectURL(await picture(`files/${encodeURIComponent(name)}`));
      const link = element("a", { href: address, download: name });
      link.click();
      setTimeout(() => URL.revokeObjectURL(address), 60_000);
    } catch (error) { say(error.message, true); }
  }

  update(job) {
    const drawn = JSON.stringify(job);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const busy = job && !job.done;
    $("save").disabled = $("export").disabled = Boolean(busy);
    if (!job) { $("job").replaceChildren(); return; }
    if (busy) {
      const share = job.share === null ? {} : { value: job.share };
      $("job").replaceChildren(element("p", { class: "hint", text: `${job.title || "Beginning"}${job.share === null ? "" : `: ${percent(job.share)}`}` }),
        element("progress", { max: 1, ...share, "aria-label": job.title }));
    } else if (job.error) {
      $("job").replaceChildren(element("p", { class: "hint", text: job.error }));
      say(job.error, true);
    } else {
      $("job").replaceChildren(element("p", { class: "hint", text: "Written into the project's folder:" }),
        element("ul", { class: "list" }, ...job.files.map((name) => element("li", {}, element("button", { type: "button", onclick: () => this.take(name) },
          element("b", { text: "↓" }), element("span", { text: name }))))));
    }
  }
}
