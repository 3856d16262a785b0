// The specification as a page, without any script from elsewhere.
const list = document.getElementById("list");
function element(name, text, ...children) { const made = document.createElement(name); if (text) made.textContent = text; made.append(...children); return made; }
const headers = sessionStorage.getItem("token") ? { Authorization: `Bearer ${sessionStorage.getItem("token")}` } : {};
const reply = await fetch("/openapi.json", { headers });
if (!reply.ok) list.append(element("p", "A token is needed: give it on the page first."));
else {
  const spec = await reply.json();
  const resolve = (schema) => schema && schema.$ref ? spec.components.schemas[schema.$ref.split("/").pop()] : schema || {};
  for (const [path, methods] of Object.entries(spec.paths)) for (const [method, own] of Object.entries(methods)) {
    const card = element("article", "", element("h2", `${method.toUpperCase()} ${path}`), element("p", own.summary || ""));
    card.className = "card";
    const body = own.requestBody ? resolve(own.requestBody.content["multipart/form-data"].schema) : null;
    const rows = [...(own.parameters || []).map((p) => [p.name, "in the path", ""]),
      ...Object.entries(body ? body.properties : {}).map(([name, value]) => [name, (body.required || []).includes(name) ? "required" : "optional", value.description || ""])];
    if (rows.length) card.append(element("table", "", ...rows.map((row) => element("tr", "", ...row.map((cell) => element("td", cell))))));
    if (method === "post") card.append(element("pre", `curl -F file=@tile.jpg ${location.origin}${path}`));
    card.append(element("p", `Answers: ${Object.entries(own.responses).map(([status, r]) => `${status} ${r.description}`).join("; ")}`));
    list.append(card);
  }
}
list.removeAttribute("aria-busy");
