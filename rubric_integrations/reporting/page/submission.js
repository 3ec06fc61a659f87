/* One submission. */
const text = (title, words) => (words ? [make("h3", {}, title), make("pre", { tabindex: "0" }, words)] : []);
/* A step that an answer cites; without the number of a step that is on the page, it is only text. */
const cite = (number, isLinked) => {
  const open = () => { const step = $("step-" + number); step.open = true; step.scrollIntoView({ block: "center" }); step.firstChild.focus(); };
  return isLinked ? make("button", { type: "button", class: "chip", onclick: open }, "step " + number) : make("span", { class: "chip" }, "step " + number);
};
const showSteps = (steps) => {
  if (!steps) return [];
  const call = ([name, args, result, failed]) => [make("p", { class: "call" }, make("b", {}, name), failed ? " " : null, failed ? make("span", { class: "tag" }, "error") : null),
    ...[["arguments", args], ["result", result]].filter(([, words]) => words !== null).flatMap(([title, words]) => [make("small", {}, title), make("pre", { tabindex: "0", "aria-label": title }, words)])];
  const items = steps.map(([role, who, words, calls], place) => make("li", {}, make("details", { id: "step-" + (place + 1) },
    make("summary", {}, place + 1 + ". " + role + (who ? " " + who : ""), calls.length ? make("small", {}, " calls " + calls.map(([name]) => name).join(", ")) : null, calls.some(([, , , failed]) => failed) ? make("span", { class: "tag" }, "error") : null),
    words ? make("pre", { tabindex: "0" }, words) : null, ...calls.flatMap(call))));
  return [make("h3", {}, "Steps"), make("ol", { class: "steps" }, ...items)];
};
const showFiles = (files) => {
  if (!files) return [];
  const items = files.map(([name, type, size, sha256, url, image], place) => make("li", {}, image ? make("img", { src: image, alt: "attachment " + (place + 1) }) : null,
    make("small", {}, [place + 1 + ". " + (name || "attachment"), type, size === null ? null : size.toLocaleString("en") + " bytes", sha256 && "SHA-256 " + sha256, url].filter(Boolean).join(", "))));
  return [make("h3", {}, "Attachments"), make("ul", { class: "files" }, ...items)];
};
const verdictCell = (answer, steps) => {
  if (!answer) return make("td", {}, "");
  const votes = (answer.more.votes || []).map(([who, verdict, why]) => make("li", {}, who + ": " + (verdict || "failed") + (why ? ", " + why : "")));
  const notes = [];
  if (answer.more.agreement !== undefined && answer.more.agreement !== null) notes.push(Math.round(answer.more.agreement * 100) + " % of the panel agree");
  if (answer.more.confidence !== undefined) notes.push("confidence " + answer.more.confidence.toFixed(2));
  if (answer.more.escalated) notes.push("escalated to the expensive judge");
  if (answer.more.neutralized) notes.push("text that imitates prompt structure was sanitized");
  return make("td", { class: "why" }, make("i", { class: "cell " + shade(answer), "aria-hidden": "true" }, glyph(answer)), " ", make("b", {}, inWords(answer)), " ", answer.reason || "",
    ...(answer.more.evidence || []).flatMap((number) => [" ", cite(number, Boolean(steps?.[number - 1]))]), notes.length ? make("small", {}, " (" + notes.join("; ") + ")") : null, votes.length ? make("ul", { class: "votes" }, ...votes) : null);
};
const textsOf = (texts) => [
  ...text("Task", texts.query), ...text("Thinking", texts.thinking), ...text("Response", texts.response), ...text("Reference", texts.reference),
  ...(texts.context || []).flatMap((words, place) => text("Document " + (place + 1), words)), ...showFiles(texts.files), ...showSteps(texts.steps)];
let openings = 0;
async function showOne(place) {
  const number = ++openings;
  const row = data.rows[place];
  const texts = await load(row);
  if (number !== openings) return;
  const at = shown.indexOf(row);
  const turn = (step, name) => { const other = shown[at + step]; return at >= 0 && other ? make("a", { href: linkOf(other), rel: step > 0 ? "next" : "prev" }, name) : null; };
  const rows = texts.criteria.map((criterion) => {
    const tags = (criterion.tags || []).flatMap((tag) => [" ", make("span", { class: "tag" }, tag)]);
    const name = make("th", { scope: "row" }, make("span", { class: "key" }, criterion.name), " ", make("small", {}, (criterion.weight > 0 ? "+" : "") + criterion.weight), criterion.required ? " " : null, criterion.required ? make("span", { class: "tag" }, "required") : null, ...tags, make("span", { class: "words" }, criterion.requirement));
    return make("tr", {}, name, ...data.runs.map((_, run) => verdictCell(criterion.answers[run], texts.grades[run]?.unlinked ? null : texts.steps)), overrule(row, criterion));
  });
  const heads = two ? data.runs : ["answer"];
  const figures = (values) => Object.entries(values).map(([name, value]) => name + " " + (value === null ? "not computed" : value.toFixed(3))).join(", ");
  const grades = texts.grades.map((grade, run) => make("p", {}, two ? make("b", { class: "r" + (run + 1) }, data.runs[run] + ": ") : null, scoreText(grade) + (grade && !grade.error ? (grade.passed ? ", passed" : ", not passed") : "") +
    (grade?.low ? ", as only " + Math.floor(100 * grade.coverage) + " % of the rubric was assessed" : "") +
    (grade?.partial ? ", partial: the rubric leaves out a part of its file" : "") +
    (grade?.penalty ? ", " + grade.penalty.toFixed(3) + " deducted for length" : "") + (grade?.metrics ? ", " + figures(grade.metrics) : "") + (grade?.tags ? "; " + figures(grade.tags) : "") + (grade?.omitted ? "; " + grade.omitted.toLocaleString("en") + " characters of the steps were not shown to the judge" : "") + (grade?.error ? ": " + grade.error : "") + (grade?.note ? "; " + grade.note : "") + (grade?.reason ? ". " + grade.reason : "")));
  $("one").replaceChildren(
    make("nav", { class: "turn", "aria-label": "Submissions" }, make("a", { href: "#list" }, "All submissions"), turn(-1, "Previous"), turn(1, "Next")),
    make("h2", {}, titleOf(row)), ...grades,
    make("div", { class: "scroll" }, make("table", { class: "answers-table" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "criterion"), ...heads.map((name) => make("th", { scope: "col" }, name)), make("th", { scope: "col" }, "your answer"))), make("tbody", {}, ...rows))),
    ...textsOf(texts));
  showView("one");
  store.see(row);
  scrollTo(0, 0);
  $("one").focus();
}
