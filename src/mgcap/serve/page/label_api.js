// What the page asks of the service. The token stays in this tab; nothing is asked of anyone else.
export const $ = (id) => document.getElementById(id);

export function say(text, bad = false) {
  $("status").textContent = $("status").title = text;  // what does not fit is cut, so that nothing moves under the pointer
  $("status").classList.toggle("bad", bad);
}

export function element(name, attributes = {}, ...children) {
  const drawn = ["svg", "rect", "path", "line", "circle", "text", "polyline", "polygon", "title"].includes(name);
  const made = drawn ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "text") made.textContent = value;
    else if (key.startsWith("--")) made.style.setProperty(key, value);
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const percent = (value, digits = 0) => `${(100 * value).toFixed(digits)} %`;

function take_token() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return;
  sessionStorage.setItem("token", given);
  history.replaceState(null, "", location.pathname);
}
take_token();

export class Refused extends Error {
  constructor(text, status) { super(text); this.status = status; }
}

async function reply_to(path, options = {}) {
  const token = sessionStorage.getItem("token");
  const headers = { ...(options.headers || {}), ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let reply;
  try { reply = await fetch(path, { ...options, headers }); }
  catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("the service does not answer; is mgcap label still running?", 0);
  }
  if (reply.ok) return reply;
  const found = await reply.json().catch(() => ({}));
  throw new Refused(found.error || `the service answered ${reply.status}`, reply.status);
}

const query = (values) => { const text = new URLSearchParams(values).toString(); return text ? `?${text}` : ""; };
export const get = async (path, values = {}, signal) => (await reply_to(`/api/label/${path}${query(values)}`, { signal })).json();
export const picture = async (path, signal) => (await reply_to(`/api/label/${path}`, { signal })).blob();
export const post = async (path, body = {}) => (await reply_to(`/api/label/${path}`, body instanceof FormData
  ? { method: "POST", body } : { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } })).json();
