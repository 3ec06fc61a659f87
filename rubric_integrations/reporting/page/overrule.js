/* The reader's own answers: overruled, confirmed, exported and merged. */
const BINARY = ["MET", "UNMET", "CANNOT_ASSESS"];
const seenIn = data.columns.map(() => null);
const seenAnswers = (criterion) => {
  const place = data.kind === "criteria" ? data.columns.findIndex((column) => isOf(column, criterion.name, criterion.requirement)) : -1;
  if (place >= 0) seenIn[place] ||= [...new Set(data.rows.map((row) => valueAt(row, last, place)?.verdict).filter(Boolean))];
  return [...(place >= 0 ? seenIn[place] : []), ...criterion.answers.map((answer) => answer?.verdict).filter(Boolean)];
};
/* What the reader answers here is no sample, and the judge's answer stands beside it. A drawn judgment that was labelled
   before keeps its mark. */
const setLabel = (row, criterion, verdict) => {
  const before = store.own(row, criterion);
  const blind = Boolean(before?.blind && before.verdict === verdict);
  store.set(row, criterion, { reason: before?.reason, sampled: before?.sampled || "chosen", blind, verdict });
  showLabels();
};
const overrule = (row, criterion) => {
  const { options: known = [], range } = criterion;
  const seen = known.length || range ? known : seenAnswers(criterion);
  const isBinary = !range && !known.length && seen.every((verdict) => BINARY.includes(verdict));
  const words = isBinary ? BINARY : [...new Set([...seen, "CANNOT_ASSESS"])];
  const label = store.own(row, criterion);
  const name = "Your answer to " + criterion.name;
  const judged = criterion.answers[last]?.verdict;
  const problem = make("span", { role: "alert" });
  const confirm = make("button", { type: "button", "aria-label": "Confirm " + criterion.name + ": " + judged }, "confirm");
  const showConfirmed = () => confirm.setAttribute("aria-pressed", String(store.own(row, criterion)?.verdict === judged));
  const set = (event) => {
    const { value } = event.target;
    const answer = value.trim() ? readAnswer(value, criterion) : { verdict: "" };
    problem.textContent = answer.problem || "";
    if (!answer.problem) setLabel(row, criterion, answer.verdict);
    showConfirmed();
  };
  const cellOf = (control) => {
    confirm.addEventListener("click", () => { setLabel(row, criterion, judged); control.value = judged; problem.textContent = ""; showConfirmed(); });
    showConfirmed();
    const controls = [["answered", "abstained"].includes(criterion.answers[last]?.state) ? confirm : null, control];
    if (!label) return make("td", { class: "label" }, ...controls, problem);
    /* A key on a focused field would replace the label. */
    for (const each of controls) if (each) each.disabled = true;
    const change = make("button", { type: "button", "aria-label": "Change " + name.toLowerCase(), onclick: () => { for (const each of controls) if (each) each.disabled = false; change.remove(); control.focus(); } }, "change");
    return make("td", { class: "label" }, ...controls, change, problem);
  };
  /* A number is typed, and so is an option that a run of an earlier version does not have, and no other row shows. */
  if (range || (!isBinary && words.length < 3)) {
    const input = make("input", { "aria-label": name, placeholder: range ? range[0] + " to " + range[1] : "not labelled", size: "12", onchange: set });
    input.value = label?.verdict || "";
    return cellOf(input);
  }
  const select = make("select", { "aria-label": name, oninput: set }, ...options([["", "not labelled"], ...words.map((word) => [word, word])]));
  if (label && !words.includes(label.verdict)) select.append(make("option", { value: label.verdict }, label.verdict));
  select.value = label?.verdict || "";
  return cellOf(select);
};
const save = async () => {
  const lines = await store.lines();
  const name = store.rater.replace(/[^\p{L}\p{N}._-]+/gu, "-");
  const link = make("a", { download: name ? "labels-" + name + ".jsonl" : "labels.jsonl", href: URL.createObjectURL(new Blob(lines.map((line) => line + "\n"), { type: "application/jsonl" })) });
  link.click();
  URL.revokeObjectURL(link.href);
};
const totalLabels = () => [...store.counts.values()].reduce((a, b) => a + b, 0);
const status = make("span", { role: "status" });
const rater = make("input", { size: "14", autocomplete: "name", onchange: () => { store.setRater(rater.value); showLabels(); rerender(); } });
const file = make("input", { type: "file", accept: ".jsonl", onchange: async () => { if (file.files[0]) { showLabels(await store.merge(await file.files[0].text())); rerender(); } } });
const remove = () => { if (confirm("Delete all " + number(totalLabels(), "label") + " of this page?")) { store.clear(); showLabels(); rerender(); } };
const buttons = [make("button", { type: "button", onclick: save }, "Export labels"), make("button", { type: "button", onclick: remove }, "Delete labels")];
$("labels").append(status, make("label", {}, "your name", rater), ...buttons, make("label", {}, "merge a file of labels", file));
function showLabels(merged) {
  const { counts, shared } = store;
  const words = totalLabels() ? [...counts].map(([who, count]) => number(count, "label") + (who ? " by " + who : "")).join(", ") + ", stored in this browser." : data.queue ? "No labels yet." : "Open a submission to confirm or overrule its answers.";
  const several = shared.judgments ? " Of " + number(shared.judgments, "judgment") + " with several raters, they disagree on " + shared.disagreements + "." : "";
  const result = merged ? " " + number(merged.added, "label") + " merged" + (merged.unknown ? ", and " + merged.unknown + " that belong to no judgment of this page were left out." : ".") : "";
  status.textContent = words + several + result;
  rater.value = store.rater;
  for (const button of buttons) button.hidden = !totalLabels();
}
