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
  redraw();
  showByYou(row);
};
/* The score with the reader's answers, beside the judge's. */
const byYou = make("p", { id: "by-you", role: "status" });
const showByYou = async (row) => {
  if (!store.ofRow(row).length) { byYou.replaceChildren(); return; }
  const texts = await load(row);
  if (opened !== row.number) return;
  const grade = texts.grades[last];
  if (texts.criteria.every((criterion) => [undefined, criterion.answers[last]?.verdict].includes(store.own(row, criterion)?.verdict))) { byYou.replaceChildren(make("b", {}, "By you:"), " as the judge. ", saveAnswers()); return; }
  const now = gradeWith(texts.criteria, grade, (criterion) => store.own(row, criterion)?.verdict);
  const words = now.problem ? " the score cannot be computed here: " + now.problem + "."
    : " " + scoreText(grade) + " \u2192 " + (now.score === null ? "undefined" : now.score.toFixed(3)) + ", " + (now.passes === null ? "and the run file does not say the pass mark" : (now.passes ? "passed" : "not passed") + " (pass mark " + now.mark + ")") + ".";
  byYou.replaceChildren(make("b", {}, "By you:"), words, " ", saveAnswers());
};
const saveAnswers = () => make("button", { type: "button", onclick: save }, "Save your answers");
/* Shows the controls beside the answers, and puts the keyboard on the first that can be used. */
const toggleOverruling = () => {
  const isOn = document.body.classList.toggle("overruling");
  $("one").querySelector(".overrule")?.setAttribute("aria-pressed", String(isOn));
  if (isOn) $("one").querySelector(".label :is(button, select, input):enabled")?.focus();
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
  const showConfirmed = () => {
    const own = store.own(row, criterion);
    confirm.setAttribute("aria-pressed", String(Boolean(own) && own.verdict === judged));
    if (own) cell.append(note);
    else note.remove();
  };
  const set = (event) => {
    const { value } = event.target;
    const answer = value.trim() ? readAnswer(value, criterion) : { verdict: "" };
    problem.textContent = answer.problem || "";
    if (!answer.problem) setLabel(row, criterion, answer.verdict);
    showConfirmed();
  };
  const note = make("input", { class: "note", "aria-label": "Note on " + criterion.name, placeholder: "note: why", onchange: () => { store.set(row, criterion, { ...store.own(row, criterion), reason: note.value.trim() }); } });
  note.value = label?.reason || "";
  const cell = make("td", { class: "label" });
  const cellOf = (control) => {
    confirm.addEventListener("click", () => { setLabel(row, criterion, judged); control.value = judged; problem.textContent = ""; showConfirmed(); });
    const controls = [["answered", "abstained"].includes(criterion.answers[last]?.state) ? confirm : null, control];
    cell.append(...controls.filter(Boolean), problem);
    showConfirmed();
    if (!label) return cell;
    /* A key on a focused field would replace the label. */
    for (const each of controls) if (each) each.disabled = true;
    const change = make("button", { type: "button", "aria-label": "Change " + name.toLowerCase(), onclick: () => { for (const each of controls) if (each) each.disabled = false; change.remove(); control.focus(); } }, "change");
    problem.before(change);
    return cell;
  };
  /* A number is typed, and so is an option that a run of an earlier version does not have, and no other row shows. */
  if (range || (!isBinary && words.length < 3)) {
    const input = make("input", { "aria-label": name, placeholder: range ? range[0] + " to " + range[1] : "not labelled", size: "12", onchange: set });
    input.value = label?.verdict || "";
    return cellOf(input);
  }
  const select = make("select", { "aria-label": name, oninput: set }, ...options([["", "choose"], ...words.map((word) => [word, word === "CANNOT_ASSESS" ? "cannot tell" : inWords({ verdict: word }, criterion.weight)])]));
  if (label && !words.includes(label.verdict)) select.append(make("option", { value: label.verdict }, label.verdict));
  select.value = label?.verdict || "";
  return cellOf(select);
};
const saveText = (name, ...parts) => {
  const link = make("a", { download: name, href: URL.createObjectURL(new Blob(parts, { type: "application/octet-stream" })) });
  link.click();
  URL.revokeObjectURL(link.href);
};
const save = async () => {
  const lines = await store.lines();
  const name = store.rater.replace(/[^\p{L}\p{N}._-]+/gu, "-");
  saveText(name ? "labels-" + name + ".jsonl" : "labels.jsonl", ...lines.map((line) => line + "\n"));
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
