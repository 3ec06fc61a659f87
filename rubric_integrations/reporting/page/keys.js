/* What the keyboard does: each key with its words for the help, and its action. Others add a line. */
let cursor = -1; /* the place in the list where j and k are */
const step = (by) => {
  if (state.view !== "table") { go({ view: "table" }); }
  const from = opened === null ? cursor : shown.indexOf(data.rows[opened]);
  cursor = Math.max(0, Math.min(shown.length - 1, from + by));
  const row = shown[cursor];
  if (!row) return;
  if (opened === null) reveal(row, true);
  else go({ row: row.number });
};
const pickCriterion = () => {
  go({ view: "overview" });
  $("worst")?.scrollIntoView();
  document.querySelector("[data-worst]")?.focus();
};
const KEYS = [
  ["j", "the next submission", () => step(1)],
  ["k", "the previous submission", () => step(-1)],
  ["Enter", "open the submission", () => { const row = shown[Math.max(0, cursor)]; if (row) go({ view: "table", row: row.number }); }],
  ["Escape", "close it", () => (help.open ? help.close() : opened === null ? go({ view: "overview" }) : go({ row: null }))],
  ["/", "search", () => { go({ view: "table" }); controls.text.focus(); }],
  ["c", "the criteria by what they cost; then a digit shows those that miss it", pickCriterion],
  ["m", "Markdown or its source", () => toggleSource()],
  ["o", "overrule the judge's answers", () => document.body.classList.toggle("overruling")],
  ["w", "the submission in the whole width", () => widen()],
  ["g", "the overview", () => go({ view: "overview" })],
  ["t", "the table", () => go({ view: "table" })],
  ["?", "these keys", () => help.showModal()],
];
const help = make("dialog", { id: "help", "aria-label": "Keys" });
const usesKeys = { get value() { return localStorageText("rubric-keys") !== "off"; } };
const showHelp = () => {
  const off = make("input", { type: "checkbox", onchange: () => keepText("rubric-keys", off.checked ? "" : "off") });
  off.checked = usesKeys.value;
  help.replaceChildren(make("h2", {}, "Keys"), make("dl", {}, ...KEYS.flatMap(([key, words]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, words)])), make("label", { class: "inline" }, off, " use these keys"), make("form", { method: "dialog" }, make("button", {}, "Close")));
};
const localStorageText = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
const keepText = (name, words) => { try { localStorage.setItem(name, words); } catch { /* a private window keeps nothing */ } };
document.body.append(help);
showHelp();
addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented || state.view === "label") return;
  const isField = event.target.closest("input, select, textarea");
  if (isField) { if (event.key === "Escape") { event.target.blur(); event.preventDefault(); } return; }
  const isControl = event.target.closest("a, button, summary");
  if (event.key === "Enter" && isControl) return;
  if (!usesKeys.value && event.key !== "Escape") return;
  if (/^[1-9]$/.test(event.key) && state.view === "overview") {
    const link = document.querySelectorAll("[data-worst]")[Number(event.key) - 1];
    if (link) { event.preventDefault(); cursor = -1; location.hash = link.hash; }
    return;
  }
  const turn = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (turn && opened !== null) { event.preventDefault(); step(turn); return; }
  const action = KEYS.find(([key]) => key === event.key)?.[2];
  if (action) { event.preventDefault(); action(); }
});
