/* What the page calls a row, an answer and a score. An answer is its state, its verdict, and how good it is from 0 to 1. */
const store = labelStore(data, load);
const titleOf = (row) => (row.copy ? row.id + " (" + row.copy + ")" : row.id);
const linkOf = (row) => "#s" + row.number;
const gradeOf = (row) => row.grades[last] || row.grades[0];

/* Columns: the criteria that all rows have, or their tags; each has a name, a requirement, a weight and whether it is required. */
const isOf = (column, name, requirement) => column[0] === name && (column[1] === "" || column[1] === requirement);
const valueAt = (row, run, place) => {
  const value = row.grades[run]?.cells?.[place];
  if (value === undefined || value === null) return null;
  const [state, verdict, good] = data.kind === "tags" ? ["answered", null, value] : data.answers[value];
  return { state, verdict, good };
};
const labelAt = (row, place) =>
  (data.kind === "criteria" && store.ofRow(row).find(({ criterion, requirement }) => isOf(data.columns[place], criterion, requirement))) || null;

const STATES = { failed: ["!", "the judge failed"], abstained: ["?", "could not be judged"], open: ["\u00b7", "not asked"], inapplicable: ["\u2013", "does not apply"] };
const KINDS = ["good", "part", "bad", "abstained", "failed", "open", "inapplicable"];
const kindOf = (answer) => (answer.state !== "answered" ? answer.state : answer.good === 1 ? "good" : answer.good === 0 ? "bad" : "part");
const glyph = (answer) => STATES[answer.state]?.[0] || { good: "\u2713", bad: "\u2715" }[kindOf(answer)] || String(Math.round(answer.good * 100) / 100).replace(/^0\./, ".");
/* What a penalty says is an error: that it is met is bad. */
const inWords = (answer, weight = 1) => {
  if (STATES[answer.state]) return STATES[answer.state][1];
  if (answer.verdict === "MET") return weight < 0 ? "deducted" : "met";
  if (answer.verdict === "UNMET") return weight < 0 ? "not deducted" : "not met";
  return answer.verdict ?? answer.good.toFixed(2);
};
const markOf = (answer, more = "") => make("i", { class: "mark " + kindOf(answer) + more, "aria-hidden": "true" }, glyph(answer));
const signed = (number) => (number > 0 ? "+" : "") + number;
const scoreText = (grade) => {
  if (!grade) return "not in this run";
  if (grade.range) return (grade.range[0] === null ? "?" : grade.range[0].toFixed(2)) + ".." + grade.range[1].toFixed(2);
  if (grade.score === undefined) return grade.error ? "not graded" : "undefined";
  return grade.score.toFixed(3);
};
const resultText = (grade) => scoreText(grade) + (grade && !grade.error ? (grade.passed ? ", passed" : ", not passed") : "");
const delta = (row) =>
  two && row.grades[0]?.score !== undefined && row.grades[1]?.score !== undefined ? row.grades[1].score - row.grades[0].score : null;
const number = (count, words) => count.toLocaleString("en") + " " + words + (count === 1 ? "" : "s");
