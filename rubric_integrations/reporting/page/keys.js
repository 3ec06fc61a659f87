/* What the keyboard does: each key with its words for the help, and its action. Others add a line. */
const step = (by) => {
  if (state.view !== "table") go({ view: "table" });
  const from = state.row === null ? cursor : shown.indexOf(data.rows[state.row]);
  cursor = Math.max(0, Math.min(shown.length - 1, from + by));
  const row = shown[cursor];
  if (!row) return;
  if (state.row === null) reveal(row, true);
  else go({ row: row.number }, true);
};
const openRow = () => {
  const row = state.view === "table" ? shown[Math.max(0, cursor)] : null;
  if (row) go({ row: row.number });
};
const pickCriterion = () => {
  go({ view: "overview" });
  $("worst")?.scrollIntoView();
  document.querySelector("[data-worst]")?.focus();
};
/* A click on a link is handled later than the next key, so that keys go to its address themselves. A link in a hidden view
   keeps the focus until the page is drawn, and would get the next Enter. */
const follow = (link) => { history.pushState(null, "", link.hash); document.activeElement.blur(); route(); };
const KEYS = [
  ["j", "the next submission", () => step(1)],
  ["k", "the previous submission", () => step(-1)],
  ["Enter", "open the submission", openRow],
  ["Escape", "close it", () => (state.row === null ? go({ view: "overview" }) : go({ row: null }))],
  ["/", "search", () => { go({ view: "table" }); controls.text.focus(); }],
  ["c", "the criteria by what they cost; then a digit shows those that miss it", pickCriterion],
  ["]", "the next step of a run", () => nextStep(1)],
  ["[", "the previous step", () => nextStep(-1)],
  ["m", "Markdown or its source", () => toggleSource()],
  ["o", "overrule the judge's answers", () => toggleOverruling()],
  ["w", "the submission in the whole width", () => widen()],
  ["g", "the overview", () => go({ view: "overview" })],
  ...(two ? [["d", "the difference of two runs", () => go({ view: "compare" })]] : []),
  ...(many ? [["r", "the runs over time", () => go({ view: "many" })]] : []),
  ["t", "the table", () => go({ view: "table" })],
  ["i", "what if the weights were others", () => { if (whatIf) go({ view: "whatif" }); }],
  ["?", "these keys, which can be switched off", () => help.showModal()],
];
const help = make("dialog", { id: "help", "aria-label": "Keys" });
const usesKeys = { get value() { return localStorageText("rubric-keys") !== "off"; } };
const showHelp = () => {
  const off = make("input", { type: "checkbox", onchange: () => keepText("rubric-keys", off.checked ? "" : "off") });
  off.checked = usesKeys.value;
  help.replaceChildren(make("h2", {}, "Keys"), make("dl", {}, ...KEYS.flatMap(([key, words]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, words)])), make("label", { class: "inline" }, off, " use these keys"), make("button", { type: "button", onclick: () => help.close() }, "Close"));
};
const localStorageText = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
const keepText = (name, words) => { try { localStorage.setItem(name, words); } catch { /* a private window keeps nothing */ } };
document.body.append(help);
$("show-keys").addEventListener("click", () => help.showModal());
showHelp();
addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented || state.view === "label") return;
  if (help.open) return; /* the browser closes it at Escape */
  const isField = event.target.closest("input, select, textarea");
  if (isField) {
    /* Down from the search are its results; Enter in a list of choices opens it. */
    const leaves = event.key === "Escape" || (event.key === "Enter" && event.target === controls.text);
    if (leaves && state.view === "table") { event.preventDefault(); if (state.row === null && shown.length) step(0); else $(state.row === null ? "submissions" : "one").focus(); }
    return;
  }
  if (event.key === "Enter" && event.target.closest("a, button, summary") && !event.target.closest("#rows a")) return;
  if (!usesKeys.value && event.key !== "Escape") return;
  if (/^[1-9]$/.test(event.key) && state.view === "overview") {
    const link = document.querySelectorAll("[data-worst]")[Number(event.key) - 1];
    if (link) { event.preventDefault(); follow(link); }
    return;
  }
  const turn = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (turn && state.row !== null && !event.target.closest(".scroll, pre")) { event.preventDefault(); step(turn); return; }
  const action = KEYS.find(([key]) => key === event.key)?.[2];
  if (action) { event.preventDefault(); action(); }
});
