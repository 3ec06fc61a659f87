/* The views, and the state of the page in its address: a view, the filters, and the open row. */
const views = [...document.querySelectorAll("[data-view]")].map((element) => element.dataset.view);
const state = { view: null, row: null };
const addressOf = () => {
  const query = new URLSearchParams(Object.entries(filters).filter(([name, value]) => value !== FILTERS[name]));
  if (state.row !== null) query.set("row", state.row);
  const text = query.toString();
  return "#" + state.view + (text ? "?" + text : "");
};
const firstView = () => (data.queue ? "label" : many ? "many" : two ? "compare" : "overview");
/* The filters of an address; one that this page does not have is left out. */
const chosenFrom = (values) => Object.fromEntries(Object.entries(FILTERS).map(([name, value]) => {
  const chosen = values.get(name) ?? value;
  return [name, name === "text" || [...(controls[name]?.options || [])].some((option) => option.value === chosen) ? chosen : value];
}));
/* Reads the address. `#s12` opens a row in the list as it is filtered. */
const readAddress = () => {
  const row = /^#s(\d+)$/.exec(location.hash);
  if (row) return { view: "table", row: Number(row[1]), filters: { ...filters } };
  const [name, query] = location.hash.slice(1).split("?");
  const values = new URLSearchParams(query || "");
  return { view: ["list", "submissions"].includes(name) ? "table" : views.includes(name) ? name : firstView(), row: values.has("row") ? Number(values.get("row")) : null, filters: chosenFrom(values) };
};
/* Changes the address, and with it the page. `replaces` is true for what nobody goes back to, such as a letter typed. */
function go(changes, replaces = false) {
  const { view = state.view, row = state.row, ...chosen } = changes;
  Object.assign(filters, chosen);
  Object.assign(state, { view: view === "overview" && Object.keys(chosen).length ? "table" : view, row: view === "table" ? row : null });
  const address = addressOf();
  if (address !== location.hash) history[replaces ? "replaceState" : "pushState"](null, "", address);
  show();
}
const labelling = data.queue && labellingView({ data, load, make, $, store, textsOf, titleOf, linkOf, changed: () => showLabels(), save });
let shownFor = null, viewShown = null;
function show() {
  if (viewShown !== null && viewShown !== state.view) scrollTo(0, 0);
  viewShown = state.view;
  const focused = document.activeElement;
  for (const element of document.querySelectorAll("[data-view]")) {
    element.hidden = element.dataset.view !== state.view;
    if (element.hidden && element.contains(focused)) document.querySelector(`[data-view="${state.view}"]`).focus({ preventScroll: true });
  }
  for (const link of document.querySelectorAll("#views a")) { if (link.hash === "#" + state.view) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current"); }
  if (state.view !== "label") $("label-texts")?.replaceChildren();
  showPair();
  for (const [name, control] of Object.entries(controls)) if (control.value !== filters[name]) control.value = filters[name];
  if (filters.text !== searched) search();
  const asked = JSON.stringify(filters);
  const opens = state.view === "table" && state.row !== null && Boolean(data.rows[state.row]);
  document.body.classList.toggle("with-panel", opens);
  /* Beside it, the list would show the judge's answers to other submissions, whose labels were then not blind. */
  if (opens && data.queue && opened === null) document.body.classList.add("wide");
  if (state.view === "table") {
    if (shownFor !== asked) { cursor = -1; $("window").scrollTop = 0; showList(); } else redraw();
    shownFor = asked;
  }
  /* With another criterion filtered, another answer comes first. */
  if (opens) { if (opened !== state.row) showOne(state.row); else if (openedFor !== filters.criterion) showOne(state.row, false); }
  else closeOne();
  if (state.view === "label") labelling.show();
  if (state.view === "whatif") whatIf.show();
  if (state.view === "overview" && data.queue) lowest.forEach((row) => store.see(row));
}
function route() {
  const { view, row, filters: chosen } = readAddress();
  Object.assign(filters, chosen);
  Object.assign(state, { view, row });
  const skips = location.hash === "#submissions";
  if (skips || /^#s\d+$/.test(location.hash)) history.replaceState(null, "", addressOf());
  show();
  if (skips) $("submissions").focus();
}
/* Shows the labels again after they have changed. */
const rerender = () => {
  redraw();
  if (opened !== null) showOne(opened, false);
  if (state.view === "label") labelling.show();
};
addEventListener("popstate", route);
addEventListener("hashchange", route);
route();
showLabels();
document.body.dataset.ready = "yes";
