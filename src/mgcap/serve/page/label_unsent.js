// Labels that the service has not acknowledged yet. They are kept in the browser until it has, in their order, so that
// neither a service that is down nor a page that is closed loses one. Each has a name of its own: what was written although
// the answer was lost is not written twice.
import { post } from "./label_api.js";

const FINAL = new Set([400, 404, 413, 415, 422]), ASKS = new Set([401, 403, 421]), PAUSE = 1000;

function new_name() {
  const numbers = crypto.getRandomValues(new Uint32Array(4));  // randomUUID is for secure addresses only
  return [...numbers].map((own) => own.toString(36)).join("-");
}

export class Unsent {
  constructor(told) {
    this.told = told;  // saved(body, found), refused(body, error), waits(error), drained()
    this.queue = []; this.prefix = null; this.lost = false; this.saved = 0; this.sending = null; this.clock = 0;
  }

  get size() { return this.queue.length; }

  // What this person left unsent in this project: by this page before it was loaded again.
  open(project, person) {
    const prefix = `mgcap-unsent/${project}/${person}/`;
    if (prefix === this.prefix) return false;
    this.prefix = prefix; this.queue = [];
    try {
      const keys = Object.keys(localStorage).filter((key) => key.startsWith(prefix)).sort();
      this.queue = keys.map((key) => ({ key, body: JSON.parse(localStorage.getItem(key)), tried: true }));
    } catch { /* a browser that keeps nothing: they are kept as long as the page is open */ }
    return this.queue.length > 0;
  }

  add(body) {
    this.clock = Math.max(this.clock + 1, Date.now());
    const own = { key: `${this.prefix}${String(this.clock).padStart(15, "0")}`, body: { ...body, once: new_name() }, tried: false };
    own.key += `-${own.body.once}`;
    this.queue.push(own);
    try { localStorage.setItem(own.key, JSON.stringify(own.body)); } catch { /* full, or not allowed */ }
    this.send();
  }

  forget(own) {
    this.queue = this.queue.filter((each) => each !== own);
    try { localStorage.removeItem(own.key); } catch { /* as above */ }
  }

  // Take back the last one, if it was not sent; what was may be written already.
  drop() {
    const last = this.queue[this.queue.length - 1];
    if (!last || last.tried) return false;
    this.forget(last);
    return true;
  }

  send() {
    if (!this.sending) this.sending = this.send_all().finally(() => { this.sending = null; });
    return this.sending;
  }

  async send_all() {
    while (this.queue.length) {
      const own = this.queue[0];
      own.tried = true;
      try {
        const found = await post("label", own.body);
        this.lost = false; this.saved += 1;
        this.forget(own);
        this.told.saved(own.body, found);
      } catch (error) {
        if (FINAL.has(error.status)) { this.forget(own); this.told.refused(own.body, error); continue; }
        this.lost = true;
        this.told.waits(error);
        if (!ASKS.has(error.status)) { clearTimeout(this.timer); this.timer = setTimeout(() => this.send(), PAUSE); }
        return;
      }
    }
    this.lost = false;
    this.told.drained();
  }
}
