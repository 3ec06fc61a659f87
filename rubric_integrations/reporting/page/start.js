/* Shows one of the views: the list, one submission, or the judgments to label. */
function showView(name) {
  for (const view of ["list", "one", "label"]) if ($(view)) $(view).hidden = view !== name;
  $("overview").hidden = name !== "list";
  if (name !== "one") $("one").replaceChildren(); /* its steps have the same ids as those of a judgment to label */
  if (name !== "label") $("label-texts")?.replaceChildren();
}
const labelling = data.queue && labellingView({ data, load, make, $, store, textsOf, titleOf, linkOf, changed: () => showLabels(), save });
let top = 0; /* where the list was scrolled to, which hiding it may lose */
function route() {
  const match = /^#s(\d+)$/.exec(location.hash);
  if (!$("list").hidden) top = $("window").scrollTop;
  if (match && data.rows[Number(match[1])]) { showOne(Number(match[1])); return; }
  openings++; /* a submission that is still being unpacked must not open now */
  if (labelling && ["", "#label"].includes(location.hash)) { showView("label"); labelling.show(); return; }
  showView("list");
  $("window").scrollTop = top;
  showList();
  $("window").scrollTop = top;
  drawVisible(false);
}
addEventListener("hashchange", route);
addEventListener("keydown", (event) => {
  if ($("one").hidden || event.target.closest("input, select, textarea") || event.altKey || event.ctrlKey || event.metaKey) return;
  const to = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
  const link = event.key === "Escape" ? $("one").querySelector("a") : to && $("one").querySelector("a[rel=" + to + "]");
  if (link) { event.preventDefault(); location.hash = link.hash; }
});
route();
showLabels();
