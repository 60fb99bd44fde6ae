// The page of the server. What the server says is shown as text, never as HTML.
"use strict";

const EVERY = 1000; // milliseconds between two looks
const WINDOW = 10; // seconds that "now" means
const SHOWN = 120; // seconds in the charts, at most
const LEAST = 30; // and at least
const KEPT = "rtfilter.authorization"; // in the storage of this tab

const at = (id) => document.getElementById(id);
const put = (id, text) => { if (at(id).textContent !== text) at(id).textContent = text; };

/** Make an element with attributes, and children that are elements or text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// -- numbers as text ---------------------------------------------------------------------------------------

const three = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const few = (value) => (value >= 100 ? whole : three).format(value);
const count = (value, one) => `${whole.format(value)} ${one}${value === 1 ? "" : "s"}`;

/** Number and unit of some seconds. */
function seconds(value) {
  if (value === null) return ["–", ""];
  if (value < 1e-3) return [few(value * 1e6), "µs"];
  return value < 1 ? [few(value * 1e3), "ms"] : [few(value), "s"];
}
const time = (value) => seconds(value).join(" ").trim();

/** A span of seconds in its two largest units. */
function span(value) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = Math.max(0, units.findIndex(([size]) => value >= size));
  if (value < 1) return "under 1 s";
  let left = Math.floor(value);
  const parts = [];
  for (const [size, unit] of units.slice(first, first + 2)) {
    if (left >= size) parts.push(`${Math.floor(left / size)} ${unit}`);
    left %= size;
  }
  return parts.join(" ");
}

function value(id, [number, unit]) {
  if (at(id).dataset.shown === number + unit) return;
  at(id).dataset.shown = number + unit;
  at(id).replaceChildren(number, ...(unit ? [make("small", {}, unit)] : []));
}

// -- asking the server -------------------------------------------------------------------------------------

/** What the server refuses, as it says it. */
class Problem extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

/** Nothing answers. */
class Unanswered extends Error {}

const basic = (user, password) =>
  "Basic " + btoa(String.fromCharCode(...new TextEncoder().encode(`${user}:${password}`)));

let authorization = sessionStorage.getItem(KEPT);
let open = false; // whether the server has no users
let admin = true; // whether it shows us its numbers, as far as is known

/** Ask; raises a `Problem`, or `Unanswered`. */
async function ask(method, path, body, own = authorization ?? (open ? basic("admin", "") : null)) {
  const headers = {};
  if (own !== null) headers.Authorization = own;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  // without "omit", a browser would ask for a password by itself
  const more = { credentials: "omit", cache: "no-store", redirect: "error", signal: AbortSignal.timeout(10000) };
  let answer, found;
  try {
    answer = await fetch(path, { method, headers, body, ...more });
    found = await answer.json();
  } catch (error) {
    if (answer && error instanceof SyntaxError) throw new Problem(answer.status, "The answer is not the server's.");
    throw new Unanswered("The server does not answer.");
  }
  if (!answer.ok) throw new Problem(answer.status, [found.title, found.detail].filter(Boolean).join(": ") || `status ${answer.status}`);
  return found;
}

// -- looking, again and again ------------------------------------------------------------------------------

let answered = null; // when the server answered last
let looks = []; // what was seen: counts by which rates are computed
let points = []; // what the charts show
let asleep = null;
let round = 0; // one look follows another, but for that of somebody who signs in or out

async function look() {
  clearTimeout(asleep);
  const mine = ++round, signedOut = authorization === null && !open && !at("sign-in").hidden;
  try {
    const found = await ask("GET", signedOut ? "/healthz" : admin ? "/status" : "/statistics", undefined, authorization);
    if (mine !== round) return;
    answered = new Date();
    if (!signedOut) (admin ? show : showOwn)(found);
    say(signedOut ? "Signed out" : "Live", "good");
  } catch (error) {
    if (mine !== round) return;
    if (error.status === 401) { open = false; return signOut(authorization === null ? "" : error.message); }
    if (error.status === 403 && admin) { admin = false; return look(); }
    if (!(error instanceof Unanswered || error instanceof Problem)) throw error;
    if (error instanceof Problem) say(`The server says: ${error.message}`, "bad");
    else say(answered ? `No answer since ${answered.toLocaleTimeString()}` : "No answer", "bad");
  }
  asleep = setTimeout(look, EVERY);
}

/** Say how it is; heard by screen readers, so only when it changes. */
function say(text, how) {
  put("state", text);
  at("state").className = `state ${how}`;
  for (const id of ["watch", "own"]) at(id).classList.toggle("stale", how === "bad");
}

function show(status) {
  if (looks.length && status.uptime < looks.at(-1).uptime) [looks, points] = [[], []]; // it was started again
  open = status.open;
  for (const id of ["watch", "try"]) at(id).hidden = false;
  at("own").hidden = true;
  who();
  looks.push(status);
  while (status.uptime - looks[0].uptime > WINDOW + 1) looks.shift();
  const before = looks[0];
  const filters = status.filters.map((one) => between(before.filters.find((old) => old.name === one.name), one));
  const passed = status.uptime - before.uptime;
  const now = looks.length > 1 ? sum(filters) : null;
  const all = sum(status.filters.map((one) => between(undefined, one)));
  const rate = now && now.events / passed;
  points.push({ at: status.uptime, mean: mean(now), p99: quantile(now, 0.99), rate });
  while (status.uptime - points[0].at > SHOWN) points.shift();

  put("about", `version ${status.version} · up ${span(status.uptime)}${status.standby ? " · standing by" : status.ready ? "" : " · not ready yet"}`);
  value("mean", seconds(mean(now)));
  put("mean-all", `since start ${time(mean(all))}`);
  value("p99", seconds(quantile(now, 0.99)));
  put("p99-all", `since start ${time(quantile(all, 0.99))}`);
  value("rate", rate === null ? ["–", ""] : [few(rate), "/s"]);
  put("rate-all", `${whole.format(all.events)} since start`);
  value("queue", [whole.format(status.waiting_entries), ""]);
  put("queue-all", `${bytes(status.waiting_bytes)} to write`);
  value("held", [whole.format(status.subscriptions), ""]);
  put("held-all", `${whole.format(status.waiting_deliveries)} in backlogs`);
  charts(status.uptime, all.events);
  showFilters(filters, passed);
  showStages(before === status ? [] : before.stages, status.stages);
  showSlowest(status.slowest);
  showPlans(status.filters);
  showEstimates(status.filters);
  showSites(status.site);
  offer(status.filters.map((one) => one.name));
}

function showOwn(found) {
  for (const id of ["own", "try"]) at(id).hidden = false;
  at("watch").hidden = true;
  who(found.user);
  put("own-subscriptions", whole.format(found.subscriptions));
  put("own-pending", whole.format(found.pending));
  if (!at("try-filter").options.length) ask("GET", "/filters").then((got) => offer(got.filters.map((one) => one.name)), () => {});
}

const bytes = (value) => (value < 1024 ? `${value} bytes` : value < 2 ** 20 ? `${few(value / 1024)} KiB` : `${few(value / 2 ** 20)} MiB`);

// -- what came between two looks ---------------------------------------------------------------------------

/** The counts of a filter since an earlier look; all of them where there is none. */
function between(old, now) {
  const { name, subscriptions, response } = now;
  if (!response) return { name, subscriptions, events: 0, matches: 0, bounds: [], counts: [], sum: 0 };
  const counts = response.counts.map((value, i) => value - (old?.response?.counts[i] ?? 0));
  return {
    name, subscriptions, counts, bounds: response.bounds, sum: response.sum - (old?.response?.sum ?? 0),
    events: now.events - (old?.events ?? 0), matches: now.matches - (old?.matches ?? 0),
  };
}

function sum(filters) {
  const total = { events: 0, matches: 0, sum: 0, bounds: [], counts: [] };
  for (const one of filters) {
    for (const name of ["events", "matches", "sum"]) total[name] += one[name];
    if (one.bounds.length) total.bounds = one.bounds;
    one.counts.forEach((value, i) => { total.counts[i] = (total.counts[i] ?? 0) + value; });
  }
  return total;
}

const total = (found) => found.counts.reduce((a, b) => a + b, 0);
const mean = (found) => (found && total(found) ? found.sum / total(found) : null);

/** A quantile of a histogram, as if values were spread evenly over each bucket. */
function quantile(found, share) {
  if (!found || !total(found)) return null;
  let left = share * total(found);
  for (const [i, inside] of found.counts.entries()) {
    if (i === found.bounds.length) break; // beyond the last bound, nobody knows how far
    const low = i ? found.bounds[i - 1] : 0;
    if (inside && left <= inside) return low + (found.bounds[i] - low) * (left / inside);
    left -= inside;
  }
  return found.bounds.at(-1);
}

// -- charts ------------------------------------------------------------------------------------------------

function charts(now, events) {
  const times = points.flatMap((one) => [one.mean, one.p99]).filter((one) => one !== null);
  draw(at("response-chart"), now, [["two", "p99"], ["one", "mean"]], time, 1e-3);
  draw(at("rate-chart"), now, [["one", "rate"]], few, 10);
  const known = points.filter((one) => one.mean !== null), rates = points.map((one) => one.rate ?? 0);
  if (!times.length) {
    const none = events ? `No events in the time shown, ${whole.format(events)} since the server started.` : "No events yet.";
    for (const id of ["response-text", "rate-text"]) put(id, none);
    return;
  }
  const range = (name) => `${time(Math.min(...known.map((one) => one[name])))} to ${time(Math.max(...known.map((one) => one[name])))}`;
  put("response-text", `Mean ${range("mean")}, p99 ${range("p99")}.`);
  put("rate-text", `Up to ${few(Math.max(...rates))} events a second.`);
}

/** Draw lines of some names of the points, the last one with its area, over the last seconds. */
function draw(svg, now, lines, label, least) {
  const width = svg.clientWidth, height = svg.clientHeight;
  if (!width) return;
  const most = Math.max(least, ...points.flatMap((one) => lines.map(([, name]) => one[name] ?? 0)));
  const step = nice(most / 3), top = Math.ceil(most / step - 1e-9) * step;
  const left = 62, bottom = height - 20, high = 8;
  const shown = Math.max(LEAST, now - points[0].at);
  const x = (t) => width - 6 - ((now - t) / shown) * (width - 6 - left);
  const y = (v) => bottom - (v / top) * (bottom - high);
  const parts = [];
  const add = (tag, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, given] of Object.entries(attributes)) element.setAttribute(name, given);
    if (text !== undefined) element.textContent = text;
    parts.push(element);
  };
  for (let v = 0; v <= top + step / 2; v += step) {
    add("line", { class: "grid", x1: left, x2: width, y1: y(v), y2: y(v) });
    add("text", { x: left - 8, y: y(v) + 4, "text-anchor": "end" }, v ? label(v) : "0");
  }
  for (const [ago, text, anchor] of [[shown, `${span(10 * Math.round(shown / 10))} ago`, "start"], [0, "now", "end"]]) {
    add("text", { x: x(now - ago), y: height - 3, "text-anchor": anchor }, text);
  }
  for (const [shade, name] of lines) {
    for (const run of runs(name)) {
      const path = run.map((one, i) => `${i ? "L" : "M"}${x(one.at).toFixed(1)} ${y(one[name]).toFixed(1)}`).join("");
      if (shade === "one") add("path", { class: "area", d: `${path}L${x(run.at(-1).at).toFixed(1)} ${bottom}L${x(run[0].at).toFixed(1)} ${bottom}Z` });
      add("path", { class: shade, d: path });
    }
  }
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren(...parts);
}

/** The points with a value, in runs without a gap. */
function runs(name) {
  const found = [[]];
  let last = null;
  for (const one of points) {
    if (one[name] === null || (last !== null && one.at - last > WINDOW)) found.push([]);
    if (one[name] !== null) found.at(-1).push(one);
    last = one.at;
  }
  return found.filter((run) => run.length > 1);
}

/** A round number that is not smaller. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 2.5, 5, 10].find((one) => one * power >= value * 0.999);
}

// -- tables ------------------------------------------------------------------------------------------------

/** Fill a table with rows of texts and elements; the first cell is the head of its row. */
function fill(id, rows, columns, none) {
  const shown = rows.length ? rows : [[none]];
  at(id).replaceChildren(...shown.map((cells) => make("tr", {}, ...cells.map((cell, i) => {
    if (!rows.length) return make("td", { class: "none", colspan: columns }, cell);
    if (cell instanceof Element) return make("td", { class: "bar" }, cell);
    return i ? make("td", {}, cell) : make("th", { scope: "row" }, cell);
  }))));
}

function showFilters(filters, passed) {
  const busy = filters.toSorted((a, b) => b.events - a.events).slice(0, 10);
  const rows = busy.map((one) => [
    one.name, whole.format(one.subscriptions), few(one.events / Math.max(passed, 1)),
    one.events ? few(one.matches / one.events) : "–", time(mean(one)), time(quantile(one, 0.99)),
  ]);
  if (filters.length > busy.length) rows.push([`and ${filters.length - busy.length} more`, "", "", "", "", ""]);
  fill("filters", rows, 6, "There is no filter yet.");
}

function showStages(before, now) {
  const means = now.map(({ name, count, sum }) => {
    const old = before.find((one) => one.name === name) ?? { count: 0, sum: 0 };
    return [name, count > old.count ? (sum - old.sum) / (count - old.count) : null];
  });
  const most = Math.max(...means.map(([, one]) => one ?? 0)) || 1;
  fill("stages", means.map(([name, one]) => [name, time(one), bar((one ?? 0) / most)]), 3, "");
}

/** A bar that is so full, from 0 to 1. */
function bar(share) {
  const inner = make("div", { class: "fill" });
  inner.style.width = `${100 * share}%`;
  return make("div", { class: "track" }, inner);
}

function showSlowest(users) {
  const rows = users.map((one) => [one.user, whole.format(one.pending), span(one.age), one.connected ? "yes" : "no"]);
  fill("slowest", rows, 4, "Nobody has deliveries that wait.");
}

function showSites(site) {
  at("sites").hidden = site === null;
  if (site === null) return;
  const place = site.root ? "at the root" : site.parent ? `below ${site.parent}` : "cut off";
  put("site", `${site.site}, ${place}${site.current ? "" : ", catching up"}`);
  const rows = site.neighbours.map((one) => [one.site, one.connected ? "yes" : "no", whole.format(one.waiting)]);
  fill("neighbours", rows, 3, "There is no other site yet.");
}

function showPlans(filters) {
  const plans = filters.flatMap((one) => one.plans.map((plan) => ({ ...plan, name: one.name, height: one.height })));
  const most = plans.toSorted((a, b) => b.batches - a.batches).slice(0, 8);
  most.sort((a, b) => a.name.localeCompare(b.name) || a.size_class - b.size_class);
  const rows = most.map((plan) => [
    plan.name, `${whole.format(plan.size_class)}–${whole.format(2 * plan.size_class - 1)}`, whole.format(plan.batches),
    plan.height ? `${plan.level} of ${plan.height}` : String(plan.level),
    plan.group === null ? "whole batch" : whole.format(plan.group), plan.stable ? "settled" : "trying",
  ]);
  fill("plans", rows, 6, "No batch of two events or more has come yet.");
}

function showEstimates(filters) {
  const found = new Map();
  for (const { nodes, events, visits } of filters.flatMap((one) => one.estimates)) {
    const before = found.get(nodes) ?? { events: 0, visits: 0 };
    found.set(nodes, { events: before.events + events, visits: before.visits + visits });
  }
  const all = [...found].sort(([a], [b]) => (a ?? Infinity) - (b ?? Infinity));
  const most = Math.max(1, ...all.map(([, one]) => one.visits / one.events));
  const rows = all.map(([nodes, one]) => {
    const visited = one.visits / one.events;
    const name = nodes === null ? "more" : nodes <= 2 ? String(nodes) : `${whole.format(nodes / 2 + 1)}–${whole.format(nodes)}`;
    return [name, whole.format(one.events), few(visited), bar(visited / most)];
  });
  fill("estimates", rows, 4, "No event was estimated yet.");
}

// -- who looks ---------------------------------------------------------------------------------------------

let name = null; // of whom it is known

function who(user = name) {
  name = user;
  at("sign-in").hidden ||= authorization !== null;
  at("leave").hidden = authorization === null;
  at("enter").hidden = authorization !== null || !open;
  at("user").hidden = false;
  put("user", user ?? (open ? "admin, as this server has no users" : ""));
}

/** Forget who looks, and ask. */
function signOut(why = "") {
  sessionStorage.removeItem(KEPT);
  [authorization, name, admin, looks, points] = [null, null, true, [], []];
  for (const id of ["watch", "own", "try", "leave", "user"]) at(id).hidden = true;
  for (const id of ["found", "why-lines", "try-filter"]) at(id).replaceChildren();
  for (const id of ["found-text", "why-where", "why-title", "try-error", "why-error"]) put(id, "");
  at("try-event").value = "";
  at("sign-in").hidden = open;
  put("sign-in-error", why);
  look();
}

at("leave").addEventListener("click", () => {
  signOut();
  (open ? at("state") : at("sign-in-user")).focus();
});

at("enter").addEventListener("click", () => {
  at("sign-in").hidden = !at("sign-in").hidden;
  if (!at("sign-in").hidden) at("sign-in-user").focus();
});

at("sign-in-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const user = at("sign-in-user").value, secret = at("sign-in-secret").value;
  put("sign-in-error", "");
  if (!user && !secret) return put("sign-in-error", "Give a user and a password, or a token.");
  const own = user ? basic(user, secret) : `Bearer ${secret.trim()}`;
  try {
    const found = await ask("GET", "/statistics", undefined, own);
    [authorization, name, admin, looks, points] = [own, found.user, true, [], []];
    sessionStorage.setItem(KEPT, own);
    at("sign-in-form").reset();
    at("sign-in").hidden = true;
    await look();
    at("leave").focus();
  } catch (error) {
    put("sign-in-error", error.message);
  }
});

// -- try an event ------------------------------------------------------------------------------------------

let prefilled = ""; // what was put into the field, as long as nobody changed it

/** Offer filters, and an event of the first one. */
function offer(names) {
  const select = at("try-filter");
  if (names.join("\n") === [...select.options].map((one) => one.value).join("\n")) return;
  const before = select.value;
  select.replaceChildren(...names.map((one) => make("option", { value: one }, one)));
  if (names.includes(before)) select.value = before;
  else if (names.length) prefill();
}

const path = (rest) => `/filters/${encodeURIComponent(at("try-filter").value)}/${rest}`;

/** Write an event of the filter's schema, unless somebody has written one. */
async function prefill() {
  const chosen = at("try-filter").value;
  const begun = () => at("try-event").value !== prefilled || at("try-filter").value !== chosen;
  if (begun()) return;
  try {
    const { schema } = await ask("GET", path("").slice(0, -1));
    const event = {};
    for (const attribute of schema.attributes ?? schema) { // a strict one has them inside
      const parts = attribute.name.split(".");
      const inner = parts.slice(0, -1).reduce((place, part) => (typeof place[part] === "object" ? place[part] : (place[part] = {})), event);
      inner[parts.at(-1)] = example(attribute);
    }
    if (begun()) return; // somebody has begun meanwhile, or looks at another filter
    at("try-event").value = prefilled = JSON.stringify(event, null, 2);
  } catch (error) {
    put("try-error", error.message);
  }
}

function example({ type, low, high }) {
  const number = typeof low === "number" && typeof high === "number" ? (low + high) / 2 : (low ?? high ?? 1);
  return { int: Math.floor(number), float: number, str: "text", bool: true, timestamp: low ?? new Date().toISOString() }[type];
}

at("try-filter").addEventListener("change", prefill);

at("try-stored").addEventListener("click", async () => {
  put("try-error", "");
  try {
    const since = Date.now() / 1000 - 60;
    let { events } = await ask("GET", path(`events?limit=1&since=${since}`));
    if (!events.length) ({ events } = await ask("GET", path("events?limit=1")));
    if (!events.length) return put("try-error", "No event is stored.");
    at("try-event").value = prefilled = JSON.stringify(events[0].event, null, 2);
  } catch (error) {
    put("try-error", error.message);
  }
});

at("try-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  for (const id of ["try-error", "why-error"]) put(id, "");
  at("found").replaceChildren();
  clearWhy();
  try {
    const { matches: [ids] } = await ask("POST", path("match"), at("try-event").value);
    put("found-text", ids.length ? `${count(ids.length, "subscription")} ${ids.length === 1 ? "matches" : "match"}.` : "No subscription matches.");
    at("found").replaceChildren(...ids.slice(0, 20).map(item));
    if (ids.length > 20) at("found").append(make("li", {}, `and ${whole.format(ids.length - 20)} more`));
  } catch (error) {
    put("found-text", "");
    put("try-error", error.message);
  }
});

/** A subscription that matches, with its condition as soon as it is known. */
function item(id) {
  const text = make("span", { class: "text" });
  const button = make("button", { type: "button", class: "second", "aria-label": `Why does ${id} match?` }, "Why?");
  button.addEventListener("click", () => why(id));
  ask("GET", `/subscriptions/${id}`).then((one) => {
    text.append(make("code", {}, condition(one)), make("span", { class: "user" }, ` ${one.user}`));
  }, () => {});
  return make("li", {}, make("span", { class: "id" }, String(id)), text, button);
}

const condition = ({ where }) => (typeof where === "string" ? where : JSON.stringify(where));

function clearWhy() {
  for (const id of ["why-title", "why-where", "why-lines"]) at(id).hidden = true;
}

at("why-form").addEventListener("submit", (event) => {
  event.preventDefault();
  why(at("why-id").value);
});

/** Say why a subscription matches the event, or not. */
async function why(id) {
  put("why-error", "");
  clearWhy();
  try {
    const event = at("try-event").value;
    JSON.parse(event); // or the question would be another one
    const { matched, report } = await ask("POST", path("explain"), `{"subscription": ${BigInt(id)}, "event": ${event}}`);
    put("why-title", `Subscription ${id} ${matched ? "matches" : "does not match"}`);
    put("why-where", await ask("GET", `/subscriptions/${BigInt(id)}`).then(condition, () => ""));
    at("why-lines").replaceChildren(...report.slice(1).map((line) => {
      const [, how] = line.match(/^\s*(yes|no)\b/) ?? [];
      return make("li", how ? { class: how } : {}, line);
    }));
    for (const shown of ["why-title", "why-where", "why-lines"]) at(shown).hidden = false;
  } catch (error) {
    put("why-error", error instanceof SyntaxError ? `The event is not JSON: ${error.message}` : error.message);
  }
}

at("state").tabIndex = -1;
addEventListener("resize", () => { if (looks.length) charts(looks.at(-1).uptime); });
look();
